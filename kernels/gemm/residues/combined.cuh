// Words of a product by residues as a fused program makes them, a tile at a time: `combine` of
// kernels/gemm/residues/residues.cuh with the program that follows.
#pragma once

#include "kernels/fused/words.cuh"
#include "kernels/gemm/residues/modulus.cuh"

namespace veil {

// The sum whose t_i lie `plane` bytes from one another.
template <int Count>
__device__ __forceinline__ uint64_t combined_sum(const uint8_t* t, int64_t plane, uint64_t product,
                                                 const Modulus* moduli) {
  ModularSum sum;
#pragma unroll
  for (int m = 0; m < Count; ++m) sum.add(t[m * plane], moduli[m]);
  return sum.value(product);
}

// Elements of [entry][row][column] from t_i [entry][modulus][row][pitch]; Index holds every
// element.
template <class T, class Index, int Count>
__device__ __forceinline__ Words<T> combined(const Tile& tile, const uint8_t* t, uint64_t rows,
                                             uint64_t columns, uint64_t pitch, uint64_t product,
                                             const Modulus* moduli) {
  const int64_t plane = static_cast<int64_t>(rows * pitch);
  return each_part<T>([&](int c) {
    if (tile.element(c) >= tile.elements) return T{0};
    const Index i = static_cast<Index>(tile.element(c));
    const Index line = i / static_cast<Index>(columns), entry = line / static_cast<Index>(rows);
    const int64_t row = line - entry * static_cast<Index>(rows);
    const int64_t column = i - line * static_cast<Index>(columns);
    const uint8_t* from = t + (int64_t{entry} * Count * plane + row * pitch + column);
    return static_cast<T>(combined_sum<Count>(from, plane, product, moduli));
  });
}

}  // namespace veil
