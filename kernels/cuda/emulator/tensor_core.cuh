// The emulator's bodies of kernels/cuda/tensor_core.cuh, whose head has the layout of fragments.
//
// Asynchronous copies are as late as they may be: each is made by the wait that covers it, so that
// a missing wait shows. Dynamic shared memory is junk when a block begins.
//
// What no kernel has an own version of is in tensor_core.cu, which is compiled once for all of
// them.
#pragma once
#include "kernels/cuda/emulator/device.cuh"
#include "kernels/cuda/emulator/fibers.cuh"

namespace veil::emulator {

inline uint8_t* dynamic_shared() { return Launch::now().dynamic_shared(); }

void copy_later(SharedAddress to, const void* from, int valid, int bytes);

template <int Bytes>
void copy_async(SharedAddress to, const void* from, int valid) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
  copy_later(to, from, valid, Bytes);
}

template <int Bytes>
void copy_async(SharedAddress to, const void* from) {
  copy_async<Bytes>(to, from, Bytes);
}

void end_copies();

// Makes the copies of all groups but the last `pending`.
void make_copies(size_t pending);

template <int Pending>
void wait_for_copies() {
  make_copies(Pending);
}

void load_matrices(uint32_t (&to)[4], SharedAddress line);

// The factors of a warp as matrices: rows of a and columns of b, 32 depths each.
struct Factors {
  int16_t a[16][32], b[8][32];
};

inline void widen(int16_t* to, uint32_t bytes) {
  for (unsigned i = 0; i < 4; ++i) to[i] = static_cast<int8_t>(bytes >> 8 * i);
}

// Whether factors are all zero, as the rows and columns are that fill up a tile.
inline bool are_zero(const int16_t (&factors)[32]) {
  uint64_t words[8], bits = 0;
  std::memcpy(words, factors, sizeof words);
  for (const uint64_t word : words) bits |= word;
  return bits == 0;
}

// Adds products of rows and columns: sums[2 i + j] is that of row i and column j. The one place
// where the emulator spends its time.
inline void add_dots(int32_t* sums, const int16_t (&row)[32], const int16_t (&other)[32],
                     const int16_t (&column)[32], const int16_t (&next)[32]) {
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

void multiply_bytes(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

}  // namespace veil::emulator
