// What every CUDA source begins with: the compiler's own CUDA, or the host's stand-in for it.
#pragma once

#if defined(__CUDACC__)
#include <cstdint>

namespace veil {
using SharedAddress = uint32_t;  // of shared memory, as its instructions take them
}
#else
#include "kernels/cuda/emulator/device.cuh"
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

// Atomic additions modulo 2^32 and 2^64.
__device__ __forceinline__ void add_to(uint32_t* at, uint32_t value) { atomicAdd(at, value); }

__device__ __forceinline__ void add_to(uint64_t* at, uint64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
}

}  // namespace veil
