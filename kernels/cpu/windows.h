// Sums over the windows of one image, weighted or not: what depthwise convolution and pooling
// share.
//
// A window's positions outside the image count as zero. Where there are 512-bit vectors,
// windows_strips.h has the common windows of convolutions and windows_avx512.h almost all others;
// this is the way for all other processors, and for unusual windows.
#pragma once
#include <cstdint>
#include <cstring>

namespace veil {

struct Window {
  int64_t h, w, oh, ow;  // of the image and of the output
  int64_t kh, kw, stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
};

// What a sum over windows takes of one image: its elements, times kh x kw weights, or (null) as
// they are.
template <class T>
struct WindowTerm {
  const T* image;
  const T* weights;
};

// Outputs [first, end) along one axis whose element stride * y + shift lies in [0, extent).
struct Span {
  int64_t first, end;
};

inline Span span_inside(int64_t outputs, int64_t stride, int64_t shift, int64_t extent) {
  const int64_t first = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
  const int64_t end = shift >= extent ? 0 : (extent - shift + stride - 1) / stride;
  return {first, end < outputs ? end : outputs};
}

// out[x] += weight * in[stride * x] for x in [0, count).
template <class T>
inline void add_multiple(T* out, const T* in, T weight, int64_t stride, int64_t count) {
  if (stride == 1) {
#pragma GCC ivdep
    for (int64_t x = 0; x < count; ++x) out[x] += weight * in[x];
  } else if (stride == 2) {
#pragma GCC ivdep
    for (int64_t x = 0; x < count; ++x) out[x] += weight * in[2 * x];
  } else {
    for (int64_t x = 0; x < count; ++x) out[x] += weight * in[stride * x];
  }
}

// All outputs, row by row: each position of the window adds a multiple of a shifted row.
class WindowRows {
 public:
  explicit WindowRows(const Window& window) : window_(window) {}

  // out <- the sum of term(0), ..., term(count - 1).
  template <class T, class Terms>
  void put(T* out, int64_t count, Terms&& term) const {
    std::memset(out, 0, window_.oh * window_.ow * sizeof(T));
    for (int64_t t = 0; t < count; ++t) {
      const WindowTerm<T> each = term(t);
      add(out, each.image, each.weights);
    }
  }

 private:
  template <class T>
  void add(T* out, const T* image, const T* weights) const {
    const Window& win = window_;
    for (int64_t y = 0; y < win.oh; ++y) {
      for (int64_t i = 0; i < win.kh; ++i) {
        const int64_t row = y * win.stride_h + i * win.dilation_h - win.pad_top;
        if (row < 0 || row >= win.h) continue;
        for (int64_t j = 0; j < win.kw; ++j) {
          const int64_t shift = j * win.dilation_w - win.pad_left;
          const Span s = span_inside(win.ow, win.stride_w, shift, win.w);
          if (s.first >= s.end) continue;
          const T weight = weights ? weights[i * win.kw + j] : T{1};
          add_multiple(out + y * win.ow + s.first,
                       image + row * win.w + s.first * win.stride_w + shift, weight, win.stride_w,
                       s.end - s.first);
        }
      }
    }
  }

  const Window& window_;
};

}  // namespace veil

#if defined(__AVX512F__)
#include "kernels/cpu/windows_avx512.h"
#include "kernels/cpu/windows_strips.h"
#endif

namespace veil {

// Calls body(part) for parts that together make up all outputs; part.put(out, count, term) writes
// those of one image, sums of `count` terms. What a part knows about the windows serves any number
// of images.
template <class Body>
void for_each_part(const Window& window, Body&& body) {
#if defined(__AVX512F__)
  if (WindowStrips<3, 1>::fits(window)) return body(WindowStrips<3, 1>(window));
  if (WindowStrips<3, 2>::fits(window)) return body(WindowStrips<3, 2>(window));
  if (WindowStrips<5, 1>::fits(window)) return body(WindowStrips<5, 1>(window));
  if (WindowStrips<5, 2>::fits(window)) return body(WindowStrips<5, 2>(window));
  if (WindowVectors::fits(window)) return for_each_vector_part(window, body);
#endif
  body(WindowRows(window));
}

}  // namespace veil
