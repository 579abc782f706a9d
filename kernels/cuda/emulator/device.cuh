// The part of CUDA C++ that our kernels use, for a host compiler: the same text then runs over host
// memory, its blocks one after another and the threads of a block as fibers.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/cuda/emulator/fibers.cuh"

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __shared__ static thread_local
#define __restrict__ __restrict

#define threadIdx (::veil::emulator::Launch::now().fiber().thread)
#define blockIdx (::veil::emulator::Launch::now().fiber().block)
#define blockDim (::veil::emulator::Launch::now().block)
#define gridDim (::veil::emulator::Launch::now().grid)

struct alignas(8) uint2 {
  uint32_t x, y;
};

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};

inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

inline void __syncthreads() { ::veil::emulator::Launch::now().wait_for_block(); }

template <class T>
T __shfl_sync(unsigned, T value, unsigned lane) {
  return ::veil::emulator::exchange(value, lane);
}

template <class T>
T __shfl_xor_sync(unsigned, T value, unsigned distance) {
  return ::veil::emulator::exchange(value, threadIdx.x % ::veil::emulator::kWarp ^ distance);
}

inline void __syncwarp() { ::veil::emulator::Launch::now().wait_for_warp(); }

// Blocks run one after another and fibers hand over at barriers alone. For the types that CUDA has
// it for: uint64_t is another type than unsigned long long on Linux, and nvcc refuses it.
inline int atomicAdd(int* at, int value) { return std::exchange(*at, *at + value); }
inline unsigned atomicAdd(unsigned* at, unsigned value) { return std::exchange(*at, *at + value); }
inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long value) {
  return std::exchange(*at, *at + value);
}

inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, unsigned shift) {
  const uint64_t both = uint64_t{high} << 32 | low;
  return static_cast<uint32_t>(both << (shift % 32) >> 32);
}

inline uint32_t __umulhi(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t{a} * b >> 32);
}

// Byte i of the result is the one of b:a that nibble i of the selector numbers.
inline uint32_t __byte_perm(uint32_t a, uint32_t b, unsigned selector) {
  const uint64_t both = uint64_t{b} << 32 | a;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned number = selector >> 4 * i & 7;
    out |= static_cast<uint32_t>(both >> 8 * number & 0xff) << 8 * i;
  }
  return out;
}

inline float __int_as_float(int32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline int32_t __float_as_int(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }

// The bytes of a times those of b, added to c, which may be an address and wider here.
template <class T>
T __dp4a(uint32_t a, uint32_t b, T c) {
  for (int i = 0; i < 32; i += 8) c += (a >> i & 0xff) * (b >> i & 0xff);
  return c;
}

namespace veil {
using SharedAddress = uintptr_t;
}

inline size_t __cvta_generic_to_shared(const void* at) { return reinterpret_cast<size_t>(at); }
inline void* __cvta_shared_to_generic(size_t at) { return reinterpret_cast<void*>(at); }

namespace veil::emulator {

template <class T>
T take(const uint64_t* words) {
  static_assert(sizeof(T) % sizeof(uint64_t) == 0, "parameters are 64 bits wide");
  T value;
  std::memcpy(&value, words, sizeof(T));
  return value;
}

// Where each parameter begins in the buffer, in words, then where the last ends. No recursion over
// parameters, a tuple's among them: a fused program of a thousand takes a compiler minutes that
// way.
template <class... Parameters>
constexpr auto starts() {
  constexpr size_t sizes[] = {sizeof(Parameters) / sizeof(uint64_t)..., 0};
  std::array<size_t, sizeof...(Parameters) + 1> found{};
  for (size_t i = 0; i < sizeof...(Parameters); ++i) found[i + 1] = found[i] + sizes[i];
  return found;
}

template <class... Parameters, size_t... Places>
void call(void (*kernel)(Parameters...), const uint64_t* words, std::index_sequence<Places...>) {
  constexpr auto at = starts<Parameters...>();
  kernel(take<Parameters>(words + at[Places])...);
}

// Runs a kernel over a grid; false where the parameter buffer is not as long as its parameters.
template <class... Parameters>
bool launch(void (*kernel)(Parameters...), const unsigned* grid, const unsigned* block,
            unsigned cluster, size_t shared_bytes, const uint64_t* words, int64_t count) {
  if (count != static_cast<int64_t>(starts<Parameters...>().back())) return false;
  struct Call {
    void (*kernel)(Parameters...);
    const uint64_t* words;
  } state{kernel, words};
  auto body = [](void* given) {
    auto* c = static_cast<Call*>(given);
    call(c->kernel, c->words, std::index_sequence_for<Parameters...>{});
  };
  const Index blocks = {grid[0], grid[1], grid[2]}, threads = {block[0], block[1], block[2]};
  Launch(blocks, threads, cluster, shared_bytes, body, &state).run();
  return true;
}

}  // namespace veil::emulator

// A way in for each kernel of a source, written below it.
#define VEIL_EMULATOR_ENTRY(entry)                                                                \
  extern "C" bool emulator_##entry(const unsigned* grid, const unsigned* block, unsigned cluster, \
                                   uint64_t shared_bytes, const uint64_t* words, int64_t count) { \
    return ::veil::emulator::launch(entry, grid, block, cluster, shared_bytes, words, count);     \
  }
