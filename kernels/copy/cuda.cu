// Strided copies. A thread takes an element, neighbours in the output's memory take neighbours.
#include "kernels/cuda/prelude.cuh"
#include "kernels/cuda/strided.cuh"

namespace veil {

template <class T>
__device__ __forceinline__ void copy_words(T* out, const T* in, int64_t count, const Walk& walk) {
  for_each_offset(walk, count, [=](int64_t to, int64_t from) { out[to] = in[from]; });
}

}  // namespace veil

// Runs of 32-bit words, both sides aligned to 16 bytes.
extern "C" __global__ void veil_copy_run(uint32_t* out, const uint32_t* in, int64_t words) {
  const int64_t vectors = words / 4;
  auto* to = reinterpret_cast<uint4*>(out);
  const auto* from = reinterpret_cast<const uint4*>(in);
  const int64_t thread = veil::grid_thread();
  for (int64_t i = thread; i < vectors; i += veil::grid_threads()) to[i] = from[i];
  if (thread < words % 4) out[4 * vectors + thread] = in[4 * vectors + thread];
}

extern "C" __global__ void veil_copy_words32(uint32_t* out, const uint32_t* in, int64_t count,
                                             veil::Walk walk) {
  veil::copy_words(out, in, count, walk);
}

extern "C" __global__ void veil_copy_words64(uint64_t* out, const uint64_t* in, int64_t count,
                                             veil::Walk walk) {
  veil::copy_words(out, in, count, walk);
}
