// Sums over windows of an image: a thread an output, its window cut to the image.
#include "kernels/cuda/prelude.cuh"

namespace veil {

struct Pool : PoolSumParams {
  int64_t h, w, oh, ow;
};

struct Span {
  int64_t first, last;
};

// Of a window of `kernel` that begins at `start`, what lies in [0, extent).
__device__ __forceinline__ Span inside(int64_t start, int64_t kernel, int64_t extent) {
  const int64_t end = start + kernel;
  return {start < 0 ? 0 : start, end < extent ? end : extent};
}

template <class T>
__device__ __forceinline__ void pool_sum(T* out, const T* in, int64_t outputs, const Pool& p) {
  const int64_t pooled = p.oh * p.ow;
  for (int64_t i = grid_thread(); i < outputs; i += grid_threads()) {
    const int64_t image = i / pooled, rest = i - image * pooled, y = rest / p.ow;
    const Span rows = inside(y * p.stride_h - p.pad_top, p.kernel_h, p.h);
    const Span columns = inside((rest - y * p.ow) * p.stride_w - p.pad_left, p.kernel_w, p.w);
    const T* from = in + image * p.h * p.w;
    T sum = 0;
    for (int64_t row = rows.first; row < rows.last; ++row) {
      for (int64_t column = columns.first; column < columns.last; ++column) {
        sum += from[row * p.w + column];
      }
    }
    out[i] = sum;
  }
}

}  // namespace veil

extern "C" __global__ void veil_pool_sum32(uint32_t* out, const uint32_t* in, int64_t outputs,
                                           veil::Pool pool) {
  veil::pool_sum(out, in, outputs, pool);
}

extern "C" __global__ void veil_pool_sum64(uint64_t* out, const uint64_t* in, int64_t outputs,
                                           veil::Pool pool) {
  veil::pool_sum(out, in, outputs, pool);
}
