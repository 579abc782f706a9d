// A convolution's shapes, and its images as matrices of windows.
#pragma once

#include "kernels/cuda/prelude.cuh"

namespace veil {

constexpr int kMaxPairs = 4;  // of a launch; kernels/conv2d/cuda.py has it too

// Parameters, which the source begins with (kernels/cuda/source.py), and extents: images [batch,
// channels, h, w], weights [filters, channels / groups, kh, kw], outputs [batch, filters, oh, ow].
struct Convolution : Conv2dParams {
  int64_t batch, channels, h, w, filters, kh, kw, oh, ow;

  __device__ __forceinline__ int64_t group_channels() const { return channels / groups; }
  __device__ __forceinline__ int64_t group_filters() const { return filters / groups; }
  __device__ __forceinline__ int64_t depth() const { return group_channels() * kh * kw; }
  __device__ __forceinline__ int64_t image() const { return oh * ow; }
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

  // Null beside the image.
  __device__ __forceinline__ const T* address(const Line& line, const Depth& depth) const {
    const int64_t y = line.y + depth.y, x = line.x + depth.x;
    if (y < 0 || y >= c->h || x < 0 || x >= c->w) return nullptr;
    return data + ((line.number * c->channels + depth.channel) * c->h + y) * c->w + x;
  }

  __device__ __forceinline__ bool runs_along_depth() const { return false; }
};

struct Pair {
  uint64_t image, weights;
};

struct Pairs {
  int64_t count;
  Pair pair[kMaxPairs];
};

}  // namespace veil
