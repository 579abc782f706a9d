// Depthwise convolutions: a channel, a kernel, no sum over channels, so memory rules. A thread
// makes a strip of kStrip outputs of one column: an element of the image is loaded once for each
// column of the kernel and not for each of its taps, neighbours next to each other, and what lies
// beside the image is known by column before the first load.
#pragma once

#include "kernels/conv2d/small_windows.cuh"
#include "kernels/gemm/tiled.cuh"

namespace veil {

constexpr int kStrip = 7;  // rows; kernels/conv2d/depthwise.py has it too

// Where a strip's first window begins, and the image that it lies in.
struct Strip {
  int top, left;
  unsigned h, w;
};

// The outputs of a strip += its windows times the kernel, for one pair.
template <class T, int Kernel, int Stride>
__device__ __forceinline__ void add_strip(T (&sums)[kStrip], const T* plane, const T* weights,
                                          const Strip& strip) {
  T kernel[Kernel * Kernel];
#pragma unroll
  for (int k = 0; k < Kernel * Kernel; ++k) kernel[k] = weights[k];
#pragma unroll
  for (int r = 0; r < (kStrip - 1) * Stride + Kernel; ++r) {
    const int y = strip.top + r;
    const bool has_row = static_cast<unsigned>(y) < strip.h;
    const T* line = plane + (int64_t{y} * strip.w + strip.left);
    T row[Kernel];
#pragma unroll
    for (int j = 0; j < Kernel; ++j) {
      const bool has_column = static_cast<unsigned>(strip.left + j) < strip.w;
      row[j] = has_row && has_column ? line[j] : T{0};
    }
#pragma unroll
    for (int i = 0; i < Kernel; ++i) {
      const int below = r - i;  // rows under the strip's first window
      if (below < 0 || below % Stride != 0 || below / Stride >= kStrip) continue;
#pragma unroll
      for (int j = 0; j < Kernel; ++j) sums[below / Stride] += row[j] * kernel[i * Kernel + j];
    }
  }
}

// Threads: columns of outputs, strips of an image, filters, images, the first innermost.
template <class T, int Kernel, int Stride>
__device__ __forceinline__ void conv2d_depthwise(T* out, int64_t threads, int64_t strips,
                                                 const Divisor& by_strips, bool adds,
                                                 const SmallConvolution& small,
                                                 const Pairs& pairs) {
  const Convolution& c = small.shape;
  const int ow = static_cast<int>(c.ow), oh = static_cast<int>(c.oh);
  const int filters = static_cast<int>(c.filters);
  for (int64_t i = grid_thread(); i < threads; i += grid_threads()) {
    const int column = small.row.quotient(static_cast<int>(i));
    const int x = static_cast<int>(i) - column * ow;
    const int place = by_strips.quotient(column);
    const int y = (column - place * static_cast<int>(strips)) * kStrip;
    const int number = small.filters.quotient(place), filter = place - number * filters;
    const int64_t channel = number * c.channels + small.group_filters.quotient(filter);
    const Strip strip = {y * Stride - static_cast<int>(c.pad_top),
                         x * Stride - static_cast<int>(c.pad_left), static_cast<unsigned>(c.h),
                         static_cast<unsigned>(c.w)};
    T sums[kStrip] = {};
    for (int p = 0; p < pairs.count; ++p) {
      const T* images = reinterpret_cast<const T*>(pairs.pair[p].image);
      const T* weights = reinterpret_cast<const T*>(pairs.pair[p].weights);
      add_strip<T, Kernel, Stride>(sums, images + channel * c.h * c.w,
                                   weights + filter * Kernel * Kernel, strip);
    }
    T* first = out + (static_cast<int64_t>(place) * oh + y) * ow + x;
#pragma unroll
    for (int r = 0; r < kStrip; ++r) {
      if (y + r < oh) put_sum(first + static_cast<int64_t>(r) * ow, sums[r], adds);
    }
  }
}

}  // namespace veil

// A strip of 3 x 3 windows side by side leaves registers for two blocks, the others for one.
#define VEIL_CONV2D_DEPTHWISE(entry, T, kernel, stride)                                         \
  extern "C" __global__ void __launch_bounds__(256, kernel* stride == 3 ? 2 : 1) entry(         \
      T* out, int64_t threads, int64_t strips, const __grid_constant__ veil::Divisor by_strips, \
      const __grid_constant__ veil::SmallConvolution c, int64_t adds,                           \
      const __grid_constant__ veil::Pairs pairs) {                                              \
    veil::conv2d_depthwise<T, kernel, stride>(out, threads, strips, by_strips, adds != 0, c,    \
                                              pairs);                                           \
  }
