// A convolution's shapes and parameters, and the proof that they fit together.
#pragma once
#include <cstdint>

#include "kernels/cpu/abi.h"
#include "kernels/cpu/buffers.h"

namespace veil {

// Parameters and extents: images [batch, channels, h, w], weights [filters, channels / groups, kh,
// kw], outputs [batch, filters, oh, ow].
struct Convolution : Conv2dParams {
  int64_t batch, channels, h, w, filters, kh, kw, oh, ow;

  int64_t group_channels() const { return channels / groups; }
  int64_t group_filters() const { return filters / groups; }
};

inline Convolution convolution_of(const VeilCall& call) {
  const VeilBuffer &out = call.buffers[0], &x = call.buffers[1], &w = call.buffers[2];
  return {params_of<Conv2dParams>(call),
          x.shape[0],
          x.shape[1],
          x.shape[2],
          x.shape[3],
          w.shape[0],
          w.shape[2],
          w.shape[3],
          out.shape[2],
          out.shape[3]};
}

inline const char* check_pair(const Convolution& c, const VeilBuffer& x, const VeilBuffer& w) {
  if (x.shape[0] != c.batch || x.shape[1] != c.channels || x.shape[2] != c.h || x.shape[3] != c.w) {
    return "images differ in shape";
  }
  if (w.shape[0] != c.filters || w.shape[1] != c.group_channels() || w.shape[2] != c.kh ||
      w.shape[3] != c.kw) {
    return "weights are not of filters x channels of a group x kernel";
  }
  return nullptr;
}

inline const char* check_convolution(const VeilCall& call, int64_t* at) {
  if (const char* reason = check_params<Conv2dParams>(call, at)) return reason;
  if (call.buffer_count < 3 || call.buffer_count % 2 == 0) {
    return fault(at, -1, "wrong number of buffers");
  }
  if (const char* reason = check_words(call, at)) return reason;
  for (uint32_t i = 0; i < call.buffer_count; ++i) {
    if (call.buffers[i].rank != 4) return fault(at, i, "buffer is not of rank 4");
    if (!is_contiguous(call.buffers[i])) return fault(at, i, "buffer is not contiguous");
  }
  const Convolution c = convolution_of(call);
  const VeilBuffer& out = call.buffers[0];
  if (!holds_ring(out, c.bits)) return fault(at, Conv2dParams::at_bits, "ring exceeds the words");
  if (out.shape[0] != c.batch || out.shape[1] != c.filters) {
    return fault(at, 0, "output is not of batch x filters");
  }
  if (c.channels % c.groups != 0 || c.filters % c.groups != 0) {
    return fault(at, Conv2dParams::at_groups, "groups do not divide channels and filters");
  }
  for (uint32_t i = 1; i < call.buffer_count; i += 2) {
    if (const char* reason = check_pair(c, call.buffers[i], call.buffers[i + 1])) {
      return fault(at, i, reason);
    }
  }
  return nullptr;
}

}  // namespace veil
