// Window sums of stride 1 or 2 with 512-bit vectors: strips of columns, down which the window goes.
//
// With stride 1 a row of the image is loaded once for each column of the window and added to all
// outputs that it bears on: as many sums as the window has rows are open at a time. With stride 2 a
// row's vectors are the even elements of two. Rows outside the image are nothing; columns outside
// are masked, the same down a whole strip.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cpu/windows.h"

namespace veil {

// Vectors of T, and the columns of an image that they are loaded from.
template <class T>
struct Lanes {
  static constexpr int kCount = 64 / sizeof(T);
  using Mask = std::conditional_t<sizeof(T) == 8, __mmask8, __mmask16>;

  // Which of kCount columns lie in [0, extent), if the first is `column`.
  static Mask inside(int64_t column, int64_t extent) {
    const auto below = [](int64_t end) {
      return end <= 0 ? 0u : end >= kCount ? (1u << kCount) - 1 : (1u << end) - 1;
    };
    return static_cast<Mask>(below(extent - column) & ~below(-column));
  }

  static __m512i load(Mask mask, const T* from) {
    if constexpr (sizeof(T) == 8) return _mm512_maskz_loadu_epi64(mask, from);
    return _mm512_maskz_loadu_epi32(mask, from);
  }

  static void store(T* to, Mask mask, __m512i v) {
    if constexpr (sizeof(T) == 8) {
      _mm512_mask_storeu_epi64(to, mask, v);
    } else {
      _mm512_mask_storeu_epi32(to, mask, v);
    }
  }

  static __m512i evens(__m512i low, __m512i high) {
    if constexpr (sizeof(T) == 8) {
      const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
      return _mm512_permutex2var_epi64(low, order, high);
    }
    const __m512i order =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_epi32(low, order, high);
  }

  static __m512i add(__m512i sum, __m512i x) {
    if constexpr (sizeof(T) == 8) return _mm512_add_epi64(sum, x);
    return _mm512_add_epi32(sum, x);
  }

  static __m512i multiply_add(__m512i sum, __m512i x, T weight) {
    if constexpr (sizeof(T) == 8) {
      return add(sum, _mm512_mullo_epi64(x, _mm512_set1_epi64(static_cast<int64_t>(weight))));
    }
    return add(sum, _mm512_mullo_epi32(x, _mm512_set1_epi32(static_cast<int32_t>(weight))));
  }
};

// One vector of outputs in each row: what each column of the window is of the image's rows.
template <class T, int Size, int Stride>
class Strip {
 public:
  using L = Lanes<T>;

  Strip(const Window& win, int64_t x)
      : first_(x * Stride - win.pad_left), valid_(L::inside(x, win.ow)) {
    for (int j = 0; j < Size; ++j) {
      for (int s = 0; s < Stride; ++s) {
        inside_[j][s] = L::inside(first_ + j + s * L::kCount, win.w);
      }
    }
  }

  // Column j of the windows, of a row of the image.
  __m512i load(const T* row, int j) const {
    const __m512i low = L::load(inside_[j][0], row + first_ + j);
    if constexpr (Stride == 1) return low;
    return L::evens(low, L::load(inside_[j][Stride - 1], row + first_ + j + L::kCount));
  }

  void put(T* to, __m512i sum, bool accumulate) const {
    L::store(to, valid_, accumulate ? L::add(sum, L::load(valid_, to)) : sum);
  }

 private:
  int64_t first_;  // column of the image
  typename L::Mask valid_, inside_[Size][Stride];
};

// Sums over Size x Size windows.
template <int Size, int Stride>
class WindowStrips {
 public:
  static bool fits(const Window& win) {
    return win.kh == Size && win.kw == Size && win.stride_h == Stride && win.stride_w == Stride &&
           win.dilation_h == 1 && win.dilation_w == 1 && win.pad_top < Size;
  }

  explicit WindowStrips(const Window& window) : window_(window) {}

  // out <- the sum of term(0), ..., term(count - 1).
  template <class T, class Terms>
  void put(T* out, int64_t count, Terms&& term) const {
    for (int64_t t = 0; t < count; ++t) {
      const WindowTerm<T> each = term(t);
      T weights[Size * Size];
      for (int p = 0; p < Size * Size; ++p) weights[p] = each.weights ? each.weights[p] : T{1};
      for (int64_t x = 0; x < window_.ow; x += Lanes<T>::kCount) {
        const Strip<T, Size, Stride> strip(window_, x);
        if constexpr (Stride == 1) {
          slide(strip, out + x, each.image, weights, t > 0);
        } else {
          step(strip, out + x, each.image, weights, t > 0);
        }
      }
    }
  }

 private:
  // sums[i] is what the rows so far give for the output row whose window has its row i at image
  // row y.
  template <class S, class T>
  void slide(const S& strip, T* out, const T* image, const T* weights, bool accumulate) const {
    const Window& win = window_;
    __m512i sums[Size];
    for (__m512i& sum : sums) sum = _mm512_setzero_si512();
    const int64_t end = win.oh - win.pad_top + Size - 1;
    for (int64_t y = 0; y < end; ++y) {
      if (y < win.h) {
#pragma GCC unroll 8
        for (int j = 0; j < Size; ++j) {
          const __m512i x = strip.load(image + y * win.w, j);
#pragma GCC unroll 8
          for (int i = 0; i < Size; ++i) {
            sums[i] = Lanes<T>::multiply_add(sums[i], x, weights[i * Size + j]);
          }
        }
      }
      const int64_t done = y + win.pad_top - (Size - 1);
      if (done >= 0) strip.put(out + done * win.ow, sums[Size - 1], accumulate);
#pragma GCC unroll 8
      for (int i = Size - 1; i > 0; --i) sums[i] = sums[i - 1];
      sums[0] = _mm512_setzero_si512();
    }
  }

  template <class S, class T>
  void step(const S& strip, T* out, const T* image, const T* weights, bool accumulate) const {
    const Window& win = window_;
    for (int64_t y = 0; y < win.oh; ++y) {
      __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 8
      for (int i = 0; i < Size; ++i) {
        const int64_t row = y * Stride + i - win.pad_top;
        if (row < 0 || row >= win.h) continue;
#pragma GCC unroll 8
        for (int j = 0; j < Size; ++j) {
          const __m512i x = strip.load(image + row * win.w, j);
          sum = Lanes<T>::multiply_add(sum, x, weights[i * Size + j]);
        }
      }
      strip.put(out + y * win.ow, sum, accumulate);
    }
  }

  const Window& window_;
};

}  // namespace veil
