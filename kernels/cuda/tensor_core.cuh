// Instructions of sm_80 that C++ has no words for, each a function with two bodies: PTX, and the
// emulator's, which does lane by lane what the PTX ISA says.
//
// Fragments of mma.m16n8k32 with 8-bit factors (PTX ISA, "Matrix fragments for mma.m16n8k32"): lane
// l, of group g = l / 4 and place t = l % 4, holds four neighbouring depths in each 32-bit word:
//
//     a[0], a[1]  rows g and g + 8, depths 4t .. 4t + 3        a[2], a[3]  the same, 16 deeper
//     b[0], b[1]  column g, depths 4t .. 4t + 3, and 16 deeper
//     c[0], c[1]  row g, columns 2t and 2t + 1                 c[2], c[3]  the same, row g + 8
//
// A matrix of ldmatrix is 8 lines of 16 bytes, and lane l gets bytes 4t .. 4t + 3 of line g: a
// fragment of a is four of them, one of b is two, where shared memory has 16 depths of a line side
// by side.
#pragma once

#include "kernels/cuda/prelude.cuh"
#if !defined(__CUDACC__)
#include "kernels/cuda/emulator/tensor_core.cuh"
#endif

namespace veil {

#if defined(__CUDACC__)

// The block's dynamic shared memory.
__device__ __forceinline__ uint8_t* dynamic_shared() {
  extern __shared__ __align__(1024) uint8_t veil_dynamic_shared[];
  return veil_dynamic_shared;
}

__device__ __forceinline__ SharedAddress shared_address(const void* at) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(at));
}

// A value that the compiler knows nothing about: what follows from it is computed where it is used,
// and takes no register before.
__device__ __forceinline__ int made_anew(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Copies `valid` of `Bytes` bytes to shared memory, zeros behind them, some time before a
// `wait_for_copies` that covers it. Both addresses are multiples of Bytes: 4, 8 or 16.
template <int Bytes>
__device__ __forceinline__ void copy_async(SharedAddress to, const void* from, int valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(Bytes),
               "r"(valid)
               : "memory");
}

// All of `Bytes` bytes.
template <int Bytes>
__device__ __forceinline__ void copy_async(SharedAddress to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(Bytes)
               : "memory");
}

// Ends a group of this thread's copies; groups are done in order.
__device__ __forceinline__ void end_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Until all of this thread's groups but the latest `Pending` are done.
template <int Pending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Four matrices of 8 lines of 16 bytes: lane l names line l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], SharedAddress line) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(line)
               : "memory");
}

// c += a b on signed bytes, 16 x 8 sums of 32 products, modulo 2^32.
__device__ __forceinline__ void multiply_bytes(int32_t (&c)[4], const uint32_t (&a)[4],
                                               const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#else

using emulator::copy_async;
using emulator::dynamic_shared;
using emulator::end_copies;
using emulator::load_matrices;
using emulator::multiply_bytes;
using emulator::wait_for_copies;

inline int made_anew(int value) { return value; }
inline SharedAddress shared_address(const void* at) { return __cvta_generic_to_shared(at); }

#endif

}  // namespace veil
