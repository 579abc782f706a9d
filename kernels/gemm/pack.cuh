// Factors taken apart into balanced limbs once, as limb products read them (kPacked):
//
//     [entry][tile of lines][step of depths][limb][a tile's lines in a plane]
//
// so that what a block copies in a step is one run of bytes. How a tile's lines lie in a plane is
// its kernel's matter. Lines and depths are filled up with zeros to whole tiles and steps.
#pragma once

#include "kernels/gemm/limbs.cuh"
#include "kernels/matmul/pairs.cuh"

namespace veil {

// Where the word of a quad of a tile's line is in a plane: as shared memory has it for mma.sync,
struct MmaPlane {
  static __device__ __forceinline__ int word(int line, int quad, int64_t) {
    return place_in_plane(line, quad / 4) / 4 + quad % 4;
  }
};

// as threads hold fragments of a left factor for wgmma,
struct FragmentPlane {
  static __device__ __forceinline__ int word(int line, int quad, int64_t) {
    const int thread = line / 16 * kLanes + line % 8 * 4 + quad % 4;
    return thread * 4 + line / 8 % 2 + quad / 4 * 2;
  }
};

// and as shared memory has a right factor for wgmma, without gaps.
struct CoreMatrixPlane {
  static __device__ __forceinline__ int word(int line, int quad, int64_t lines) {
    return (quad / 4 * static_cast<int>(lines) + line) * 4 + quad % 4;
  }
};

// A thread takes four depths of a line at a time.
template <class T, int Limbs, class Plane>
__device__ __forceinline__ void pack(uint32_t* out, const Factor& factor, int64_t entries,
                                     int64_t lines, int64_t depth, int64_t tile) {
  constexpr int64_t kQuads = kStepDepth / kQuad;
  const int64_t tiles = (lines + tile - 1) / tile, steps = steps_of(depth);
  const int64_t each = tile * kQuads;
  for (int64_t i = grid_thread(); i < entries * tiles * steps * each; i += grid_threads()) {
    const int64_t run = i / each, rest = i - run * each;
    const int64_t row = run / steps, entry = row / tiles;
    // Neighbouring threads read neighbouring words.
    const bool along_depths = factor.depth_stride == 1;
    const int line = static_cast<int>(along_depths ? rest / kQuads : rest % tile);
    const int quad = static_cast<int>(along_depths ? rest % kQuads : rest / tile);
    const int64_t number = (row - entry * tiles) * tile + line;
    const int64_t first = (run - row * steps) * kStepDepth + quad * kQuad;
    const Strided<T> source = factor.entry<T>(entry);
    T words[kQuad];
#pragma unroll
    for (int d = 0; d < kQuad; ++d) {
      const int64_t k = first + d;
      const bool inside = number < lines && k < depth;
      words[d] = inside ? *source.address(source.line(number), source.depth(k)) : T{0};
    }
    uint32_t limbs[Limbs];
    split(words, limbs);
    uint32_t* to = out + run * Limbs * each + Plane::word(line, quad, tile);
#pragma unroll
    for (int limb = 0; limb < Limbs; ++limb) to[limb * each] = limbs[limb];
  }
}

}  // namespace veil

#define VEIL_PACK(entry, word, limbs, plane)                                          \
  extern "C" __global__ void __launch_bounds__(256)                                   \
      entry(uint32_t* out, const veil::Factor factor, int64_t entries, int64_t lines, \
            int64_t depth, int64_t tile) {                                            \
    veil::pack<word, limbs, veil::plane>(out, factor, entries, lines, depth, tile);   \
  }
