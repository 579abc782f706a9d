// Ring words taken apart into balanced limbs, four at a time.
#pragma once

#include "kernels/cuda/prelude.cuh"

namespace veil {

constexpr int kQuad = 4;  // depths of a line that a thread takes at a time

// The four bytes that each of `Count` limbs has of four words: a transposition of bytes.
template <int Count>
__device__ __forceinline__ void transpose_bytes(const uint32_t (&words)[kQuad], uint32_t* limbs) {
  const uint32_t low01 = __byte_perm(words[0], words[1], 0x5140);
  const uint32_t low23 = __byte_perm(words[2], words[3], 0x5140);
  limbs[0] = __byte_perm(low01, low23, 0x5410);
  if (Count > 1) limbs[1] = __byte_perm(low01, low23, 0x7632);
  const uint32_t high01 = __byte_perm(words[0], words[1], 0x7362);
  const uint32_t high23 = __byte_perm(words[2], words[3], 0x7362);
  if (Count > 2) limbs[2] = __byte_perm(high01, high23, 0x5410);
  if (Count > 3) limbs[3] = __byte_perm(high01, high23, 0x7632);
}

// Balanced limbs of four words. With y = x + sum of 128 256^i, limb i is byte i of y less 128,
// which as a signed byte is that byte with its top bit turned.
template <int Limbs>
__device__ __forceinline__ void split(const uint32_t (&x)[kQuad], uint32_t (&limbs)[Limbs]) {
  static_assert(Limbs <= 4);
  uint32_t y[kQuad];
#pragma unroll
  for (int d = 0; d < kQuad; ++d) y[d] = x[d] + 0x80808080u ^ 0x80808080u;
  transpose_bytes<Limbs>(y, limbs);
}

template <int Limbs>
__device__ __forceinline__ void split(const uint64_t (&x)[kQuad], uint32_t (&limbs)[Limbs]) {
  static_assert(Limbs > 4 && Limbs <= 8);
  constexpr uint64_t kHalves = 0x8080808080808080u;
  uint32_t low[kQuad], high[kQuad];
#pragma unroll
  for (int d = 0; d < kQuad; ++d) {
    const uint64_t y = x[d] + kHalves ^ kHalves;
    low[d] = static_cast<uint32_t>(y);
    high[d] = static_cast<uint32_t>(y >> 32);
  }
  transpose_bytes<4>(low, limbs);
  transpose_bytes<Limbs - 4>(high, limbs + 4);
}

}  // namespace veil
