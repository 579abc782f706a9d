// The end of a product by limbs where a fused program of words takes its sums:
// kernels/gemm/limbs.py prints both as one kernel.
#pragma once

#include "kernels/fused/words.cuh"
#include "kernels/gemm/limbs.cuh"

namespace veil {

// Four elements of a thread in an mma tile, as the tile of a program; those beyond the output lie
// behind its last element.
struct FourElements {
  int64_t at[kParts], elements;

  __device__ __forceinline__ int64_t element(int part) const { return at[part]; }
};

// `Program` has the elements of the output, and takes words of its `Word` four at a time.
template <class Program>
struct Followed {
  using T = typename Program::Word;
  Program program;

  // See Stored; of a depth in one part that 32-bit sums hold.
  template <class Sums, class Place>
  __device__ __forceinline__ void end(const Sums& sums, const LimbPart& part, bool,
                                      Place place) const {
    sums.for_each_four(part, [&](int first_row, int first_column, const T(&four)[kParts]) {
      FourElements tile;
      tile.elements = program.elements;
      Words<T> words;
#pragma unroll
      for (int e = 0; e < kParts; ++e) {
        const int row = first_row + e / 2 * 8, column = first_column + e % 2;
        const bool inside = row < part.rows && column < part.columns;
        tile.at[e] = inside ? place(row, column) : program.elements;
        words.at[e] = four[e];
      }
      program(tile, words);
    });
  }
};

}  // namespace veil
