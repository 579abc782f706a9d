// Transposition of 64 x 64 bits: what turns 64 words into 64 bit planes and back.
#pragma once
#include <cstdint>

#if defined(__AVX512VBMI__) && defined(__GFNI__)
#include <immintrin.h>
#endif

namespace veil {

#if defined(__AVX512VBMI__) && defined(__GFNI__)

// Byte b of word e (of eight) to place 8b + 7 - e: eight 8 x 8 bit matrices, their rows reversed as
// gf2p8affineqb wants them, which then transposes each by multiplying the unit vectors with it.
inline __m512i transpose_bytes_and_bits(__m512i words) {
  alignas(64) static constexpr uint8_t kRows[64] = {
      56, 48, 40, 32, 24, 16, 8,  0,  57, 49, 41, 33, 25, 17, 9,  1,  58, 50, 42, 34, 26, 18,
      10, 2,  59, 51, 43, 35, 27, 19, 11, 3,  60, 52, 44, 36, 28, 20, 12, 4,  61, 53, 45, 37,
      29, 21, 13, 5,  62, 54, 46, 38, 30, 22, 14, 6,  63, 55, 47, 39, 31, 23, 15, 7};
  const __m512i rows = _mm512_permutexvar_epi8(_mm512_load_si512(kRows), words);
  const __m512i units = _mm512_set1_epi64(static_cast<int64_t>(0x8040201008040201));
  return _mm512_gf2p8affine_epi64_epi8(units, rows, 0);
}

// a[i] bit j <-> a[j] bit i, in place; `a` aligned to 64 bytes.
inline void transpose_64x64(uint64_t* a) {
  __m512i byte[8], pair[8], quad[8];
  for (int g = 0; g < 8; ++g) byte[g] = transpose_bytes_and_bits(_mm512_load_si512(a + 8 * g));
  // Byte p of byte[g] belongs to plane p: interleave the eight so that a plane's bytes meet.
  for (int g = 0; g < 4; ++g) {
    pair[g] = _mm512_unpacklo_epi8(byte[2 * g], byte[2 * g + 1]);
    pair[g + 4] = _mm512_unpackhi_epi8(byte[2 * g], byte[2 * g + 1]);
  }
  for (int h = 0; h < 2; ++h) {
    for (int g = 0; g < 2; ++g) {
      quad[4 * h + g] = _mm512_unpacklo_epi16(pair[4 * h + 2 * g], pair[4 * h + 2 * g + 1]);
      quad[4 * h + g + 2] = _mm512_unpackhi_epi16(pair[4 * h + 2 * g], pair[4 * h + 2 * g + 1]);
    }
  }
  for (int q = 0; q < 4; ++q) {
    const __m512i low = _mm512_unpacklo_epi32(quad[2 * q], quad[2 * q + 1]);
    const __m512i high = _mm512_unpackhi_epi32(quad[2 * q], quad[2 * q + 1]);
    for (int k = 0; k < 2; ++k) {  // lane L holds planes 16 L + 4 q + 2 k and the next
      const __m512i planes = k ? high : low;
      uint64_t* to = a + 4 * q + 2 * k;
      _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm512_castsi512_si128(planes));
      _mm_store_si128(reinterpret_cast<__m128i*>(to + 16), _mm512_extracti64x2_epi64(planes, 1));
      _mm_store_si128(reinterpret_cast<__m128i*>(to + 32), _mm512_extracti64x2_epi64(planes, 2));
      _mm_store_si128(reinterpret_cast<__m128i*>(to + 48), _mm512_extracti64x2_epi64(planes, 3));
    }
  }
}

#else

// Swaps the off-diagonal J x J blocks of every 2J x 2J block on the diagonal.
template <int J>
inline void swap_blocks(uint64_t* a) {
  constexpr uint64_t kLow = ~uint64_t{0} / ((uint64_t{1} << J) + 1);
  for (int base = 0; base < 64; base += 2 * J) {
    for (int k = base; k < base + J; ++k) {
      const uint64_t t = ((a[k] >> J) ^ a[k + J]) & kLow;
      a[k] ^= t << J;
      a[k + J] ^= t;
    }
  }
}

// a[i] bit j <-> a[j] bit i, in place; `a` aligned to 64 bytes.
inline void transpose_64x64(uint64_t* a) {
  swap_blocks<32>(a);
  swap_blocks<16>(a);
  swap_blocks<8>(a);
  swap_blocks<4>(a);
  swap_blocks<2>(a);
  swap_blocks<1>(a);
}

#endif

}  // namespace veil
