// Sums of matrix products on tensor cores: x of the grid is the tile, y the part of the depth, and
// z walks over the batch.
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

template <class Tile_, class Ending>
__device__ __forceinline__ void matmul_limbs(int64_t batch, int64_t rows, int64_t columns,
                                             int64_t access, const Pairs& pairs,
                                             const Ending& ending) {
  using T = typename Tile_::Ring::Word;
  const int64_t down = (rows + Tile_::kRows - 1) / Tile_::kRows;
  const int64_t across = (columns + Tile_::kColumns - 1) / Tile_::kColumns;
  const TilePlace place = place_of(blockIdx.x, down, across);
  for (int64_t entry = blockIdx.z; entry < batch; entry += gridDim.z) {
    const TilePart tile = {
        rows,       columns,  place.row * Tile_::kRows, place.column * Tile_::kColumns,
        blockIdx.y, gridDim.y};
    limb_product<Tile_>(MatmulOperands<T>{pairs, entry, access}, tile,
                        [&](const auto& sums, const LimbPart& part, bool is_later) {
                          ending.end(sums, part, is_later, [&](int row, int column) {
                            return (entry * rows + row) * columns + column;
                          });
                        });
  }
}

}  // namespace veil

// `Ending` is Stored, or Followed by a program; kernels/gemm/limbs.py prints both.
#define VEIL_MATMUL_LIMBS(entry, shared_bytes, Ending, ...)                                     \
  extern "C" __global__ void __launch_bounds__(256, 1)                                          \
      entry(int64_t batch, int64_t rows, int64_t columns, int64_t access,                       \
            const __grid_constant__ veil::Pairs pairs, const __grid_constant__ Ending ending) { \
    using Tile = __VA_ARGS__;                                                                   \
    static_assert(Tile::Memory::kBytes == shared_bytes);                                        \
    veil::matmul_limbs<Tile>(batch, rows, columns, access, pairs, ending);                      \
  }
