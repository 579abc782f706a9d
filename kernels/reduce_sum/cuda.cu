// Sums over whole dimensions. A thread takes an output and every parts-th term of its sum; where
// there are several parts they are added to zeros that are there already.
#include "kernels/cuda/prelude.cuh"
#include "kernels/cuda/strided.cuh"

namespace veil {

// `outer` walks over outputs and where their terms begin, `inner` over the terms of one output.
template <class T>
__device__ __forceinline__ void reduce_sum(T* out, const T* in, int64_t outputs, int64_t terms,
                                           int64_t parts, const Walk& outer, const Walk& inner) {
  for (int64_t i = grid_thread(); i < outputs * parts; i += grid_threads()) {
    const int64_t output = i / parts;
    const Offsets at = offsets_of(outer, static_cast<uint64_t>(output));
    T sum = 0;
    for (int64_t term = i - output * parts; term < terms; term += parts) {
      sum += in[at.in + offsets_of(inner, static_cast<uint64_t>(term)).in];
    }
    if (parts > 1) {
      add_to(out + at.out, sum);
    } else {
      out[at.out] = sum;
    }
  }
}

}  // namespace veil

extern "C" __global__ void veil_reduce_sum32(uint32_t* out, const uint32_t* in, int64_t outputs,
                                             int64_t terms, int64_t parts, veil::Walk outer,
                                             veil::Walk inner) {
  veil::reduce_sum(out, in, outputs, terms, parts, outer, inner);
}

extern "C" __global__ void veil_reduce_sum64(uint64_t* out, const uint64_t* in, int64_t outputs,
                                             int64_t terms, int64_t parts, veil::Walk outer,
                                             veil::Walk inner) {
  veil::reduce_sum(out, in, outputs, terms, parts, outer, inner);
}
