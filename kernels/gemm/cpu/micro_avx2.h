// The innermost products with AVX2, which multiplies 32-bit halves.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "kernels/gemm/cpu/stepwise.h"

namespace veil {

inline __m256i load_ymm(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

inline void store_ymm(void* to, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(to), v); }

// Modulo 2^32: eight words a vector.
struct Micro32 : Stepwise<Micro32, 4, 16> {
  using Word = uint32_t;
  static constexpr int kRows = 4, kColumns = 16, kVectors = 2;
  static constexpr int kBytesA = 4, kBytesB = 4;

  static void pack_a(uint8_t* panel, int64_t k, const uint32_t* values) {
    auto* to = reinterpret_cast<uint32_t*>(panel) + k * kRows;
    for (int i = 0; i < kRows; ++i) to[i] = values[i];
  }

  static void pack_b(uint8_t* panel, int64_t k, const uint32_t* values) {
    auto* to = reinterpret_cast<uint32_t*>(panel) + k * kColumns;
    for (int v = 0; v < kVectors; ++v) store_ymm(to + 8 * v, load_ymm(values + 8 * v));
  }

  static void run(int64_t depth, const uint8_t* a_panel, const uint8_t* b_panel, uint32_t* out,
                  int64_t stride, bool accumulate) {
    const auto* a = reinterpret_cast<const int32_t*>(a_panel);
    const auto* b = reinterpret_cast<const uint32_t*>(b_panel);
    __m256i sum[kRows][kVectors];
    for (auto& row : sum) {
      for (auto& lanes : row) lanes = _mm256_setzero_si256();
    }
    for (int64_t k = 0; k < depth; ++k, a += kRows, b += kColumns) {
      const __m256i right[kVectors] = {load_ymm(b), load_ymm(b + 8)};
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        const __m256i left = _mm256_set1_epi32(a[i]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          sum[i][v] = _mm256_add_epi32(sum[i][v], _mm256_mullo_epi32(left, right[v]));
        }
      }
    }
    for (int i = 0; i < kRows; ++i) {
      for (int v = 0; v < kVectors; ++v) {
        uint32_t* to = out + i * stride + 8 * v;
        store_ymm(to, accumulate ? _mm256_add_epi32(sum[i][v], load_ymm(to)) : sum[i][v]);
      }
    }
  }
};

// Modulo 2^64: a b = a0 b0 + 2^32 (a0 b1 + a1 b0) in 32-bit halves. vpmuludq makes the first
// product; vpmulld makes the other two at once, from the right factor with its halves exchanged,
// and they are added up apart until the end. A packed element on the right is the word in both
// forms.
struct Micro64 : Stepwise<Micro64, 5, 4> {
  using Word = uint64_t;
  static constexpr int kRows = 5, kColumns = 4;
  static constexpr int kBytesA = 8, kBytesB = 16;

  static void pack_a(uint8_t* panel, int64_t k, const uint64_t* values) {
    auto* to = reinterpret_cast<uint64_t*>(panel) + k * kRows;
    for (int i = 0; i < kRows; ++i) to[i] = values[i];
  }

  static void pack_b(uint8_t* panel, int64_t k, const uint64_t* values) {
    auto* to = reinterpret_cast<uint64_t*>(panel) + 2 * k * kColumns;
    const __m256i words = load_ymm(values);
    store_ymm(to, words);
    store_ymm(to + kColumns, _mm256_shuffle_epi32(words, 0xb1));
  }

  static void run(int64_t depth, const uint8_t* a_panel, const uint8_t* b_panel, uint64_t* out,
                  int64_t stride, bool accumulate) {
    const auto* a = reinterpret_cast<const int64_t*>(a_panel);
    const auto* b = reinterpret_cast<const uint64_t*>(b_panel);
    __m256i low[kRows], cross[kRows];
    for (int i = 0; i < kRows; ++i) low[i] = cross[i] = _mm256_setzero_si256();
    for (int64_t k = 0; k < depth; ++k, a += kRows, b += 2 * kColumns) {
      const __m256i right = load_ymm(b), exchanged = load_ymm(b + kColumns);
#pragma GCC unroll 5
      for (int i = 0; i < kRows; ++i) {
        const __m256i left = _mm256_set1_epi64x(a[i]);
        low[i] = _mm256_add_epi64(low[i], _mm256_mul_epu32(left, right));
        cross[i] = _mm256_add_epi32(cross[i], _mm256_mullo_epi32(left, exchanged));
      }
    }
    for (int i = 0; i < kRows; ++i) {
      const __m256i both = _mm256_add_epi32(cross[i], _mm256_srli_epi64(cross[i], 32));
      const __m256i sum = _mm256_add_epi64(low[i], _mm256_slli_epi64(both, 32));
      uint64_t* to = out + i * stride;
      store_ymm(to, accumulate ? _mm256_add_epi64(sum, load_ymm(to)) : sum);
    }
  }
};

}  // namespace veil
