// Convolutions as matrix products: weights [filters, depth] times windows [depth, pixels], whose
// elements are looked up where the image has them. Groups with few filters, a thread an output.
#include "kernels/gemm/tiled.cuh"

namespace veil {

constexpr int kMaxPairs = 4;  // of a launch; kernels/conv2d/cuda.py has it too

// Parameters in the order of declaration.py, then extents: images [batch, channels, h, w], weights
// [filters, channels / groups, kh, kw], outputs [batch, filters, oh, ow].
struct Convolution {
  int64_t stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w, groups;
  int64_t batch, channels, h, w, filters, kh, kw, oh, ow;

  __device__ __forceinline__ int64_t group_channels() const { return channels / groups; }
  __device__ __forceinline__ int64_t group_filters() const { return filters / groups; }
  __device__ __forceinline__ int64_t depth() const { return group_channels() * kh * kw; }
  __device__ __forceinline__ int64_t image() const { return oh * ow; }
};

struct Pair {
  uint64_t image, weights;
};

struct Pairs {
  int64_t count;
  Pair pair[kMaxPairs];
};

// The place of one output among the images: where its window begins.
struct Window {
  int64_t number, y, x;
};

__device__ __forceinline__ Window window_of(const Convolution& c, int64_t pixel) {
  const int64_t number = pixel / c.image(), rest = pixel - number * c.image();
  const int64_t y = rest / c.ow, x = rest - y * c.ow;
  return {number, y * c.stride_h - c.pad_top, x * c.stride_w - c.pad_left};
}

// The windows of one group's channels as a matrix [depth, pixels].
template <class T>
struct Windows {
  const T* data;  // the group's first channel of the first image
  const Convolution* c;

  using Line = Window;
  struct Depth {
    int64_t channel, y, x;
  };

  __device__ __forceinline__ Line line(int64_t pixel) const { return window_of(*c, pixel); }

  // Depths of a product fit 32 bits wherever its weights fit memory.
  __device__ __forceinline__ Depth depth(int64_t k) const {
    const auto kernel = static_cast<uint32_t>(c->kh * c->kw), kw = static_cast<uint32_t>(c->kw);
    const uint32_t channel = static_cast<uint32_t>(k) / kernel;
    const uint32_t rest = static_cast<uint32_t>(k) - channel * kernel, i = rest / kw;
    return {channel, i * c->dilation_h, (rest - i * kw) * c->dilation_w};
  }

  __device__ __forceinline__ T at(const Line& line, const Depth& depth) const {
    const int64_t y = line.y + depth.y, x = line.x + depth.x;
    if (y < 0 || y >= c->h || x < 0 || x >= c->w) return T{0};
    return data[((line.number * c->channels + depth.channel) * c->h + y) * c->w + x];
  }

  __device__ __forceinline__ bool runs_along_depth() const { return false; }
};

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
      for (int64_t k = 0; k < depth; ++k) sum += windows.at(window, windows.depth(k)) * weights[k];
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
