// Windows of images whose places and coordinates fit 31 bits, without divisions.
#pragma once

#include "kernels/conv2d/divisor.cuh"
#include "kernels/conv2d/windows.cuh"

namespace veil {

// A convolution with the divisors that its places are taken apart by.
struct SmallConvolution {
  Convolution shape;
  Divisor image, row, kernel, kernel_row;  // oh ow, ow, kh kw, kw
  Divisor filters, group_filters;
};

// The windows of one group's channels as a matrix [depth, pixels]; see Windows.
template <class T>
struct SmallWindows {
  const T* data;  // the group's first channel of the first image
  const SmallConvolution* c;

  struct Line {
    int64_t image;  // where it begins, in elements
    int y, x;
  };
  struct Depth {
    int64_t channel;  // where it begins in its image
    int y, x;
  };
  static constexpr bool kHasVectors = false;

  __device__ __forceinline__ Line line(int pixel) const {
    const Convolution& s = c->shape;
    const int number = c->image.quotient(pixel);
    const int rest = pixel - number * static_cast<int>(s.image());
    const int y = c->row.quotient(rest), x = rest - y * static_cast<int>(s.ow);
    return {number * (s.channels * s.h * s.w),
            y * static_cast<int>(s.stride_h) - static_cast<int>(s.pad_top),
            x * static_cast<int>(s.stride_w) - static_cast<int>(s.pad_left)};
  }

  __device__ __forceinline__ Depth depth(int k) const {
    const Convolution& s = c->shape;
    const int channel = c->kernel.quotient(k);
    const int rest = k - channel * static_cast<int>(s.kh * s.kw);
    const int y = c->kernel_row.quotient(rest), x = rest - y * static_cast<int>(s.kw);
    return {channel * (s.h * s.w), y * static_cast<int>(s.dilation_h),
            x * static_cast<int>(s.dilation_w)};
  }

  // Null beside the image.
  __device__ __forceinline__ const T* address(const Line& line, const Depth& depth) const {
    const int y = line.y + depth.y, x = line.x + depth.x, w = static_cast<int>(c->shape.w);
    if (y < 0 || y >= c->shape.h || x < 0 || x >= w) return nullptr;
    return data + (line.image + depth.channel + static_cast<int64_t>(y) * w + x);
  }
};

}  // namespace veil
