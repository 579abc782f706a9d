// Window sums with 512-bit vectors: 16 outputs that follow one another in memory, whatever rows
// they are of. Their windows' offsets and, for each position, which of them lie inside the image,
// are the same for all images and are worked out once.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "kernels/windows.h"

namespace veil {

// 16 elements at base + offset for each lane; zero where the mask is not set.
struct Lanes16 {
  __m512i offsets;
  bool row;  // offsets follow one another
};

inline void add_products(__m512i* sum, const uint32_t* base, const Lanes16& at, __mmask16 inside,
                         const uint32_t* weight) {
  const __m512i x =
      at.row ? _mm512_maskz_loadu_epi32(
                   inside, base + _mm_cvtsi128_si32(_mm512_castsi512_si128(at.offsets)))
             : _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), inside, at.offsets, base, 4);
  sum[0] = _mm512_add_epi32(
      sum[0], weight ? _mm512_mullo_epi32(x, _mm512_set1_epi32(static_cast<int>(*weight))) : x);
}

inline void add_products(__m512i* sum, const uint64_t* base, const Lanes16& at, __mmask16 inside,
                         const uint64_t* weight) {
  for (int half = 0; half < 2; ++half) {
    const auto mask = static_cast<__mmask8>(inside >> (8 * half));
    __m512i x;
    if (at.row) {
      const int first = _mm_cvtsi128_si32(_mm512_castsi512_si128(at.offsets));
      x = _mm512_maskz_loadu_epi64(mask, base + first + 8 * half);
    } else {
      const __m256i offsets =
          half ? _mm512_extracti64x4_epi64(at.offsets, 1) : _mm512_castsi512_si256(at.offsets);
      x = _mm512_mask_i32gather_epi64(_mm512_setzero_si512(), mask, offsets, base, 8);
    }
    const __m512i product =
        weight ? _mm512_mullo_epi64(x, _mm512_set1_epi64(static_cast<int64_t>(*weight))) : x;
    sum[half] = _mm512_add_epi64(sum[half], product);
  }
}

inline void add_to(uint32_t* out, const __m512i* sum, __mmask16 valid) {
  const __m512i old = _mm512_maskz_loadu_epi32(valid, out);
  _mm512_mask_storeu_epi32(out, valid, _mm512_add_epi32(old, sum[0]));
}

inline void add_to(uint64_t* out, const __m512i* sum, __mmask16 valid) {
  for (int half = 0; half < 2; ++half) {
    const auto mask = static_cast<__mmask8>(valid >> (8 * half));
    const __m512i old = _mm512_maskz_loadu_epi64(mask, out + 8 * half);
    _mm512_mask_storeu_epi64(out + 8 * half, mask, _mm512_add_epi64(old, sum[half]));
  }
}

// Up to kVectors times 16 outputs, from the flat index `first` on.
class WindowVectors {
 public:
  static constexpr int64_t kVectors = 64, kOutputs = 16 * kVectors;
  static constexpr int64_t kMaxPositions = 64;

  // Whether a window has few enough positions, and offsets of 32 bits.
  static bool fits(const Window& win) {
    constexpr int64_t kMost = int64_t{1} << 30;
    const int64_t reach_h = win.oh * win.stride_h + win.kh * win.dilation_h + win.pad_top;
    const int64_t reach_w = win.ow * win.stride_w + win.kw * win.dilation_w + win.pad_left;
    const int64_t side = win.h + win.w + reach_h + reach_w;
    return side < kMost && (win.h + reach_h) * win.w < kMost && win.kh * win.kw <= kMaxPositions;
  }

  WindowVectors(const Window& win, int64_t first) : window_(win), first_(first) {
    const int64_t left = win.oh * win.ow - first;
    outputs_ = left < kOutputs ? left : kOutputs;
    int64_t x = first % win.ow, y = first / win.ow;
    for (int64_t v = 0; 16 * v < outputs_; ++v) {
      alignas(64) int32_t top[16] = {}, beside[16] = {}, offsets[16] = {};
      const int64_t count = outputs_ - 16 * v < 16 ? outputs_ - 16 * v : 16;
      bool row = true;
      for (int64_t lane = 0; lane < count; ++lane) {
        top[lane] = static_cast<int32_t>(y * win.stride_h - win.pad_top);
        beside[lane] = static_cast<int32_t>(x * win.stride_w - win.pad_left);
        offsets[lane] = static_cast<int32_t>(top[lane] * win.w + beside[lane]);
        row = row && offsets[lane] == offsets[0] + lane;
        if (++x == win.ow) x = 0, ++y;
      }
      at_[v] = {_mm512_load_si512(offsets), row};
      valid_[v] = static_cast<__mmask16>((1u << count) - 1);
      find_inside(v, _mm512_load_si512(top), _mm512_load_si512(beside));
    }
  }

  template <class T>
  void add(T* out, const T* image, const T* weights) const {
    for (int64_t v = 0; 16 * v < outputs_; ++v) {
      __m512i sum[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
      for (int64_t i = 0, p = 0; i < window_.kh; ++i) {
        const T* base = image + i * window_.dilation_h * window_.w;
        for (int64_t j = 0; j < window_.kw; ++j, ++p) {
          add_products(sum, base + j * window_.dilation_w, at_[v], inside_[v][p],
                       weights ? weights + p : nullptr);
        }
      }
      add_to(out + first_ + 16 * v, sum, valid_[v]);
    }
  }

 private:
  // A coordinate is inside when, as an unsigned number, it is below the extent.
  void find_inside(int64_t v, __m512i top, __m512i beside) {
    const __m512i h = _mm512_set1_epi32(static_cast<int>(window_.h));
    const __m512i w = _mm512_set1_epi32(static_cast<int>(window_.w));
    for (int64_t i = 0, p = 0; i < window_.kh; ++i) {
      const __m512i down = _mm512_set1_epi32(static_cast<int>(i * window_.dilation_h));
      const __mmask16 rows =
          _mm512_mask_cmplt_epu32_mask(valid_[v], _mm512_add_epi32(top, down), h);
      for (int64_t j = 0; j < window_.kw; ++j, ++p) {
        const __m512i across = _mm512_set1_epi32(static_cast<int>(j * window_.dilation_w));
        inside_[v][p] = _mm512_mask_cmplt_epu32_mask(rows, _mm512_add_epi32(beside, across), w);
      }
    }
  }

  const Window& window_;
  int64_t first_, outputs_;
  Lanes16 at_[kVectors];
  __mmask16 valid_[kVectors], inside_[kVectors][kMaxPositions];
};

template <class Body>
void for_each_vector_part(const Window& window, Body&& body) {
  const int64_t outputs = window.oh * window.ow;
  for (int64_t first = 0; first < outputs; first += WindowVectors::kOutputs) {
    body(WindowVectors(window, first));
  }
}

}  // namespace veil
