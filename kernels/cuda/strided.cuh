// Walks over strided arrays: kernels/cuda/strided.py makes them.
#pragma once

#include "kernels/cuda/prelude.cuh"

namespace veil {

constexpr int kMaxRank = 6;

// Extents and strides in elements, from the innermost dimension; entries behind `rank` are 0.
struct Walk {
  int64_t rank;
  int64_t extent[kMaxRank];
  int64_t out[kMaxRank];
  int64_t in[kMaxRank];
};

struct Offsets {
  int64_t out, in;
};

// Where element `index` of the walk lies on both sides. Index is uint32_t where all indices fit: a
// division of 64 bits takes five times as long.
template <class Index>
__device__ __forceinline__ Offsets offsets_of(const Walk& walk, Index index) {
  Offsets at = {0, 0};
  for (int d = 0; d < walk.rank; ++d) {
    const Index extent = static_cast<Index>(walk.extent[d]);
    const Index next = d + 1 < walk.rank ? index / extent : 0;
    const int64_t i = index - next * extent;
    at.out += i * walk.out[d];
    at.in += i * walk.in[d];
    index = next;
  }
  return at;
}

// Calls body(out offset, in offset) for each of `count` elements, in strides of the grid.
template <class Body>
__device__ __forceinline__ void for_each_offset(const Walk& walk, int64_t count, Body body) {
  const bool is_small = count <= int64_t{0xffffffff};
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) {
    const Offsets at = is_small ? offsets_of(walk, static_cast<uint32_t>(i))
                                : offsets_of(walk, static_cast<uint64_t>(i));
    body(at.out, at.in);
  }
}

}  // namespace veil
