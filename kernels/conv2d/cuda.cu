// Convolutions as matrix products: weights [filters, depth] times windows [depth, pixels], whose
// elements are looked up where the image has them. Groups with few filters, a thread an output.
#include "kernels/conv2d/windows.cuh"
#include "kernels/gemm/tiled.cuh"

namespace veil {

template <class T, int Rows, int Columns>
__device__ __forceinline__ void conv2d(T* out, int64_t parts, bool adds, const Convolution& c,
                                       const Pairs& pairs) {
  const int64_t filters = c.group_filters(), depth = c.depth();
  for (int64_t z = blockIdx.z; z < c.groups * parts; z += gridDim.z) {
    const int64_t group = z / parts;
    const Tile tile = {filters,
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
    product.for_each(tile, [&](int64_t row, int64_t pixel, T sum) {
      const int64_t number = pixel / c.image(), filter = group * filters + row;
      const int64_t at = (number * c.filters + filter) * c.image() + pixel - number * c.image();
      put_sum(out + at, sum, adds);
    });
  }
}

// One output a thread: too few filters share a window to make it worth fetching together.
template <class T>
__device__ __forceinline__ void conv2d_thin(T* out, int64_t outputs, bool adds,
                                            const Convolution& c, const Pairs& pairs) {
  const int64_t depth = c.depth();
  for (int64_t i = grid_thread(); i < outputs; i += grid_threads()) {
    const int64_t plane = i / c.image(), number = plane / c.filters;
    const int64_t filter = plane - number * c.filters;
    const Window window = window_of(c, number * c.image() + i - plane * c.image());
    const int64_t channel = filter / c.group_filters() * c.group_channels();
    T sum = 0;
    for (int p = 0; p < pairs.count; ++p) {
      const Windows<T> windows = {
          reinterpret_cast<const T*>(pairs.pair[p].image) + channel * c.h * c.w, &c};
      const T* weights = reinterpret_cast<const T*>(pairs.pair[p].weights) + filter * depth;
      for (int64_t k = 0; k < depth; ++k) {
        const T* at = windows.address(window, windows.depth(k));
        if (at) sum += *at * weights[k];
      }
    }
    put_sum(out + i, sum, adds);
  }
}

}  // namespace veil

#define VEIL_CONV2D(bits, rows, columns)                                                        \
  extern "C" __global__ void __launch_bounds__(256, 1) veil_conv2d##bits##_##rows##x##columns(  \
      uint##bits##_t* out, int64_t parts, int64_t adds,                                         \
      const __grid_constant__ veil::Convolution c, const __grid_constant__ veil::Pairs pairs) { \
    veil::conv2d<uint##bits##_t, rows, columns>(out, parts, adds != 0, c, pairs);               \
  }

#define VEIL_CONV2D_THIN(bits)                                                                  \
  extern "C" __global__ void __launch_bounds__(256, 1) veil_conv2d##bits##_thin(                \
      uint##bits##_t* out, int64_t outputs, int64_t adds,                                       \
      const __grid_constant__ veil::Convolution c, const __grid_constant__ veil::Pairs pairs) { \
    veil::conv2d_thin<uint##bits##_t>(out, outputs, adds != 0, c, pairs);                       \
  }

VEIL_CONV2D(32, 128, 128)
VEIL_CONV2D(32, 32, 128)
VEIL_CONV2D(32, 128, 32)
VEIL_CONV2D_THIN(32)
VEIL_CONV2D(64, 128, 64)
VEIL_CONV2D(64, 32, 128)
VEIL_CONV2D(64, 128, 32)
VEIL_CONV2D_THIN(64)
