// Panels of micro-kernels that take the depth one step at a time.
#pragma once
#include <cstdint>

namespace veil {

constexpr int64_t round_up(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

// What a micro-kernel `Self` of Rows x Columns outputs inherits: blocks for 64-bit words in caches
// of common size, and panels made by its pack_a(to, k, values) and pack_b(to, k, values), each of
// which stores the elements of all lanes at step k.
template <class Self, int Rows, int Columns>
struct Stepwise {
  struct Scope {
    explicit Scope(int64_t) {}
  };
  static constexpr int64_t kDepthStep = 1;
  static constexpr int64_t kBlockDepth = 256;
  static constexpr int64_t kBlockRows = round_up(60, Rows);
  static constexpr int64_t kBlockColumns = round_up(768, Columns);

  template <class Source>
  static void pack_left(uint8_t* to, const Source& left, int64_t lane, int64_t count, int64_t first,
                        int64_t depth) {
    left.template panel<Rows>(lane, count, first, depth,
                              [&](int64_t k, const auto* values) { Self::pack_a(to, k, values); });
  }

  template <class Source>
  static void pack_right(uint8_t* to, const Source& right, int64_t lane, int64_t count,
                         int64_t first, int64_t depth) {
    right.template panel<Columns>(lane, count, first, depth, [&](int64_t k, const auto* values) {
      Self::pack_b(to, k, values);
    });
  }
};

}  // namespace veil
