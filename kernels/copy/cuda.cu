// Strided copies. A thread takes an element, neighbours in the output's memory take neighbours;
// where rows become columns, squares pass through shared memory so that both sides are walked in
// order.
#include "kernels/cuda/prelude.cuh"
#include "kernels/cuda/strided.cuh"

namespace veil {

template <class T>
__device__ __forceinline__ void copy_words(T* out, const T* in, int64_t count, const Walk& walk) {
  for_each_offset(walk, count, [=](int64_t to, int64_t from) { out[to] = in[from]; });
}

// A dimension along which the input runs (`lines` of it, `line_step` apart in the output), one
// along which the output runs (`runs`, `run_step` apart in the input), and `count` such planes.
struct Turn {
  int64_t lines, line_step, runs, run_step, count;
};

constexpr int kSquare = 32;
constexpr int kRowsAtOnce = 8;  // of a square, by 256 threads

template <class T>
__device__ __forceinline__ void copy_turned(T* out, const T* in, const Turn& turn,
                                            const Walk& walk) {
  __shared__ T square[kSquare][kSquare + 1];  // a word more, so that columns lie in all banks
  const int64_t across = (turn.lines + kSquare - 1) / kSquare;
  const int64_t down = (turn.runs + kSquare - 1) / kSquare;
  const int x = static_cast<int>(threadIdx.x) % kSquare,
            y = static_cast<int>(threadIdx.x) / kSquare;
  for (int64_t i = blockIdx.x; i < turn.count * across * down; i += gridDim.x) {
    const int64_t plane = i / (across * down), rest = i - plane * across * down;
    const int64_t line = rest % across * kSquare, run = rest / across * kSquare;
    const Offsets at = offsets_of(walk, static_cast<uint64_t>(plane));
    for (int k = y; k < kSquare; k += kRowsAtOnce) {
      const bool inside = line + x < turn.lines && run + k < turn.runs;
      if (inside) square[k][x] = in[at.in + line + x + (run + k) * turn.run_step];
    }
    __syncthreads();
    for (int k = y; k < kSquare; k += kRowsAtOnce) {
      const bool inside = line + k < turn.lines && run + x < turn.runs;
      if (inside) out[at.out + run + x + (line + k) * turn.line_step] = square[x][k];
    }
    __syncthreads();
  }
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

extern "C" __global__ void veil_copy_turned32(uint32_t* out, const uint32_t* in, veil::Turn turn,
                                              veil::Walk walk) {
  veil::copy_turned(out, in, turn, walk);
}

extern "C" __global__ void veil_copy_turned64(uint64_t* out, const uint64_t* in, veil::Turn turn,
                                              veil::Walk walk) {
  veil::copy_turned(out, in, turn, walk);
}
