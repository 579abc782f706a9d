// A convolution's shapes and parameters, and the proof that they fit together.
#pragma once
#include <cstdint>

#include "kernels/abi.h"
#include "kernels/buffers.h"

namespace veil {

// Parameters in the order of declaration.py, then extents: images [batch, channels, h, w], weights
// [filters, channels / groups, kh, kw], outputs [batch, filters, oh, ow].
struct Convolution {
  int64_t bits, stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w, groups;
  int64_t batch, channels, h, w, filters, kh, kw, oh, ow;

  int64_t group_channels() const { return channels / groups; }
  int64_t group_filters() const { return filters / groups; }
};

inline Convolution convolution_of(const VeilCall& call) {
  const int64_t* p = call.params;
  const VeilBuffer &out = call.buffers[0], &x = call.buffers[1], &w = call.buffers[2];
  return {p[0],       p[1],       p[2],       p[3],         p[4],        p[5],
          p[6],       p[7],       x.shape[0], x.shape[1],   x.shape[2],  x.shape[3],
          w.shape[0], w.shape[2], w.shape[3], out.shape[2], out.shape[3]};
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

inline const char* check_convolution_params(const VeilCall& call, int64_t* at) {
  const int64_t word = call.buffers[0].kind == VEIL_WORDS64 ? 64 : 32;
  constexpr int64_t kMost = int64_t{1} << 20;  // keeps every coordinate far inside an int64
  for (int64_t i = 0; i < 8; ++i) {
    const int64_t least = i == 3 || i == 4 ? 0 : 1, most = i == 0 ? word : kMost;
    if (call.params[i] < least || call.params[i] > most) {
      return fault(at, i, "parameter out of range");
    }
  }
  return nullptr;
}

inline const char* check_convolution(const VeilCall& call, int64_t* at) {
  if (call.params_count != 8) return fault(at, -1, "wrong number of parameters");
  if (call.buffer_count < 3 || call.buffer_count % 2 == 0) {
    return fault(at, -1, "wrong number of buffers");
  }
  if (const char* reason = check_words(call, at)) return reason;
  for (uint32_t i = 0; i < call.buffer_count; ++i) {
    if (call.buffers[i].rank != 4) return fault(at, i, "buffer is not of rank 4");
    if (!is_contiguous(call.buffers[i])) return fault(at, i, "buffer is not contiguous");
  }
  if (const char* reason = check_convolution_params(call, at)) return reason;
  const Convolution c = convolution_of(call);
  const VeilBuffer& out = call.buffers[0];
  if (out.shape[0] != c.batch || out.shape[1] != c.filters) {
    return fault(at, 0, "output is not of batch x filters");
  }
  if (c.channels % c.groups != 0 || c.filters % c.groups != 0) {
    return fault(at, 7, "groups do not divide channels and filters");
  }
  for (uint32_t i = 1; i < call.buffer_count; i += 2) {
    if (const char* reason = check_pair(c, call.buffers[i], call.buffers[i + 1])) {
      return fault(at, i, reason);
    }
  }
  return nullptr;
}

}  // namespace veil
