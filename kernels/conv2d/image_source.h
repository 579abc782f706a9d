// The columns of im2col without the matrix: panels are gathered straight from the images.
//
// The product's depth runs over (channel, i, j) of the kernel, as weights lie; its columns over
// (image, y, x) of the output. A column has an offset into the images where its window begins,
// which may lie outside; a kernel position adds the same to all. Whether an element is inside is
// one bit a column.
#pragma once
#include <cstdint>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "kernels/conv2d/geometry.h"

namespace veil {

// values[i] <- data[base + offsets[i]] where bit i of `inside` is set, else 0. `row` says that
// offsets follow one another.
template <int Width, class T>
inline void gather(T* values, const T* data, const int64_t* offsets, uint64_t inside, bool row) {
#if defined(__AVX512F__)
  if constexpr (Width % 8 == 0) {
    for (int i = 0; i < Width; i += 8) {
      const auto mask = static_cast<__mmask8>(inside >> i);
      if constexpr (sizeof(T) == 8) {
        const __m512i v =
            row ? _mm512_maskz_loadu_epi64(mask, data + offsets[0] + i)
                : _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), mask,
                                              _mm512_loadu_si512(offsets + i), data, 8);
        _mm512_store_si512(values + i, v);
      } else {
        const __m256i v =
            row ? _mm256_maskz_loadu_epi32(mask, data + offsets[0] + i)
                : _mm512_mask_i64gather_epi32(_mm256_setzero_si256(), mask,
                                              _mm512_loadu_si512(offsets + i), data, 4);
        _mm256_store_si256(reinterpret_cast<__m256i*>(values + i), v);
      }
    }
    return;
  }
#endif
  static_cast<void>(row);
  for (int i = 0; i < Width; ++i) values[i] = inside >> i & 1 ? data[offsets[i]] : T{0};
}

template <class T>
struct ImageSource {
  const T* images;  // of the group's first channel
  const Convolution& c;

  // Elements are gathered: none lie as a panel wants them.
  static constexpr bool along_depth() { return false; }
  const T* at(int64_t, int64_t) const { return images; }

  template <int Width, class Emit>
  void panel(int64_t column, int64_t count, int64_t first, int64_t depth, Emit&& emit) const {
    static_assert(Width <= 64);
    Columns<Width> columns(c, column, count);
    const int64_t positions = c.kh * c.kw;
    alignas(64) T values[Width];
    int64_t channel = first / positions, i = first % positions / c.kw, j = first % c.kw;
    uint64_t inside[kMaxPositions];
    const bool remembered = positions <= kMaxPositions;
    for (int64_t p = 0; remembered && p < positions; ++p) {
      inside[p] = columns.inside(c, p / c.kw, p % c.kw);
    }
    for (int64_t k = 0; k < depth; ++k) {
      const uint64_t mask = remembered ? inside[i * c.kw + j] : columns.inside(c, i, j);
      const int64_t base = (channel * c.h + i * c.dilation_h) * c.w + j * c.dilation_w;
      gather<Width>(values, images + base, columns.offsets, mask, columns.row);
      emit(k, values);
      if (++j < c.kw) continue;
      j = 0;
      if (++i < c.kh) continue;
      i = 0;
      ++channel;
    }
  }

 private:
  static constexpr int64_t kMaxPositions = 64;  // of a kernel whose masks are kept for a panel

  // Where the windows of a panel's columns begin.
  template <int Width>
  struct Columns {
    int64_t count;
    bool row = true;
    int64_t top[Width] = {}, left[Width] = {}, offsets[Width] = {};

    Columns(const Convolution& c, int64_t column, int64_t columns) : count(columns) {
      int64_t x = column % c.ow, y = column / c.ow % c.oh, n = column / c.ow / c.oh;
      for (int64_t i = 0; i < count; ++i) {
        top[i] = y * c.stride_h - c.pad_top;
        left[i] = x * c.stride_w - c.pad_left;
        offsets[i] = (n * c.channels * c.h + top[i]) * c.w + left[i];
        row = row && offsets[i] == offsets[0] + i;
        if (++x < c.ow) continue;
        x = 0;
        if (++y < c.oh) continue;
        y = 0;
        ++n;
      }
    }

    uint64_t inside(const Convolution& c, int64_t i, int64_t j) const {
      uint64_t mask = 0;
      for (int64_t lane = 0; lane < count; ++lane) {
        const int64_t y = top[lane] + i * c.dilation_h, x = left[lane] + j * c.dilation_w;
        const bool in = y >= 0 && y < c.h && x >= 0 && x < c.w;
        mask |= uint64_t{in} << lane;
      }
      return mask;
    }
  };
};

// Outputs of one group: rows are filters, columns (image, y, x).
template <class T>
struct ImageSink {
  T* data;          // of the group's first filter
  int64_t image;    // y x x
  int64_t filters;  // of all groups

  bool in_one_piece(int64_t column, int64_t columns) const {
    return column / image == (column + columns - 1) / image;
  }
  T* at(int64_t filter, int64_t column) const {
    return data + (column / image * filters + filter) * image + column % image;
  }
  int64_t row_stride() const { return image; }
};

}  // namespace veil
