// The emulator's bodies of kernels/cuda/hopper.cuh, whose head has the layout of sums.
//
// What is asynchronous is as late as it may be. A copy in bulk is made by the wait for the barrier
// that tells of it, and its destination is junk from the moment it is asked for, so that a stage
// that is handed back too early shows. Products are made by the wait that covers them.
//
// What no kernel has an own version of is in hopper.cu, which is compiled once for all of them.
#pragma once
#include "kernels/cuda/emulator/device.cuh"
#include "kernels/cuda/emulator/fibers.cuh"
#include "kernels/cuda/emulator/tensor_core.cuh"

namespace veil::emulator {

constexpr unsigned kGroup = 128;
constexpr uint64_t kSwizzle64 = 2;

void make_barrier(SharedAddress address, int arrivals);
inline void show_barriers() {}
void arrive(SharedAddress address);
void arrive_and_expect(SharedAddress address, int bytes);
void wait_for_phase(SharedAddress address, unsigned parity);

void copy_in_bulk(SharedAddress to, const void* from, int bytes, SharedAddress barrier);
void copy_in_bulk_to(unsigned blocks, SharedAddress to, const void* from, int bytes,
                     SharedAddress barrier);

template <int Blocks>
void copy_in_bulk_to_all(SharedAddress to, const void* from, int bytes, SharedAddress barrier) {
  copy_in_bulk_to(Blocks, to, from, bytes, barrier);
}

inline unsigned rank_in_cluster() { return Launch::now().rank(); }
void wait_for_cluster();
void arrive_in(SharedAddress barrier, unsigned rank);
void wait_for_group(int number);

// As the PTX ISA has it, but for addresses, which count from dynamic shared memory.
uint64_t matrix_at(SharedAddress address);

// As matrix_at, but of core matrices of 8 lines of 16 bytes.
uint64_t core_matrices_at(SharedAddress address, int next_half, int next_lines);

inline void show_words() {}
void begin_products();
void multiply_bytes(int32_t (&c)[128], uint64_t a, uint64_t b);
void multiply_held(int32_t* c, unsigned count, const uint32_t (&a)[4], uint64_t b);

template <int Sums>
void multiply_bytes(int32_t (&c)[Sums], const uint32_t (&a)[4], uint64_t b) {
  multiply_held(c, Sums, a, b);
}

void end_products();

// Makes the products of all bundles but the last `pending`. A warp's are done when all of its
// threads have made theirs.
void make_products(size_t pending);

template <int Pending>
void wait_for_products() {
  make_products(Pending);
}

// Sums may be read once no product that adds to them is under way.
void require_sums(const int32_t* sums);

template <int Sums>
void take_sums(int32_t (&sums)[Sums]) {
  require_sums(sums);
}

}  // namespace veil::emulator
