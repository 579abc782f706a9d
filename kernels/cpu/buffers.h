// What every kernel's `check` asks about the buffers of a call.
#pragma once
#include <cstdint>
#include <cstring>

#include "kernels/cpu/abi.h"

namespace veil {

inline bool is_words(const VeilBuffer& b) {
  return b.kind == VEIL_WORDS32 || b.kind == VEIL_WORDS64;
}

// Product of the extents; the caller of a kernel has proven that it does not overflow.
inline int64_t element_count(const VeilBuffer& b) {
  int64_t count = 1;
  for (uint32_t d = 0; d < b.rank; ++d) count *= b.shape[d];
  return count;
}

// Whether elements lie one after another in row-major order.
inline bool is_contiguous(const VeilBuffer& b) {
  int64_t expected = 1;
  for (uint32_t d = b.rank; d-- > 0;) {
    if (b.shape[d] != 1 && b.strides[d] != expected) return element_count(b) == 0;
    expected *= b.shape[d];
  }
  return true;
}

// Whether two indices of a buffer may name the same memory: a stride of 0 along more than one
// element.
inline bool repeats(const VeilBuffer& b) {
  bool any = false;
  for (uint32_t d = 0; d < b.rank; ++d) any = any || (b.shape[d] > 1 && b.strides[d] == 0);
  return any && element_count(b) > 0;
}

// Words from the start of one plane to the start of the next.
inline int64_t plane_words(const VeilBuffer& b) { return (b.shape[0] + 63) / 64; }

// Records which buffer, parameter or instruction is at fault and passes the reason on.
inline const char* fault(int64_t* at, int64_t index, const char* reason) {
  *at = index;
  return reason;
}

// All buffers hold words of one width, and the first, the output, may be written.
inline const char* check_words(const VeilCall& call, int64_t* at) {
  for (uint32_t i = 0; i < call.buffer_count; ++i) {
    const VeilBuffer& b = call.buffers[i];
    if (!is_words(b)) return fault(at, i, "buffer does not hold words");
    if (b.kind != call.buffers[0].kind) return fault(at, i, "buffers differ in word width");
  }
  if (call.buffer_count > 0 && !call.buffers[0].writable) {
    return fault(at, 0, "output is in read-only memory");
  }
  return nullptr;
}

// The number of buffers is as declared, and there are no parameters.
inline const char* check_counts(const VeilCall& call, uint32_t buffers) {
  if (call.buffer_count != buffers) return "wrong number of buffers";
  return call.params_count == 0 ? nullptr : "wrong number of parameters";
}

// Each parameter that has a name is there, and in its range.
template <class Params>
const char* check_params(const VeilCall& call, int64_t* at) {
  const uint32_t count = call.params_count;
  if (Params::kHasTail ? count < Params::kCount : count != Params::kCount) {
    return fault(at, -1, "wrong number of parameters");
  }
  for (uint32_t i = 0; i < Params::kCount; ++i) {
    if (call.params[i] < Params::kLeast[i] || call.params[i] > Params::kMost[i]) {
      return fault(at, i, "parameter out of range");
    }
  }
  return nullptr;
}

// The parameters of a call by name; there are as many.
template <class Params>
Params params_of(const VeilCall& call) {
  Params params;
  static_assert(sizeof(params) == 8 * Params::kCount);
  std::memcpy(&params, call.params, sizeof(params));
  return params;
}

// A ring's width that the words of a buffer hold.
inline bool holds_ring(const VeilBuffer& b, int64_t bits) {
  return bits <= (b.kind == VEIL_WORDS64 ? 64 : 32);
}

}  // namespace veil
