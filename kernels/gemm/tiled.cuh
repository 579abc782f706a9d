// Matrix products in ring words, by tiles: what matmul and conv2d share on a GPU.
//
//     out[row, column] = sum over pairs p and depths k of a_p[row, k] b_p[k, column]
//
// A block of 16 x 16 threads makes Rows x Columns of the output, a thread every 16th column of
// Rows/16 neighbouring rows, in registers. Eight depths at a time lie in shared memory; the next
// eight are fetched into registers meanwhile. Where the depth is cut among blocks, each part has a
// place of its own (kernels/gemm/parts.py); where pairs are cut among launches, later ones add to
// what the first has stored.
#pragma once

#include "kernels/cuda/prelude.cuh"

namespace veil {

constexpr int kSide = 16;  // threads along either side of a block's tile
constexpr int kThreads = kSide * kSide;
constexpr int kDepth = 8;                  // depths in shared memory
constexpr int kAlong = kThreads / kDepth;  // rows or columns that a block fetches at a time

// A matrix of any strides, in elements.
template <class T>
struct Strided {
  const T* data;
  int64_t stride, depth_stride;

  using Line = int64_t;  // a row of a, or a column of b
  using Depth = int64_t;
  __device__ __forceinline__ Line line(int64_t i) const { return i * stride; }
  __device__ __forceinline__ Depth depth(int64_t k) const { return k * depth_stride; }
  // Null where the matrix is zero.
  __device__ __forceinline__ const T* address(Line line, Depth depth) const {
    return data + line + depth;
  }
  __device__ __forceinline__ bool runs_along_depth() const { return depth_stride == 1; }
  static constexpr bool kHasVectors = true;  // words that are side by side in memory may be read so
};

// A thread's share of the fetches of one matrix: one depth, every kAlong-th line.
template <class T, class Source, int Lines>
class Fetch {
  static constexpr int kEach = Lines / kAlong;

 public:
  __device__ __forceinline__ Fetch(const Source& source, int64_t first, int64_t end)
      : source_(source) {
    const int thread = static_cast<int>(threadIdx.x);
    // Neighbouring threads fetch neighbouring words.
    const bool along_depth = source.runs_along_depth();
    depth_ = along_depth ? thread % kDepth : thread / kAlong;
    start_ = along_depth ? thread / kDepth : thread % kAlong;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t line = first + start_ + kAlong * i;
      inside_[i] = line < end;
      lines_[i] = source.line(inside_[i] ? line : 0);
    }
  }

  // Depths [first, end), zeros behind them and beside the matrix.
  __device__ __forceinline__ void fetch(int64_t first, int64_t end) {
    const int64_t k = first + depth_;
    const typename Source::Depth depth = source_.depth(k < end ? k : 0);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const T* from = k < end && inside_[i] ? source_.address(lines_[i], depth) : nullptr;
      held_[i] = from ? *from : T{0};
    }
  }

  __device__ __forceinline__ void put(T (&to)[kDepth][Lines]) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) to[depth_][start_ + kAlong * i] = held_[i];
  }

 private:
  Source source_;
  int depth_, start_;
  bool inside_[kEach];
  typename Source::Line lines_[kEach];
  T held_[kEach];
};

// The part of the output that a block makes, and the depths of every pair that it takes: those of
// part `part` of `parts`.
struct TilePart {
  int64_t rows, columns;  // of the output
  int64_t first_row, first_column;
  int64_t part, parts;
};

template <class T, int Rows, int Columns>
class Product {
  static constexpr int kRowsEach = Rows / kSide, kColumnsEach = Columns / kSide;

 public:
  // Adds one pair's product; all threads of a block together.
  template <class A, class B>
  __device__ __forceinline__ void add(const A& a, const B& b, int64_t depth, const TilePart& tile) {
    __shared__ T left[kDepth][Rows];
    __shared__ T right[kDepth][Columns];
    const int64_t steps = (depth + kDepth - 1) / kDepth;
    const int64_t begin = steps * tile.part / tile.parts * kDepth;
    const int64_t cut = steps * (tile.part + 1) / tile.parts * kDepth;
    const int64_t end = cut < depth ? cut : depth;
    if (begin >= end) return;
    Fetch<T, A, Rows> rows(a, tile.first_row, tile.rows);
    Fetch<T, B, Columns> columns(b, tile.first_column, tile.columns);
    rows.fetch(begin, end);
    columns.fetch(begin, end);
    for (int64_t k = begin; k < end; k += kDepth) {
      rows.put(left);
      columns.put(right);
      __syncthreads();
      if (k + kDepth < end) {
        rows.fetch(k + kDepth, end);
        columns.fetch(k + kDepth, end);
      }
      multiply(left, right);
      __syncthreads();
    }
  }

  // Calls body(row, column, sum) for what this thread has made.
  template <class Body>
  __device__ __forceinline__ void for_each(const TilePart& tile, Body body) const {
#pragma unroll
    for (int j = 0; j < kColumnsEach; ++j) {
      const int64_t column = tile.first_column + threadIdx.x % kSide + kSide * j;
      if (column >= tile.columns) continue;
#pragma unroll
      for (int i = 0; i < kRowsEach; ++i) {
        const int64_t row = tile.first_row + threadIdx.x / kSide * kRowsEach + i;
        if (row < tile.rows) body(row, column, sums_[i][j]);
      }
    }
  }

 private:
  __device__ __forceinline__ void multiply(const T (&left)[kDepth][Rows],
                                           const T (&right)[kDepth][Columns]) {
    const int row = static_cast<int>(threadIdx.x) / kSide * kRowsEach;
    const int column = static_cast<int>(threadIdx.x) % kSide;
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      T a[kRowsEach], b[kColumnsEach];
#pragma unroll
      for (int i = 0; i < kRowsEach; ++i) a[i] = left[k][row + i];
#pragma unroll
      for (int j = 0; j < kColumnsEach; ++j) b[j] = right[k][column + kSide * j];
#pragma unroll
      for (int i = 0; i < kRowsEach; ++i) {
#pragma unroll
        for (int j = 0; j < kColumnsEach; ++j) sums_[i][j] += a[i] * b[j];
      }
    }
  }

  T sums_[kRowsEach][kColumnsEach] = {};
};

// One sum to its place, or to what is there already: atomically not for others' sake, but because
// then nobody waits for what is there.
template <class T>
__device__ __forceinline__ void put_sum(T* to, T sum, bool adds) {
  if (adds) {
    add_to(to, sum);
  } else {
    *to = sum;
  }
}

// Which tile a block makes: eight rows of tiles are walked down together, column by column, so that
// blocks that run at the same time share as many lines as they can.
struct TilePlace {
  int64_t row, column;
};

__device__ __forceinline__ TilePlace place_of(int64_t number, int64_t down, int64_t across) {
  constexpr int64_t kBand = 8;
  const int64_t first = number / (kBand * across) * kBand;
  const int64_t height = down - first < kBand ? down - first : kBand;
  const int64_t inside = number - first * across;
  return {first + inside % height, inside / height};
}

}  // namespace veil
