// Sums of matrix products on tensor cores: x of the grid is the tile, z walks over the batch and
// the parts of the depth.
#pragma once

#include "kernels/gemm/limbs.cuh"
#include "kernels/matmul/pairs.cuh"

namespace veil {

template <class T>
struct MatmulOperands {
  const Pairs& pairs;
  int64_t entry;   // of the batch
  int64_t access;  // of the left factors, and that of the right ones times 8

  using Left = Strided<T>;
  using Right = Strided<T>;
  __device__ __forceinline__ int count() const { return static_cast<int>(pairs.count); }
  __device__ __forceinline__ int64_t depth(int p) const { return pairs.pair[p].depth; }
  __device__ __forceinline__ Access left_access() const { return Access(access % 8); }
  __device__ __forceinline__ Access right_access() const { return Access(access / 8); }
  __device__ __forceinline__ Left left(int p) const { return pairs.pair[p].a.entry<T>(entry); }
  __device__ __forceinline__ Right right(int p) const { return pairs.pair[p].b.entry<T>(entry); }

  __device__ __forceinline__ bool has_left_addend(int p) const { return pairs.pair[p].a_addend; }
  __device__ __forceinline__ bool has_right_addend(int p) const { return pairs.pair[p].b_addend; }
  __device__ __forceinline__ Left left_addend(int p) const {
    return pairs.pair[p].a.at(pairs.pair[p].a_addend).template entry<T>(entry);
  }
  __device__ __forceinline__ Right right_addend(int p) const {
    return pairs.pair[p].b.at(pairs.pair[p].b_addend).template entry<T>(entry);
  }
};

template <class Tile_>
__device__ __forceinline__ void matmul_limbs(typename Tile_::Ring::Word* out, int64_t batch,
                                             int64_t rows, int64_t columns, int64_t parts,
                                             bool adds, int64_t access, const Pairs& pairs) {
  using T = typename Tile_::Ring::Word;
  const int64_t down = (rows + Tile_::kRows - 1) / Tile_::kRows;
  const int64_t across = (columns + Tile_::kColumns - 1) / Tile_::kColumns;
  const TilePlace place = place_of(blockIdx.x, down, across);
  for (int64_t z = blockIdx.z; z < batch * parts; z += gridDim.z) {
    const int64_t entry = z / parts;
    const Tile tile = {
        rows, columns, place.row * Tile_::kRows, place.column * Tile_::kColumns, z - entry * parts,
        parts};
    T* to = out + entry * rows * columns;
    limb_product<Tile_>(MatmulOperands<T>{pairs, entry, access}, tile,
                        [&](int row, int64_t column, T sum, bool is_later) {
                          put_sum(to + row * columns + column, sum, adds || is_later);
                        });
  }
}

}  // namespace veil

#define VEIL_MATMUL_LIMBS(entry, shared_bytes, word, ...)                                         \
  extern "C" __global__ void __launch_bounds__(256, 1)                                            \
      entry(word* out, int64_t batch, int64_t rows, int64_t columns, int64_t parts, int64_t adds, \
            int64_t access, const __grid_constant__ veil::Pairs pairs) {                          \
    using Tile = __VA_ARGS__;                                                                     \
    static_assert(Tile::Memory::kBytes == shared_bytes);                                          \
    veil::matmul_limbs<Tile>(out, batch, rows, columns, parts, adds != 0, access, pairs);         \
  }
