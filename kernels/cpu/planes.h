// Words to and from bit planes: bit e of word e / 64 of a plane belongs to element e.
//
// Lengths are in 64-element words of a plane; word arrays are aligned to 64 bytes and padded to a
// multiple of 64 elements.
#pragma once
#include <cstdint>

#include "kernels/cpu/bit_matrix.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace veil {

// Bit `bit` of 64 words.
template <class T>
inline uint64_t plane_word(const T* words, uint32_t bit) {
  uint64_t plane = 0;
#if defined(__AVX512F__)
  constexpr int kLanes = 64 / sizeof(T);
  for (int i = 0; i < 64; i += kLanes) {
    const __m512i v = _mm512_load_si512(words + i);
    if constexpr (sizeof(T) == 8) {
      plane |= uint64_t{_mm512_test_epi64_mask(v, _mm512_set1_epi64(int64_t{1} << bit))} << i;
    } else {
      plane |= uint64_t{_mm512_test_epi32_mask(v, _mm512_set1_epi32(int32_t{1} << bit))} << i;
    }
  }
#elif defined(__AVX2__)
  const __m128i up = _mm_cvtsi32_si128(static_cast<int>(8 * sizeof(T) - 1 - bit));
  constexpr int kLanes = 32 / sizeof(T);
  for (int i = 0; i < 64; i += kLanes) {
    const __m256i v = _mm256_load_si256(reinterpret_cast<const __m256i*>(words + i));
    const unsigned signs = sizeof(T) == 8
                               ? _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_sll_epi64(v, up)))
                               : _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_sll_epi32(v, up)));
    plane |= uint64_t{signs} << i;
  }
#else
  for (int i = 0; i < 64; ++i) plane |= uint64_t{(words[i] >> bit) & 1} << i;
#endif
  return plane;
}

// Planes j < count at planes + j * step (in 64-bit words) <- bit `low` + j of the words.
template <class T>
inline void words_to_planes(uint64_t* planes, int64_t step, const T* words, int64_t length,
                            uint32_t low, uint32_t count) {
  constexpr uint32_t kFew =
      5;  // a transposition makes all 64 planes at about the price of this many
  if (count <= kFew) {
    for (uint32_t j = 0; j < count; ++j) {
      for (int64_t w = 0; w < length; ++w)
        planes[j * step + w] = plane_word(words + 64 * w, low + j);
    }
    return;
  }
  alignas(64) uint64_t square[64];
  for (int64_t w = 0; w < length; ++w) {
    for (int i = 0; i < 64; ++i) square[i] = words[64 * w + i];
    transpose_64x64(square);
    for (uint32_t j = 0; j < count; ++j) planes[j * step + w] = square[low + j];
  }
}

// Words <- sum over j < count of the bit of plane j at planes + j * step, shifted up by `low` + j.
template <class T>
inline void planes_to_words(T* words, const uint64_t* planes, int64_t step, int64_t length,
                            uint32_t low, uint32_t count) {
  alignas(64) uint64_t square[64];
  for (int64_t w = 0; w < length; ++w) {
    for (int i = 0; i < 64; ++i) square[i] = 0;
    for (uint32_t j = 0; j < count; ++j) square[low + j] = planes[j * step + w];
    transpose_64x64(square);
    for (int i = 0; i < 64; ++i) words[64 * w + i] = static_cast<T>(square[i]);
  }
}

// out <- a where the bit is 1, else b; any of the arrays may be the same.
template <class T>
inline void select_words(T* out, const uint64_t* bits, const T* a, const T* b, int64_t length) {
#if defined(__AVX512F__)
  constexpr int kLanes = 64 / sizeof(T);
  for (int64_t w = 0; w < length; ++w) {
    for (int i = 0; i < 64; i += kLanes) {
      const __m512i x = _mm512_load_si512(a + 64 * w + i), y = _mm512_load_si512(b + 64 * w + i);
      const uint64_t mask = bits[w] >> i;
      _mm512_store_si512(out + 64 * w + i,
                         sizeof(T) == 8
                             ? _mm512_mask_blend_epi64(static_cast<__mmask8>(mask), y, x)
                             : _mm512_mask_blend_epi32(static_cast<__mmask16>(mask), y, x));
    }
  }
#else
  for (int64_t w = 0; w < length; ++w) {
    for (int i = 0; i < 64; ++i) {
      const T mask = -static_cast<T>((bits[w] >> i) & 1);
      const int64_t e = 64 * w + i;
      out[e] = b[e] ^ ((a[e] ^ b[e]) & mask);
    }
  }
#endif
}

}  // namespace veil
