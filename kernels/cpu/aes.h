// AES-128 in counter mode (FIPS 197, SP 800-38A): the source of every draw of randomness. And as a
// permutation under a key that is public: a hash of seeds.
//
// A counter block is, little endian, run (32 bits) | draw (32) | block (64). All versions run in
// time that depends on no key and no data: the processor's AES instructions, or a bit-sliced
// circuit.
#pragma once
#include <cstdint>

namespace veil {

struct AesKey {
  alignas(16) uint8_t round[11][16];
};

// Keystream blocks first + row * row_step + [0, blocks), for each of `rows` rows, to
// out + row * out_step. Each row has room for a multiple of 64 bytes, which may all be written.
struct CounterRows {
  uint64_t nonce;  // run | draw << 32
  uint64_t first;
  uint64_t row_step;
  int64_t rows;
  int64_t blocks;
  uint8_t* out;      // aligned to 64 bytes
  int64_t out_step;  // bytes, a multiple of 64
};

constexpr uint8_t kAesRoundConstants[10] = {1, 2, 4, 8, 16, 32, 64, 128, 27, 54};

// Each declared by one of the two files below.
inline AesKey aes_expand(const uint8_t* key);
inline void aes_counter(const AesKey& key, const CounterRows& rows);

// Each of `count` blocks x from `at` on, aligned to 64 bytes, becomes AES(x) ^ x. There is room for
// a multiple of 4 blocks, which may all be written.
inline void aes_hash(const AesKey& key, uint8_t* at, int64_t count);

}  // namespace veil

#if defined(__AES__)
#include "kernels/cpu/aes_x86.h"
#else
#include "kernels/cpu/aes_bitsliced.h"
#endif
