// Convolutions on tensor cores: weights [filters, depth] times windows [depth, pixels] of a group,
// looked up while they are copied. x of the grid is the tile, y the part of the depth, and z walks
// over groups.
#pragma once

#include "kernels/conv2d/small_windows.cuh"
#include "kernels/gemm/limbs.cuh"

namespace veil {

// From group to group, filter to filter and depth to depth, in elements; see Access for those
// packed.
struct WeightStrides {
  int64_t group, filter, depth;
};

template <class T>
struct ConvolutionOperands {
  const SmallConvolution& c;
  const Pairs& pairs;
  int group;
  int64_t access;  // of the weights
  const WeightStrides& strides;

  using Left = Strided<T>;
  using Right = SmallWindows<T>;
  __device__ __forceinline__ int count() const { return static_cast<int>(pairs.count); }
  __device__ __forceinline__ int64_t depth(int) const { return c.shape.depth(); }
  __device__ __forceinline__ Access left_access() const { return Access(access); }
  __device__ __forceinline__ Access right_access() const { return kWordsAlongLines; }
  __device__ __forceinline__ Left left(int p) const {
    const T* weights = reinterpret_cast<const T*>(pairs.pair[p].weights);
    return {weights + made_anew(group) * strides.group, strides.filter, strides.depth};
  }
  __device__ __forceinline__ Right right(int p) const {
    const T* image = reinterpret_cast<const T*>(pairs.pair[p].image);
    return {image + made_anew(group) * c.shape.group_channels() * c.shape.h * c.shape.w, &c};
  }
};

template <class Tile_, class Ending>
__device__ __forceinline__ void conv2d_limbs(int64_t access, const WeightStrides& strides,
                                             const SmallConvolution& c, const Pairs& pairs,
                                             const Ending& ending) {
  using T = typename Tile_::Ring::Word;
  const int64_t filters = c.shape.group_filters(), image = c.shape.image();
  const int64_t pixels = c.shape.batch * image;
  const int64_t down = (filters + Tile_::kRows - 1) / Tile_::kRows;
  const int64_t across = (pixels + Tile_::kColumns - 1) / Tile_::kColumns;
  const TilePlace place = place_of(blockIdx.x, down, across);
  for (int group = static_cast<int>(blockIdx.z); group < c.shape.groups;
       group += static_cast<int>(gridDim.z)) {
    const TilePart tile = {
        filters,    pixels,   place.row * Tile_::kRows, place.column * Tile_::kColumns,
        blockIdx.y, gridDim.y};
    limb_product<Tile_>(ConvolutionOperands<T>{c, pairs, group, access, strides}, tile,
                        [&](const auto& sums, const LimbPart& part, bool is_later) {
                          ending.end(sums, part, is_later, [&](int row, int pixel) {
                            const int number = c.image.quotient(pixel);
                            const int64_t plane = number * c.shape.filters + group * filters + row;
                            return (plane - number) * image + pixel;
                          });
                        });
  }
}

}  // namespace veil

// `Ending` is Stored, or Followed by a program; kernels/gemm/limbs.py prints both.
#define VEIL_CONV2D_LIMBS(entry, shared_bytes, Ending, ...)                                     \
  extern "C" __global__ void __launch_bounds__(256, 1)                                          \
      entry(int64_t access, const __grid_constant__ veil::WeightStrides strides,                \
            const __grid_constant__ veil::SmallConvolution c,                                   \
            const __grid_constant__ veil::Pairs pairs, const __grid_constant__ Ending ending) { \
    using Tile = __VA_ARGS__;                                                                   \
    static_assert(Tile::Memory::kBytes == shared_bytes);                                        \
    veil::conv2d_limbs<Tile>(access, strides, c, pairs, ending);                                \
  }
