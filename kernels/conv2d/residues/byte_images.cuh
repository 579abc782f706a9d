// Images as right factors of products of bytes (kernels/gemm/residues/byte_products.cuh), so that a
// step of a tile is four runs of memory for convolutions too:
// kernels/conv2d/residues/image_planes.py has the layout and says why.
#pragma once

#include "kernels/gemm/residues/byte_products.cuh"

namespace veil {

constexpr int kMostTaps = 64;  // of a kernel; kernels/conv2d/residues/residues.py has it too
constexpr int kPieceBytes = 16;

struct ImageSteps;

// Columns are lines of the images, which taps read as many bytes behind their place; depths are all
// taps of 64 channels, then those of the next 64. Bytes from plane to plane, from 64 channels to
// the next and from 16 to the next.
struct ByteConvolution : ByteProduct {
  using Right = ImageSteps;
  int64_t plane, block, piece;
  int64_t taps;
  int64_t tap[kMostTaps];
};

// 64 channels of a tap: a run of the tile's lines for each piece of 16.
struct ImageSteps {
  static constexpr int kRuns = kByteStep / kPieceBytes, kRunBytes = kByteColumns * kPieceBytes;
  static constexpr bool kIsSwizzled = false;
  const ByteConvolution& product;
  const uint8_t* block;
  int tap = 0;

  // From run number `first` of each step on.
  __device__ __forceinline__ ImageSteps(const ByteConvolution& p, const ByteTile& tile, int first)
      : product(p),
        block(reinterpret_cast<const uint8_t*>(p.right) + tile.plane * p.plane + first * p.piece +
              tile.column * kPieceBytes) {}
  __device__ __forceinline__ const uint8_t* run(int i) const {
    return block + product.tap[tap] + i * product.piece;
  }
  __device__ __forceinline__ void advance() {
    if (++tap < product.taps) return;
    tap = 0;
    block += product.block;
  }
  static __device__ __forceinline__ int place(int line, int piece) {
    return piece * kRunBytes + line * kPieceBytes;
  }
};

}  // namespace veil
