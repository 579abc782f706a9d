// Window sums with 512-bit vectors: 16 outputs that follow one another in memory, whatever rows
// they are of. Their windows' offsets and, for each position, which of them lie inside the image,
// are the same for all images and are worked out once.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/windows.h"

namespace veil {

// Elements of 16 lanes: one vector of 32-bit words, or two of 64-bit words. Lanes that the mask
// leaves out are zero.
inline void load_row(__m512i* x, const uint32_t* from, __mmask16 inside) {
  x[0] = _mm512_maskz_loadu_epi32(inside, from);
}

inline void load_row(__m512i* x, const uint64_t* from, __mmask16 inside) {
  x[0] = _mm512_maskz_loadu_epi64(static_cast<__mmask8>(inside), from);
  x[1] = _mm512_maskz_loadu_epi64(static_cast<__mmask8>(inside >> 8), from + 8);
}

inline void load_lanes_at(__m512i* x, const uint32_t* base, __m512i offsets, __mmask16 inside) {
  x[0] = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), inside, offsets, base, 4);
}

inline void load_lanes_at(__m512i* x, const uint64_t* base, __m512i offsets, __mmask16 inside) {
  const __m512i zero = _mm512_setzero_si512();
  x[0] = _mm512_mask_i32gather_epi64(zero, static_cast<__mmask8>(inside),
                                     _mm512_castsi512_si256(offsets), base, 8);
  x[1] = _mm512_mask_i32gather_epi64(zero, static_cast<__mmask8>(inside >> 8),
                                     _mm512_extracti64x4_epi64(offsets, 1), base, 8);
}

inline void add_products(__m512i* sum, const __m512i* x, uint32_t weight) {
  const __m512i w = _mm512_set1_epi32(static_cast<int>(weight));
  sum[0] = _mm512_add_epi32(sum[0], _mm512_mullo_epi32(x[0], w));
}

inline void add_products(__m512i* sum, const __m512i* x, uint64_t weight) {
  const __m512i w = _mm512_set1_epi64(static_cast<int64_t>(weight));
  sum[0] = _mm512_add_epi64(sum[0], _mm512_mullo_epi64(x[0], w));
  sum[1] = _mm512_add_epi64(sum[1], _mm512_mullo_epi64(x[1], w));
}

inline void add_lanes(__m512i* sum, const __m512i* x, uint32_t) {
  sum[0] = _mm512_add_epi32(sum[0], x[0]);
}

inline void add_lanes(__m512i* sum, const __m512i* x, uint64_t) {
  sum[0] = _mm512_add_epi64(sum[0], x[0]);
  sum[1] = _mm512_add_epi64(sum[1], x[1]);
}

inline void store_row(uint32_t* out, const __m512i* sum, __mmask16 valid) {
  _mm512_mask_storeu_epi32(out, valid, sum[0]);
}

inline void store_row(uint64_t* out, const __m512i* sum, __mmask16 valid) {
  _mm512_mask_storeu_epi64(out, static_cast<__mmask8>(valid), sum[0]);
  _mm512_mask_storeu_epi64(out + 8, static_cast<__mmask8>(valid >> 8), sum[1]);
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

  WindowVectors(const Window& win, int64_t first)
      : window_(win), first_(first), positions_(win.kh * win.kw) {
    for (int64_t p = 0; p < positions_; ++p) {
      shifts_[p] = p / win.kw * win.dilation_h * win.w + p % win.kw * win.dilation_w;
    }
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
      offsets_[v] = _mm512_load_si512(offsets);
      row_[v] = row;
      valid_[v] = static_cast<__mmask16>((1u << count) - 1);
      find_inside(v, _mm512_load_si512(top), _mm512_load_si512(beside));
    }
  }

  // out <- the sum of term(0), ..., term(count - 1), where these outputs lie.
  template <class T, class Terms>
  void put(T* out, int64_t count, Terms&& term) const {
    for (int64_t v = 0; 16 * v < outputs_; ++v) {
      __m512i sum[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
      for (int64_t t = 0; t < count; ++t) add(sum, v, term(t));
      store_row(out + first_ + 16 * v, sum, valid_[v]);
    }
  }

 private:
  template <class T>
  void add(__m512i* sum, int64_t v, const WindowTerm<T>& term) const {
    if (row_[v]) {
      const T* from = term.image + _mm_cvtsi128_si32(_mm512_castsi512_si128(offsets_[v]));
      add_window(sum, v, term.weights, [&](__m512i* x, int64_t shift, __mmask16 inside) {
        load_row(x, from + shift, inside);
      });
    } else {
      add_window(sum, v, term.weights, [&](__m512i* x, int64_t shift, __mmask16 inside) {
        load_lanes_at(x, term.image + shift, offsets_[v], inside);
      });
    }
  }

  template <class T, class Load>
  void add_window(__m512i* sum, int64_t v, const T* weights, Load load) const {
    if (weights == nullptr) {
      for (int64_t p = 0; p < positions_; ++p) {
        __m512i x[2];
        load(x, shifts_[p], inside_[v][p]);
        add_lanes(sum, x, T{});
      }
      return;
    }
#pragma GCC unroll 3
    for (int64_t p = 0; p < positions_; ++p) {
      __m512i x[2];
      load(x, shifts_[p], inside_[v][p]);
      add_products(sum, x, weights[p]);
    }
  }

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
  int64_t first_, outputs_, positions_;
  int64_t shifts_[kMaxPositions];  // of each position of a window, from its first
  __m512i offsets_[kVectors];      // of the windows' first elements
  bool row_[kVectors];             // they follow one another
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
