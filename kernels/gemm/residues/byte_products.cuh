// Products of bytes, modulus by modulus: the step `multiply` of kernels/gemm/residues/residues.py,
// as far as byte_products_mma.cuh and byte_products_wgmma.cuh have it in common.
//
// A plane holds the residues of a factor's entry for one modulus, in blocks of 128 lines and 64
// depths, each block as shared memory has it: [line][64 bytes], whose four pieces of 16 are changed
// about by bits 1 and 2 of the line, so that eight lines' same pieces are in all banks. wgmma calls
// that the 64-byte swizzle. Blocks lie one after another along the depth, then along the lines, so
// a tile's next step is the next run of memory. Lines are filled up to whole tiles, and nobody
// writes what fills them: it only reaches sums that are not stored.
//
// A tile is 128 x 256 sums for one modulus. It leaves as t_i, bytes, by way of shared memory.
#pragma once

#include "kernels/cuda/tensor_core.cuh"
#include "kernels/gemm/tiled.cuh"

namespace veil {

constexpr int kByteStep = 64, kByteLines = 128;  // depths and lines of a block
constexpr int kByteBlock = kByteStep * kByteLines;
constexpr int kByteRows = 128, kByteColumns = 256;                  // of a tile
constexpr int kByteStage = (kByteRows + kByteColumns) * kByteStep;  // a step of both factors
constexpr int kByteOutPitch = kByteColumns + 16;  // bytes; rows of a tile begin in different banks

// Where a piece of 16 depths of a line is in a block.
__device__ __forceinline__ int place_in_block(int line, int piece) {
  return line * kByteStep + ((piece ^ line >> 1 & 3) << 4);
}

// Bytes of a plane of so many lines, filled up, and depths, whole steps.
__device__ __forceinline__ int64_t byte_plane(int64_t lines, int64_t depth) {
  return (lines + kByteColumns - 1) / kByteColumns * kByteColumns * depth;
}

// Where depth k of a line is in a plane of so many depths.
__device__ __forceinline__ int64_t place_in_plane(int64_t line, int64_t k, int64_t depth) {
  const int within = static_cast<int>(k % kByteStep);
  return line / kByteLines * kByteLines * depth + k / kByteStep * kByteBlock +
         place_in_block(static_cast<int>(line % kByteLines), within / 16) + within % 16;
}

// What makes t_i of a sum.
struct Scale {
  uint32_t m;
  uint32_t begin;    // floor(2^31 / m) m, where sums begin
  uint32_t powers;   // 256^j (M / m)^-1 mod m, j = 0 .. 3, a byte each
  uint32_t inverse;  // ceil(2^32 / m)
};

// r (M / m)^-1 mod m in [0, m), for a sum that is not negative. The dot product is below 2^18, and
// times `inverse`, modulo 2^32, it is above 2^32 t / m by less than 2^18: m times that, and
// 2^-32, is above t by less than 2^-6.
__device__ __forceinline__ uint32_t scaled_residue(uint32_t r, const Scale& scale) {
  const uint32_t sum = __dp4a(r, scale.powers, 0u);
  return __umulhi(sum * scale.inverse, scale.m);
}

struct BlockSteps;

// The planes of both factors, and [plane][row][pitch] bytes of t_i; pitch is a multiple of 16.
struct ByteProduct {
  using Right = BlockSteps;
  uint64_t out, left, right;
  int64_t planes, rows, columns, depth, pitch;

  // Tiles along the rows, where so many of them are made together; along the columns; and in all.
  __device__ __forceinline__ int64_t down(int together) const {
    return (rows + together * kByteRows - 1) / (together * kByteRows);
  }
  __device__ __forceinline__ int64_t across() const {
    return (columns + kByteColumns - 1) / kByteColumns;
  }
  __device__ __forceinline__ int64_t tiles(int together) const {
    return planes * down(together) * across();
  }
  __device__ __forceinline__ int steps() const { return static_cast<int>(depth / kByteStep); }
};

// One of the tiles.
struct ByteTile {
  int64_t plane, row, column;

  // Number `rank` of those that are made together.
  __device__ __forceinline__ ByteTile(const ByteProduct& product, int64_t number, int together,
                                      int rank) {
    const int64_t each = product.down(together) * product.across();
    plane = number / each;
    const TilePlace place =
        place_of(number - plane * each, product.down(together), product.across());
    row = (place.row * together + rank) * kByteRows, column = place.column * kByteColumns;
  }

  // The first block of the left factor.
  __device__ __forceinline__ const uint8_t* left(const ByteProduct& p) const {
    return reinterpret_cast<const uint8_t*>(p.left) + plane * byte_plane(p.rows, p.depth) +
           row * p.depth;
  }
};

// The steps of a tile's right factor, one after another: where the runs of memory begin that a step
// is, and where a piece of 16 depths of a line is among them. Here they are blocks.
struct BlockSteps {
  static constexpr int kRuns = kByteColumns / kByteLines, kRunBytes = kByteBlock;
  static constexpr bool kIsSwizzled = true;
  const uint8_t* from;
  int64_t next;  // from 128 columns to the next ones

  // From run number `first` of each step on.
  __device__ __forceinline__ BlockSteps(const ByteProduct& p, const ByteTile& tile, int first)
      : from(reinterpret_cast<const uint8_t*>(p.right) +
             tile.plane * byte_plane(p.columns, p.depth) +
             (tile.column + first * kByteLines) * p.depth),
        next(kByteLines * p.depth) {}
  __device__ __forceinline__ const uint8_t* run(int i) const { return from + i * next; }
  __device__ __forceinline__ void advance() { from += kByteBlock; }
  static __device__ __forceinline__ int place(int line, int piece) {
    return place_in_block(line, piece);
  }
};

// t_i of two neighbouring columns, to a tile in shared memory.
__device__ __forceinline__ void put_residues(uint8_t* tile, int row, int column, int32_t r,
                                             int32_t next, const Scale& scale) {
  constexpr unsigned kLowBytes = 0x40;
  const uint32_t both = __byte_perm(scaled_residue(static_cast<uint32_t>(r), scale),
                                    scaled_residue(static_cast<uint32_t>(next), scale), kLowBytes);
  *reinterpret_cast<uint16_t*>(tile + row * kByteOutPitch + column) = static_cast<uint16_t>(both);
}

// `Rows` rows of a tile, from `first` of it on, to memory by `Threads` threads.
template <int Rows, int Threads>
__device__ __forceinline__ void store_residues(const uint8_t* from, const ByteProduct& product,
                                               const ByteTile& tile, int first, int thread) {
  constexpr int kPieces = kByteColumns / 16;
  const int64_t row = tile.row + first + thread / kPieces;
  const int64_t column = tile.column + thread % kPieces * 16;
  const int64_t end = column < product.pitch ? product.rows : 0;
  const uint8_t* piece = from + thread / kPieces * kByteOutPitch + thread % kPieces * 16;
  auto* out = reinterpret_cast<uint8_t*>(product.out) +
              (tile.plane * product.rows + row) * product.pitch + column;
#pragma unroll
  for (int i = 0; i < Rows; i += Threads / kPieces) {
    if (row + i < end) {
      *reinterpret_cast<uint4*>(out + i * product.pitch) =
          *reinterpret_cast<const uint4*>(piece + i * kByteOutPitch);
    }
  }
  __syncwarp();  // the barrier that follows is for whole warps
}

}  // namespace veil
