// Instructions of sm_90a alone, as kernels/cuda/tensor_core.cuh has those of sm_80: matrix products
// of a group of four warps, copies in bulk, and the barriers in shared memory that tell of them.
//
// A factor of wgmma lies in shared memory, and a 64-bit descriptor says where (PTX ISA, "Matrix
// Descriptor Format"): lines of 64 bytes, whose pieces of 16 are XORed by address bits 7 and 8 (the
// 64-byte swizzle), eight lines in 512 bytes. Sums are 64 x 256: thread l of warp w of the group,
// of g = l / 4 and t = l % 4, holds
//
//     c[4 j], c[4 j + 1]      row 16 w + g, columns 8 j + 2 t and 8 j + 2 t + 1
//     c[4 j + 2], c[4 j + 3]  the same, row 16 w + g + 8
#pragma once

#include "kernels/cuda/tensor_core.cuh"
#if !defined(__CUDACC__)
#include "kernels/cuda/emulator/hopper.cuh"
#endif

namespace veil {

constexpr int kGroup = 128;      // threads whose warps multiply together
constexpr int kGroupSums = 128;  // of a thread

#if defined(__CUDACC__)

// A barrier: 64 bits of shared memory. `arrivals` end a phase, once the bytes that they announced
// are there.
__device__ __forceinline__ void make_barrier(SharedAddress barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Barriers that this thread has made exist for copies from here on; other threads wait for it.
__device__ __forceinline__ void show_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arrive(SharedAddress barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and says how many bytes the phase is to wait for.
__device__ __forceinline__ void arrive_and_expect(SharedAddress barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Until the phase of this parity is over: 0 for the first; 1 is over from the start.
__device__ __forceinline__ void wait_for_phase(SharedAddress barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Copies a run to shared memory, and tells the barrier. Addresses and bytes are multiples of 16.
__device__ __forceinline__ void copy_in_bulk(SharedAddress to, const void* from, int bytes,
                                             SharedAddress barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// The block's number among those that see each other's shared memory, at the same places.
__device__ __forceinline__ unsigned rank_in_cluster() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Until all threads of all of them are here, with what they wrote.
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// Arrives at a barrier of the block with this rank. No words pass by that, only leave to write over
// what products have read: hence no scope of the cluster, which costs a fence.
__device__ __forceinline__ void arrive_in(SharedAddress barrier, unsigned rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// Copies a run to the same place in each of `Blocks` blocks, and tells the barrier of each.
template <int Blocks>
__device__ __forceinline__ void copy_in_bulk_to_all(SharedAddress to, const void* from, int bytes,
                                                    SharedAddress barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "h"(static_cast<uint16_t>((1 << Blocks) - 1))
      : "memory");
}

// Until all threads of a group are here; `number` 1 to 15 names the place.
__device__ __forceinline__ void wait_for_group(int number) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(kGroup) : "memory");
}

// Words that this thread has written to shared memory are seen by products and copies in bulk that
// begin behind the next barrier.
__device__ __forceinline__ void show_words() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The descriptor of lines of 64 bytes from an address on, of which it takes 32 bytes a line.
__device__ __forceinline__ uint64_t matrix_at(SharedAddress address) {
  return uint64_t{(address & 0x3ffff) >> 4} | uint64_t{1} << 16 | uint64_t{512 >> 4} << 32 |
         uint64_t{2} << 62;
}

// Before a group's first product, and after anything else has touched its sums.
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Ends a bundle of products; bundles are done in order.
__device__ __forceinline__ void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until all bundles but the latest `Pending` are done.
template <int Pending>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Behind the last wait: what reads these sums stays behind it. A wait names no register, so a
// compiler may otherwise move arithmetic on them in front of it.
template <int Sums>
__device__ __forceinline__ void take_sums(int32_t (&sums)[Sums]) {
#pragma unroll
  for (int i = 0; i < Sums; ++i) asm volatile("" : "+r"(sums[i])::"memory");
}

// Operands of products: sums that are read and written.
#define VEIL_EIGHT_SUMS(i)                                                                    \
  "+r"(c[i]), "+r"(c[i + 1]), "+r"(c[i + 2]), "+r"(c[i + 3]), "+r"(c[i + 4]), "+r"(c[i + 5]), \
      "+r"(c[i + 6]), "+r"(c[i + 7])

// c += a b on signed bytes, 64 x 256 sums of 32 products, modulo 2^32, by a wait that covers it.
__device__ __forceinline__ void multiply_bytes(int32_t (&c)[kGroupSums], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
      "%127}, "
      "%128, %129, adds;\n"
      "}"
      : VEIL_EIGHT_SUMS(0), VEIL_EIGHT_SUMS(8), VEIL_EIGHT_SUMS(16), VEIL_EIGHT_SUMS(24),
        VEIL_EIGHT_SUMS(32), VEIL_EIGHT_SUMS(40), VEIL_EIGHT_SUMS(48), VEIL_EIGHT_SUMS(56),
        VEIL_EIGHT_SUMS(64), VEIL_EIGHT_SUMS(72), VEIL_EIGHT_SUMS(80), VEIL_EIGHT_SUMS(88),
        VEIL_EIGHT_SUMS(96), VEIL_EIGHT_SUMS(104), VEIL_EIGHT_SUMS(112), VEIL_EIGHT_SUMS(120)
      : "l"(a), "l"(b));
}

#else

using emulator::arrive;
using emulator::arrive_and_expect;
using emulator::arrive_in;
using emulator::begin_products;
using emulator::copy_in_bulk;
using emulator::copy_in_bulk_to_all;
using emulator::end_products;
using emulator::make_barrier;
using emulator::matrix_at;
using emulator::multiply_bytes;
using emulator::rank_in_cluster;
using emulator::show_barriers;
using emulator::show_words;
using emulator::take_sums;
using emulator::wait_for_cluster;
using emulator::wait_for_group;
using emulator::wait_for_phase;
using emulator::wait_for_products;

#endif

}  // namespace veil
