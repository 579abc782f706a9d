// The innermost products with AVX-512: a tile of the output stays in registers while the depth
// runs.
//
// vpmullq multiplies 64-bit lanes, in one micro-operation on AMD and in three on Intel. There
// 52-bit multiply-adds do the same in two and a half, and in one for rings of up to 52 bits.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "kernels/gemm/cpu/stepwise.h"

namespace veil {

// Eight words as 64-bit lanes, and back; what a 32-bit word does not hold is cut off.
inline __m512i load_lanes(const uint64_t* from) { return _mm512_loadu_si512(from); }
inline __m512i load_lanes(const uint32_t* from) {
  return _mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline void store_lanes(uint64_t* to, __m512i v) { _mm512_storeu_si512(to, v); }
inline void store_lanes(uint32_t* to, __m512i v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi64_epi32(v));
}

// Asks for the rows of an output tile before the depth runs, so that adding to them does not wait.
template <int Rows, class T>
inline void prefetch_rows(const T* out, int64_t stride, int64_t bytes) {
  for (int i = 0; i < Rows; ++i) {
    const auto* row = reinterpret_cast<const char*>(out + i * stride);
    for (int64_t b = 0; b < bytes; b += 64) _mm_prefetch(row + b, _MM_HINT_T0);
  }
}

template <class T>
inline void put_lanes(T* to, __m512i v, bool accumulate) {
  store_lanes(to, accumulate ? _mm512_add_epi64(v, load_lanes(to)) : v);
}

// Rings of up to 52 bits: vpmadd52luq is the whole product, since it takes the low 52 bits of its
// operands and adds the low 52 bits of their product.
struct MultiplyAdd52 {
  static __m512i step(__m512i sum, __m512i left, __m512i right) {
    return _mm512_madd52lo_epu64(sum, left, right);
  }
};

// Rings of up to 64 bits, where vpmullq is quick.
struct MultiplyAdd64 {
  static __m512i step(__m512i sum, __m512i left, __m512i right) {
    return _mm512_add_epi64(sum, _mm512_mullo_epi64(left, right));
  }
};

// One multiply-add a product; operands are packed as 64-bit lanes.
template <class T, class MultiplyAdd>
struct MicroLanes : Stepwise<MicroLanes<T, MultiplyAdd>, 8, 24> {
  using Word = T;
  static constexpr int kRows = 8, kColumns = 24, kVectors = kColumns / 8;
  static constexpr int kBytesA = 8, kBytesB = 8;  // of one packed element

  static void pack_a(uint8_t* panel, int64_t k, const T* values) {
    store_lanes(reinterpret_cast<uint64_t*>(panel) + k * kRows, load_lanes(values));
  }

  static void pack_b(uint8_t* panel, int64_t k, const T* values) {
    auto* to = reinterpret_cast<uint64_t*>(panel) + k * kColumns;
    for (int v = 0; v < kVectors; ++v) store_lanes(to + 8 * v, load_lanes(values + 8 * v));
  }

  static void run(int64_t depth, const uint8_t* a_panel, const uint8_t* b_panel, T* out,
                  int64_t stride, bool accumulate) {
    const auto* a = reinterpret_cast<const int64_t*>(a_panel);
    const auto* b = reinterpret_cast<const uint64_t*>(b_panel);
    prefetch_rows<kRows>(out, stride, kColumns * sizeof(T));
    __m512i sum[kRows][kVectors];
    for (auto& row : sum) {
      for (auto& lanes : row) lanes = _mm512_setzero_si512();
    }
    for (int64_t k = 0; k < depth; ++k, a += kRows, b += kColumns) {
      __m512i right[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) right[v] = load_lanes(b + 8 * v);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const __m512i left = _mm512_set1_epi64(a[i]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sum[i][v] = MultiplyAdd::step(sum[i][v], left, right[v]);
        }
      }
    }
    for (int i = 0; i < kRows; ++i) {
      for (int v = 0; v < kVectors; ++v) put_lanes(out + i * stride + 8 * v, sum[i][v], accumulate);
    }
  }
};

// Rings of up to 64 bits, where vpmullq is slow. With a = a0 + 2^52 a1 and b likewise, modulo 2^64:
//   a b = low(a0 b0) + 2^52 (high(a0 b0) + a0 b1 + a1 b0)
// where low and high are the 52-bit halves that IFMA makes, and of the second term only 12 bits
// count: its two products are of 12-bit numbers, and one vpdpwssd adds both for 16 columns. A
// packed element is its 64-bit word, and a pair of 16-bit halves: (a0 mod 2^12, a1) on the left,
// (b1, b0 mod 2^12) on the right.
struct Micro64 : Stepwise<Micro64, 5, 16> {
  using Word = uint64_t;
  static constexpr int kRows = 5, kColumns = 16;
  static constexpr int kBytesA = 12, kBytesB = 12;

  // A panel's step of the depth: the words, then the pairs.
  static constexpr int kStepA = kRows * kBytesA, kStepB = kColumns * kBytesB;

  static void pack_a(uint8_t* panel, int64_t k, const uint64_t* values) {
    auto* words = reinterpret_cast<uint64_t*>(panel + k * kStepA);
    auto* pairs = reinterpret_cast<uint32_t*>(words + kRows);
    for (int i = 0; i < kRows; ++i) {
      words[i] = values[i];
      pairs[i] = static_cast<uint32_t>((values[i] & 0xfff) | values[i] >> 52 << 16);
    }
  }

  static void pack_b(uint8_t* panel, int64_t k, const uint64_t* values) {
    uint8_t* to = panel + k * kStepB;
    const __m512i low = load_lanes(values), high = load_lanes(values + 8);
    _mm512_storeu_si512(to, low);
    _mm512_storeu_si512(to + 64, high);
    const __m512i mask = _mm512_set1_epi64(0xfff);
    auto pairs = [&](__m512i v) {
      const __m512i above = _mm512_slli_epi64(_mm512_and_si512(v, mask), 16);
      return _mm512_cvtepi64_epi32(_mm512_or_si512(_mm512_srli_epi64(v, 52), above));
    };
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 128), pairs(low));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 160), pairs(high));
  }

  static void run(int64_t depth, const uint8_t* a, const uint8_t* b, uint64_t* out, int64_t stride,
                  bool accumulate) {
    prefetch_rows<kRows>(out, stride, kColumns * 8);
    __m512i low[kRows][2], high[kRows][2], cross[kRows];
    for (int i = 0; i < kRows; ++i) {
      low[i][0] = low[i][1] = high[i][0] = high[i][1] = cross[i] = _mm512_setzero_si512();
    }
    for (int64_t k = 0; k < depth; ++k, a += kStepA, b += kStepB) {
      const auto* words = reinterpret_cast<const int64_t*>(a);
      const auto* pairs = reinterpret_cast<const int32_t*>(a + 8 * kRows);
      const __m512i right0 = _mm512_loadu_si512(b), right1 = _mm512_loadu_si512(b + 64);
      const __m512i right_pairs = _mm512_loadu_si512(b + 128);
#pragma GCC unroll 5
      for (int i = 0; i < kRows; ++i) {
        const __m512i left = _mm512_set1_epi64(words[i]);
        low[i][0] = _mm512_madd52lo_epu64(low[i][0], left, right0);
        low[i][1] = _mm512_madd52lo_epu64(low[i][1], left, right1);
        high[i][0] = _mm512_madd52hi_epu64(high[i][0], left, right0);
        high[i][1] = _mm512_madd52hi_epu64(high[i][1], left, right1);
        cross[i] = _mm512_dpwssd_epi32(cross[i], _mm512_set1_epi32(pairs[i]), right_pairs);
      }
    }
    for (int i = 0; i < kRows; ++i) {
      const __m512i cross0 = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(cross[i]));
      const __m512i cross1 = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(cross[i], 1));
      const __m512i top0 = _mm512_slli_epi64(_mm512_add_epi64(high[i][0], cross0), 52);
      const __m512i top1 = _mm512_slli_epi64(_mm512_add_epi64(high[i][1], cross1), 52);
      put_lanes(out + i * stride, _mm512_add_epi64(low[i][0], top0), accumulate);
      put_lanes(out + i * stride + 8, _mm512_add_epi64(low[i][1], top1), accumulate);
    }
  }
};

}  // namespace veil
