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

#if defined(__AVX512F__)
// Words data[offsets[i]] where bit i of `inside` is set, else 0: eight of them. `row` says that
// offsets follow one another.
inline __m512i gather_eight(const uint64_t* data, const int64_t* offsets, uint64_t inside,
                            bool row) {
  const auto mask = static_cast<__mmask8>(inside);
  if (row) return _mm512_maskz_loadu_epi64(mask, data + offsets[0]);
  const __m512i at = _mm512_loadu_si512(offsets);
  return _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), mask, at, data, 8);
}

inline __m256i gather_eight(const uint32_t* data, const int64_t* offsets, uint64_t inside,
                            bool row) {
  const auto mask = static_cast<__mmask8>(inside);
  if (row) return _mm256_maskz_loadu_epi32(mask, data + offsets[0]);
  const __m512i at = _mm512_loadu_si512(offsets);
  return _mm512_mask_i64gather_epi32(_mm256_setzero_si256(), mask, at, data, 4);
}

// Sixteen words of 32 bits as one vector: two halves, stored apart, would be slow to load whole.
inline __m512i gather_sixteen(const uint32_t* data, const int64_t* offsets, uint64_t inside,
                              bool row) {
  if (row) return _mm512_maskz_loadu_epi32(static_cast<__mmask16>(inside), data + offsets[0]);
  const __m256i low = gather_eight(data, offsets, inside, false);
  const __m256i high = gather_eight(data, offsets + 8, inside >> 8, false);
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// `Width` words, a multiple of eight.
template <int Width>
inline void gather_vectors(uint64_t* values, const uint64_t* data, const int64_t* offsets,
                           uint64_t inside, bool row) {
  for (int i = 0; i < Width; i += 8) {
    _mm512_store_si512(values + i, gather_eight(data, offsets + i, inside >> i, row));
  }
}

template <int Width>
inline void gather_vectors(uint32_t* values, const uint32_t* data, const int64_t* offsets,
                           uint64_t inside, bool row) {
  int i = 0;
  for (; i + 16 <= Width; i += 16) {
    _mm512_storeu_si512(values + i, gather_sixteen(data, offsets + i, inside >> i, row));
  }
  for (; i < Width; i += 8) {
    const __m256i found = gather_eight(data, offsets + i, inside >> i, row);
    _mm256_store_si256(reinterpret_cast<__m256i*>(values + i), found);
  }
}
#endif

// values[i] <- data[offsets[i]] where bit i of `inside` is set, else 0. Whole vectors are stored,
// for whoever loads them next.
template <int Width, class T>
inline void gather(T* values, const T* data, const int64_t* offsets, uint64_t inside, bool row) {
#if defined(__AVX512F__)
  if constexpr (Width % 8 == 0) {
    gather_vectors<Width>(values, data, offsets, inside, row);
    return;
  }
#endif
  static_cast<void>(row);
  for (int i = 0; i < Width; ++i) values[i] = inside >> i & 1 ? data[offsets[i]] : 0;
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
    alignas(64) T values[Width];
    int64_t channel = first / (c.kh * c.kw), i = first / c.kw % c.kh, j = first % c.kw;
    uint64_t inside[kMaxPositions];
    const bool remembered = c.kh * c.kw <= kMaxPositions;
    for (int64_t y = 0, p = 0; remembered && y < c.kh; ++y) {
      const uint64_t rows = columns.inside_rows(c, y);
      for (int64_t x = 0; x < c.kw; ++x, ++p) inside[p] = rows & columns.inside_columns(c, x);
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
      return inside_rows(c, i) & inside_columns(c, j);
    }

    // Which windows have their row i, or their column j, inside the image.
    uint64_t inside_rows(const Convolution& c, int64_t i) const {
      return within(top, i * c.dilation_h, c.h);
    }
    uint64_t inside_columns(const Convolution& c, int64_t j) const {
      return within(left, j * c.dilation_w, c.w);
    }

   private:
    uint64_t within(const int64_t* starts, int64_t shift, int64_t extent) const {
      uint64_t mask = 0;
      for (int64_t lane = 0; lane < count; ++lane) {
        const int64_t at = starts[lane] + shift;
        mask |= uint64_t{at >= 0 && at < extent} << lane;
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
