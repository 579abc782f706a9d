// What every CUDA source begins with: the compiler's own CUDA, or the host's stand-in for it.
#pragma once

#if defined(__CUDACC__)
#include <cstdint>
#else
#include "kernels/cuda/shim/device.cuh"
#endif

namespace veil {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kLanes = 32;

// The thread's number in a grid of one dimension, and the grid's size.
__device__ __forceinline__ int64_t grid_thread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ int64_t grid_threads() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace veil
