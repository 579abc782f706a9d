// The operands of matmul as its launches pass them.
#pragma once

#include "kernels/gemm/tiled.cuh"

namespace veil {

constexpr int kMaxPairs = 4;  // of a launch; kernels/matmul/cuda.py has it too

// A factor: its address, and its strides in elements over batch, rows or columns, and depth.
struct Factor {
  uint64_t data;
  int64_t batch_stride, stride, depth_stride;

  template <class T>
  __device__ __forceinline__ Strided<T> entry(int64_t batch) const {
    return {reinterpret_cast<const T*>(data) + batch * batch_stride, stride, depth_stride};
  }

  // The same strides at an address, if it is one.
  __device__ __forceinline__ Factor at(uint64_t address) const {
    return {address ? address : data, batch_stride, stride, depth_stride};
  }
};

struct Pair {
  Factor a, b;
  int64_t depth;
  uint64_t a_addend, b_addend;  // where a factor is a sum, its second term's address, or zero
};

struct Pairs {
  int64_t count;
  Pair pair[kMaxPairs];
};

}  // namespace veil
