// One value to every element of a strided output.
#include "kernels/cuda/prelude.cuh"
#include "kernels/cuda/strided.cuh"

extern "C" __global__ void veil_fill32(uint32_t* out, uint64_t value, int64_t count,
                                       veil::Walk walk) {
  veil::for_each_offset(walk, count,
                        [=](int64_t to, int64_t) { out[to] = static_cast<uint32_t>(value); });
}

extern "C" __global__ void veil_fill64(uint64_t* out, uint64_t value, int64_t count,
                                       veil::Walk walk) {
  veil::for_each_offset(walk, count, [=](int64_t to, int64_t) { out[to] = value; });
}
