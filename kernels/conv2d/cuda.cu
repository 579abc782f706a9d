// Convolutions as matrix products: weights [filters, depth] times windows [depth, pixels], whose
// elements are looked up where the image has them. Groups with few filters, a thread an output.
#include "kernels/conv2d/small_windows.cuh"
#include "kernels/gemm/tiled.cuh"

namespace veil {

template <class T, int Rows, int Columns>
__device__ __forceinline__ void conv2d(T* out, int64_t parts, int64_t pitch, bool adds,
                                       const Convolution& c, const Pairs& pairs) {
  const int64_t filters = c.group_filters(), depth = c.depth();
  for (int64_t z = blockIdx.z; z < c.groups * parts; z += gridDim.z) {
    const int64_t group = z / parts;
    const TilePart tile = {filters,
                           c.batch * c.image(),
                           static_cast<int64_t>(blockIdx.y) * Rows,
                           static_cast<int64_t>(blockIdx.x) * Columns,
                           z % parts,
                           parts};
    Product<T, Rows, Columns> product;
    for (int p = 0; p < pairs.count; ++p) {
      const T* image = reinterpret_cast<const T*>(pairs.pair[p].image);
      const T* weights = reinterpret_cast<const T*>(pairs.pair[p].weights);
      product.add(Strided<T>{weights + group * filters * depth, depth, 1},
                  Windows<T>{image + group * c.group_channels() * c.h * c.w, &c}, depth, tile);
    }
    T* to = out + tile.part * pitch;
    product.for_each(tile, [&](int64_t row, int64_t pixel, T sum) {
      const int64_t number = pixel / c.image(), filter = group * filters + row;
      const int64_t at = (number * c.filters + filter) * c.image() + pixel - number * c.image();
      put_sum(to + at, sum, adds);
    });
  }
}

// One output a thread, neighbours next to each other: too few filters share a window to make it
// worth fetching together. A row of the kernel that lies beside the image is skipped whole.
template <class T>
__device__ __forceinline__ T window_sum(const Convolution& c, const T* channel, const T* weights,
                                        int top, int left) {
  const int kh = static_cast<int>(c.kh), kw = static_cast<int>(c.kw);
  const int h = static_cast<int>(c.h), w = static_cast<int>(c.w);
  T sum = 0;
  for (int i = 0, y = top; i < kh; ++i, y += static_cast<int>(c.dilation_h), weights += kw) {
    if (y < 0 || y >= h) continue;
    const T* row = channel + static_cast<int64_t>(y) * w;
#pragma unroll 3
    for (int j = 0, x = left; j < kw; ++j, x += static_cast<int>(c.dilation_w)) {
      if (x >= 0 && x < w) sum += row[x] * weights[j];
    }
  }
  return sum;
}

template <class T>
__device__ __forceinline__ void conv2d_thin(T* out, int64_t outputs, bool adds,
                                            const SmallConvolution& small, const Pairs& pairs) {
  const Convolution& c = small.shape;
  const int image = static_cast<int>(c.image()), filters = static_cast<int>(c.filters);
  const int64_t kernel = c.kh * c.kw, plane = c.h * c.w;
  for (int64_t i = grid_thread(); i < outputs; i += grid_threads()) {
    const int place = small.image.quotient(static_cast<int>(i));
    const int rest = static_cast<int>(i) - place * image, y = small.row.quotient(rest);
    const int number = small.filters.quotient(place), filter = place - number * filters;
    const int group = small.group_filters.quotient(filter);
    const int64_t first = number * c.channels + group * c.group_channels();
    const int top = y * static_cast<int>(c.stride_h) - static_cast<int>(c.pad_top);
    const int left = (rest - y * static_cast<int>(c.ow)) * static_cast<int>(c.stride_w) -
                     static_cast<int>(c.pad_left);
    T sum = 0;
    for (int p = 0; p < pairs.count; ++p) {
      const T* images = reinterpret_cast<const T*>(pairs.pair[p].image) + first * plane;
      const T* weights = reinterpret_cast<const T*>(pairs.pair[p].weights) + filter * c.depth();
      for (int64_t k = 0; k < c.group_channels(); ++k) {
        sum += window_sum(c, images + k * plane, weights + k * kernel, top, left);
      }
    }
    put_sum(out + i, sum, adds);
  }
}

}  // namespace veil

#define VEIL_CONV2D(bits, rows, columns)                                                       \
  extern "C" __global__ void __launch_bounds__(256, 1) veil_conv2d##bits##_##rows##x##columns( \
      uint##bits##_t* out, int64_t parts, int64_t pitch,                                       \
      const __grid_constant__ veil::Convolution c, int64_t adds,                               \
      const __grid_constant__ veil::Pairs pairs) {                                             \
    veil::conv2d<uint##bits##_t, rows, columns>(out, parts, pitch, adds != 0, c, pairs);       \
  }

#define VEIL_CONV2D_THIN(bits)                                                                \
  extern "C" __global__ void __launch_bounds__(256, 1) veil_conv2d##bits##_thin(              \
      uint##bits##_t* out, int64_t outputs, const __grid_constant__ veil::SmallConvolution c, \
      int64_t adds, const __grid_constant__ veil::Pairs pairs) {                              \
    veil::conv2d_thin<uint##bits##_t>(out, outputs, adds != 0, c, pairs);                     \
  }

VEIL_CONV2D(32, 128, 128)
VEIL_CONV2D(32, 32, 128)
VEIL_CONV2D(32, 128, 32)
VEIL_CONV2D_THIN(32)
VEIL_CONV2D(64, 128, 64)
VEIL_CONV2D(64, 32, 128)
VEIL_CONV2D(64, 128, 32)
VEIL_CONV2D_THIN(64)
