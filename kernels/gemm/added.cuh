// Words of a product whose depth is cut as a fused program makes them, a tile at a time: those of
// its parts, added up.
#pragma once

#include "kernels/fused/words.cuh"

namespace veil {

// From `count` parts of every element, `pitch` words from part to part.
template <class T>
__device__ __forceinline__ Words<T> added(const Tile& tile, const uint8_t* parts, uint64_t count,
                                          uint64_t pitch) {
  Words<T> sum = all_words<T>(0);
#pragma unroll 4  // 16 loads under way
  for (uint64_t p = 0; p < count; ++p, parts += pitch * sizeof(T)) {
    sum = sum + load<T>(tile, words_in<T>(parts));
  }
  return sum;
}

}  // namespace veil
