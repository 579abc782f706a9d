// Products of a group of four warps whose left factor is in registers (sm_90a), for 80, 64 and 32
// columns: c of kernels/cuda/hopper.cuh, with as many columns, and a of the warp's 16 rows as
// kernels/cuda/tensor_core.cuh has it.
//
// The right factor lies without a swizzle: core matrices of 8 lines of 16 bytes (the PTX ISA's
// word), one after another, in steps that the descriptor tells (PTX ISA, "Matrix Descriptor
// Format").
#pragma once

#include "kernels/cuda/hopper.cuh"

namespace veil {

#if defined(__CUDACC__)

// The descriptor of 32 bytes a line in core matrices from an address on: so many bytes from the
// first 16 of them to the others, and from eight lines to the next.
__device__ __forceinline__ uint64_t core_matrices_at(SharedAddress address, int next_half,
                                                     int next_lines) {
  return uint64_t{(address & 0x3ffff) >> 4} | static_cast<uint64_t>(next_half >> 4) << 16 |
         static_cast<uint64_t>(next_lines >> 4) << 32;
}

// c += a b on signed bytes, 32 products a sum, modulo 2^32, by a wait that covers it; a stays as it
// is until then.
__device__ __forceinline__ void multiply_bytes(int32_t (&c)[40], const uint32_t (&a)[4],
                                               uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n80k32.s32.s8.s8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
      "%36, %37, %38, %39}, "
      "{%40, %41, %42, %43}, %44, adds;\n"
      "}"
      : VEIL_EIGHT_SUMS(0), VEIL_EIGHT_SUMS(8), VEIL_EIGHT_SUMS(16), VEIL_EIGHT_SUMS(24),
        VEIL_EIGHT_SUMS(32)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ void multiply_bytes(int32_t (&c)[32], const uint32_t (&a)[4],
                                               uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, adds;\n"
      "}"
      : VEIL_EIGHT_SUMS(0), VEIL_EIGHT_SUMS(8), VEIL_EIGHT_SUMS(16), VEIL_EIGHT_SUMS(24)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ void multiply_bytes(int32_t (&c)[16], const uint32_t (&a)[4],
                                               uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "{%16, %17, %18, %19}, %20, adds;\n"
      "}"
      : VEIL_EIGHT_SUMS(0), VEIL_EIGHT_SUMS(8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#else

using emulator::core_matrices_at;
using emulator::multiply_bytes;

#endif

}  // namespace veil
