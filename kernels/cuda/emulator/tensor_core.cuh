// The emulator's bodies of kernels/cuda/tensor_core.cuh, whose head has the layout of fragments.
//
// Asynchronous copies are as late as they may be: each is made by the wait that covers it, so that
// a missing wait shows. Dynamic shared memory is junk when a block begins.
#pragma once
#include <cstring>

#include "kernels/cuda/emulator/device.cuh"
#include "kernels/cuda/emulator/fibers.cuh"

namespace veil::emulator {

inline uint8_t* dynamic_shared() { return Launch::now().dynamic_shared(); }

template <int Bytes>
void copy_async(SharedAddress to, const void* from, int valid) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
  const auto source = reinterpret_cast<uintptr_t>(from);
  const uint8_t* shared = dynamic_shared();
  const auto offset = to - reinterpret_cast<uintptr_t>(shared);
  if (to % Bytes != 0 || source % Bytes != 0) Launch::fail("an asynchronous copy is not aligned");
  if (valid < 0 || valid > Bytes) Launch::fail("an asynchronous copy of more than its bytes");
  if (offset + Bytes > Launch::now().shared_bytes()) {
    Launch::fail("an asynchronous copy beside dynamic shared memory");
  }
  Launch::now().fiber().copies.push_back(
      {reinterpret_cast<uint8_t*>(to), static_cast<const uint8_t*>(from), Bytes, valid});
}

template <int Bytes>
void copy_async(SharedAddress to, const void* from) {
  copy_async<Bytes>(to, from, Bytes);
}

inline void end_copies() {
  Fiber& fiber = Launch::now().fiber();
  fiber.groups.push_back(fiber.copies.size());
}

template <int Pending>
void wait_for_copies() {
  Fiber& fiber = Launch::now().fiber();
  if (fiber.groups.size() <= Pending) return;
  const size_t ended = fiber.groups.size() - Pending, count = fiber.groups[ended - 1];
  for (size_t i = 0; i < count; ++i) {
    const Copy& copy = fiber.copies[i];
    std::memset(copy.to, 0, static_cast<size_t>(copy.bytes));
    if (copy.valid > 0) std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.valid));
  }
  fiber.copies.erase(fiber.copies.begin(), fiber.copies.begin() + static_cast<ptrdiff_t>(count));
  fiber.groups.erase(fiber.groups.begin(), fiber.groups.begin() + static_cast<ptrdiff_t>(ended));
  for (size_t& group : fiber.groups) group -= count;
}

inline void load_matrices(uint32_t (&to)[4], SharedAddress line) {
  if (line % 16 != 0) Launch::fail("a line of a matrix is not aligned");
  Launch& launch = Launch::now();
  Fiber& me = launch.fiber();
  const unsigned lane = me.number % kWarp;
  uint64_t* lines = launch.warp().slots[me.parity ^= 1];
  lines[lane] = line;
  launch.wait_for_warp();
  for (unsigned m = 0; m < 4; ++m) {
    const auto* from = reinterpret_cast<const uint8_t*>(lines[8 * m + lane / 4]);
    std::memcpy(&to[m], from + 4 * (lane % 4), 4);
  }
}

// The factors of a warp as matrices: rows of a and columns of b, 32 depths each.
struct Factors {
  int16_t a[16][32], b[8][32];
};

inline void widen(int16_t* to, uint32_t bytes) {
  for (unsigned i = 0; i < 4; ++i) to[i] = static_cast<int8_t>(bytes >> 8 * i);
}

// Adds products of rows and columns: sums[2 i + j] is that of row i and column j. The one place
// where the emulator spends its time.
__attribute__((optimize("O3"))) inline void add_dots(int32_t* sums, const int16_t (&row)[32],
                                                     const int16_t (&other)[32],
                                                     const int16_t (&column)[32],
                                                     const int16_t (&next)[32]) {
  int32_t found[4] = {};
  for (int k = 0; k < 32; ++k) {
    found[0] += int32_t{row[k]} * int32_t{column[k]};
    found[1] += int32_t{row[k]} * int32_t{next[k]};
    found[2] += int32_t{other[k]} * int32_t{column[k]};
    found[3] += int32_t{other[k]} * int32_t{next[k]};
  }
  for (int i = 0; i < 4; ++i) {
    sums[i] =
        static_cast<int32_t>(static_cast<uint32_t>(sums[i]) + static_cast<uint32_t>(found[i]));
  }
}

inline void multiply_bytes(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  Launch& launch = Launch::now();
  Fiber& me = launch.fiber();
  const unsigned lane = me.number % kWarp, group = lane / 4, place = lane % 4;
  auto& factors = *reinterpret_cast<Factors*>(launch.warp().factors[me.parity ^= 1]);
  for (unsigned i = 0; i < 4; ++i) {
    widen(&factors.a[group + 8 * (i % 2)][4 * place + 16 * (i / 2)], a[i]);
  }
  for (unsigned i = 0; i < 2; ++i) widen(&factors.b[group][4 * place + 16 * i], b[i]);
  launch.wait_for_warp();
  add_dots(c, factors.a[group], factors.a[group + 8], factors.b[2 * place],
           factors.b[2 * place + 1]);
}

}  // namespace veil::emulator
