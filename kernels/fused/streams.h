// Which buffers of a fused program its registers may simply be: words that are read where they lie,
// and written where they are to lie, without a copy.
#pragma once
#include <cstdint>

#include "kernels/cpu/buffers.h"
#include "kernels/cpu/packed.h"
#include "kernels/fused/program.h"

namespace veil {

class Streams {
 public:
  Streams(const VeilCall& call, const Program& program) : call_(call) {
    for (int64_t i = 0; i < program.instructions; ++i) {
      const Instruction& ins = program.table[i];
      if (ins.op == STORE || ins.op == STORE_BITS) exclude_overlaps(ins.a);
    }
  }

  // Where block elements `first`... of a buffer lie, if registers of T may be there; else null.
  template <class T>
  T* in_place(int64_t number, int64_t first) const {
    const VeilBuffer& b = call_.buffers[number];
    const bool words = is_words(b) || (b.kind == VEIL_PACKED && b.bits == 8 * sizeof(T));
    T* at = reinterpret_cast<T*>(b.data) + first;
    const bool aligned = reinterpret_cast<uintptr_t>(at) % 64 == 0;
    return number < kMost && !(shared_ >> number & 1) && words && aligned ? at : nullptr;
  }

 private:
  static constexpr int64_t kMost = 64;  // buffers; those beyond are copied

  static int64_t size_bytes(const VeilBuffer& b) {
    if (b.kind == VEIL_PLANES) return b.bits * plane_words(b) * 8;
    if (b.kind == VEIL_PACKED) return packed_bytes(element_count(b), b.bits);
    return element_count(b) * (b.kind == VEIL_WORDS64 ? 8 : 4);
  }

  // What shares memory with what is written is read and written in the program's order: copied.
  void exclude_overlaps(int64_t written) {
    const uint8_t* begin = call_.buffers[written].data;
    const uint8_t* end = begin + size_bytes(call_.buffers[written]);
    for (int64_t i = 0; i < call_.buffer_count && i < kMost; ++i) {
      const VeilBuffer& b = call_.buffers[i];
      if (i == written || b.data >= end || begin >= b.data + size_bytes(b)) continue;
      shared_ |= uint64_t{1} << i;
      if (written < kMost) shared_ |= uint64_t{1} << written;
    }
  }

  const VeilCall& call_;
  uint64_t shared_ = 0;
};

}  // namespace veil
