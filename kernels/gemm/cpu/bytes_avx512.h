// Words taken apart into bytes, 64 at a time, in the two orders that AMX's tiles want.
//
// Byte l of a word is its limb l. A square is 16 lanes by 64 steps of the depth, 1 KiB for each
// limb: by rows, [lane][step], as a left tile lies, or by quads, [step / 4][lane][step % 4], as a
// right one does. One is the other with its 16 x 16 dwords transposed.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace veil {

constexpr int kSquareLanes = 16, kSquareSteps = 64, kSquareBytes = kSquareLanes * kSquareSteps;

// Positions for vpermb: byte l of word w goes to byte w of group l.
template <class T>
struct ByteGroups {
  uint8_t from[64];
  constexpr ByteGroups() : from() {
    constexpr int kWords = 64 / sizeof(T);
    for (int i = 0; i < 64; ++i) from[i] = i % kWords * sizeof(T) + i / kWords;
  }
};

template <class T>
alignas(64) inline constexpr ByteGroups<T> kByteGroups{};

// `count` words of one lane, as 64 bytes of each of `Limbs` limbs at to + l * kSquareBytes.
template <int Limbs>
inline void row_of_bytes(uint8_t* to, const uint64_t* from, int64_t count) {
  const __m512i groups = _mm512_loadu_si512(kByteGroups<uint64_t>.from);
  __m512i word[8], pair[8], quad[8];
  for (int i = 0; i < 8; ++i) {
    const int64_t left = count - 8 * i;
    const __mmask8 mask = left >= 8 ? 0xff : left <= 0 ? 0 : (1 << left) - 1;
    word[i] = _mm512_permutexvar_epi8(groups, _mm512_maskz_loadu_epi64(mask, from + 8 * i));
  }
  // A transposition of 8 x 8 qwords.
  for (int i = 0; i < 8; i += 2) {
    pair[i] = _mm512_unpacklo_epi64(word[i], word[i + 1]);
    pair[i + 1] = _mm512_unpackhi_epi64(word[i], word[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int odd = 0; odd < 2; ++odd) {
      const __m512i a = pair[i + odd], b = pair[i + 2 + odd];
      quad[i + odd] = _mm512_shuffle_i64x2(a, b, 0x88);      // limbs 0 or 1, and 4 or 5
      quad[i + 2 + odd] = _mm512_shuffle_i64x2(a, b, 0xdd);  // limbs 2 or 3, and 6 or 7
    }
  }
  for (int i = 0; i < 4; ++i) {
    const __m512i low = _mm512_shuffle_i64x2(quad[i], quad[i + 4], 0x88);
    const __m512i high = _mm512_shuffle_i64x2(quad[i], quad[i + 4], 0xdd);
    if (i < Limbs) _mm512_store_si512(to + i * kSquareBytes, low);
    if (i + 4 < Limbs) _mm512_store_si512(to + (i + 4) * kSquareBytes, high);
  }
}

template <int Limbs>
inline void row_of_bytes(uint8_t* to, const uint32_t* from, int64_t count) {
  const __m512i groups = _mm512_loadu_si512(kByteGroups<uint32_t>.from);
  __m512i word[4];
  for (int i = 0; i < 4; ++i) {
    const int64_t left = count - 16 * i;
    const __mmask16 mask = left >= 16 ? 0xffff : left <= 0 ? 0 : (1 << left) - 1;
    word[i] = _mm512_permutexvar_epi8(groups, _mm512_maskz_loadu_epi32(mask, from + 16 * i));
  }
  // A transposition of 4 x 4 times 16 bytes.
  const __m512i a = _mm512_shuffle_i64x2(word[0], word[1], 0x44);
  const __m512i b = _mm512_shuffle_i64x2(word[2], word[3], 0x44);
  const __m512i c = _mm512_shuffle_i64x2(word[0], word[1], 0xee);
  const __m512i d = _mm512_shuffle_i64x2(word[2], word[3], 0xee);
  const __m512i limbs[4] = {_mm512_shuffle_i64x2(a, b, 0x88), _mm512_shuffle_i64x2(a, b, 0xdd),
                            _mm512_shuffle_i64x2(c, d, 0x88), _mm512_shuffle_i64x2(c, d, 0xdd)};
  for (int l = 0; l < Limbs; ++l) _mm512_store_si512(to + l * kSquareBytes, limbs[l]);
}

// Four steps of the depth of 16 lanes each: the bytes of a lane's four words side by side, 64 bytes
// of each limb at to + l * kSquareBytes.
template <int Limbs>
inline void quads_of_bytes(uint8_t* to, const uint64_t (*steps)[kSquareLanes]) {
  __m512i low[2][2], high[2][2];  // half of the lanes; limbs 0 and 1, or 2 and 3, ...
  for (int half = 0; half < 2; ++half) {
    __m512i w[4];
    for (int k = 0; k < 4; ++k) w[k] = _mm512_load_si512(steps[k] + 8 * half);
    const __m512i even01 = _mm512_unpacklo_epi8(w[0], w[1]);
    const __m512i even23 = _mm512_unpacklo_epi8(w[2], w[3]);
    const __m512i odd01 = _mm512_unpackhi_epi8(w[0], w[1]);
    const __m512i odd23 = _mm512_unpackhi_epi8(w[2], w[3]);
    const __m512i even = _mm512_unpacklo_epi16(even01, even23);  // limbs 0 to 3
    const __m512i odd = _mm512_unpacklo_epi16(odd01, odd23);
    low[half][0] = _mm512_unpacklo_epi32(even, odd);
    low[half][1] = _mm512_unpackhi_epi32(even, odd);
    const __m512i even_high = _mm512_unpackhi_epi16(even01, even23);  // limbs 4 to 7
    const __m512i odd_high = _mm512_unpackhi_epi16(odd01, odd23);
    high[half][0] = _mm512_unpacklo_epi32(even_high, odd_high);
    high[half][1] = _mm512_unpackhi_epi32(even_high, odd_high);
  }
  const __m512i first = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
  const __m512i second = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
  for (int l = 0; l < Limbs; ++l) {
    const auto& from = l < 4 ? low : high;
    const int pair = l % 4 / 2;
    const __m512i order = l % 2 == 0 ? first : second;
    const __m512i all = _mm512_permutex2var_epi64(from[0][pair], order, from[1][pair]);
    _mm512_store_si512(to + l * kSquareBytes, all);
  }
}

template <int Limbs>
inline void quads_of_bytes(uint8_t* to, const uint32_t (*steps)[kSquareLanes]) {
  __m512i w[4];
  for (int k = 0; k < 4; ++k) w[k] = _mm512_load_si512(steps[k]);
  const __m512i low01 = _mm512_unpacklo_epi8(w[0], w[1]), low23 = _mm512_unpacklo_epi8(w[2], w[3]);
  const __m512i high01 = _mm512_unpackhi_epi8(w[0], w[1]);
  const __m512i high23 = _mm512_unpackhi_epi8(w[2], w[3]);
  // All limbs of each fourth lane.
  const __m512i a = _mm512_unpacklo_epi16(low01, low23), b = _mm512_unpackhi_epi16(low01, low23);
  const __m512i c = _mm512_unpacklo_epi16(high01, high23);
  const __m512i d = _mm512_unpackhi_epi16(high01, high23);
  const __m512i ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
  const __m512i ab_high = _mm512_unpackhi_epi32(a, b), cd_high = _mm512_unpackhi_epi32(c, d);
  const __m512i limbs[4] = {_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd),
                            _mm512_unpacklo_epi64(ab_high, cd_high),
                            _mm512_unpackhi_epi64(ab_high, cd_high)};
  for (int l = 0; l < Limbs; ++l) _mm512_store_si512(to + l * kSquareBytes, limbs[l]);
}

// One limb's square from rows to quads, or back, in place.
inline void transpose_square(uint8_t* square) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = _mm512_load_si512(square + 64 * i);
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  // Now 16-byte piece q of a[4 i + j] is column 4 q + j of rows 4 i to 4 i + 3.
  for (int j = 0; j < 4; ++j) {
    const __m512i even0 = _mm512_shuffle_i32x4(a[j], a[4 + j], 0x88);
    const __m512i odd0 = _mm512_shuffle_i32x4(a[j], a[4 + j], 0xdd);
    const __m512i even1 = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0x88);
    const __m512i odd1 = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0xdd);
    b[j] = _mm512_shuffle_i32x4(even0, even1, 0x88);
    b[8 + j] = _mm512_shuffle_i32x4(even0, even1, 0xdd);
    b[4 + j] = _mm512_shuffle_i32x4(odd0, odd1, 0x88);
    b[12 + j] = _mm512_shuffle_i32x4(odd0, odd1, 0xdd);
  }
  for (int i = 0; i < 16; ++i) _mm512_store_si512(square + 64 * i, b[i]);
}

}  // namespace veil
