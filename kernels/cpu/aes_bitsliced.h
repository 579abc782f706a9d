// AES-128 on any processor: 128 blocks at a time, bit i of byte j of all of them in one vector.
#pragma once
#include <cstring>

#include "kernels/cpu/aes.h"
#include "kernels/cpu/aes_sbox.h"
#include "kernels/cpu/bit_matrix.h"

namespace veil {

using AesPlane = uint64_t __attribute__((vector_size(16)));
constexpr int kAesBatch = 128;

inline AesKey aes_expand(const uint8_t* key) {
  AesKey expanded;
  std::memcpy(expanded.round[0], key, 16);
  for (int r = 1; r < 11; ++r) {
    const uint8_t* last = expanded.round[r - 1];
    uint64_t planes[8] = {};  // the four bytes of RotWord, side by side
    for (int i = 0; i < 4; ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        planes[bit] |= uint64_t{(last[12 + (i + 1) % 4] >> bit) & 1u} << i;
      }
    }
    aes_sbox(planes, ~uint64_t{0});
    for (int i = 0; i < 16; ++i) {
      uint8_t add = i < 4 ? 0 : expanded.round[r][i - 4];
      if (i < 4) {
        for (int bit = 0; bit < 8; ++bit) add |= ((planes[bit] >> i) & 1) << bit;
      }
      if (i == 0) add ^= kAesRoundConstants[r - 1];
      expanded.round[r][i] = last[i] ^ add;
    }
  }
  return expanded;
}

inline AesPlane aes_all(bool bit) {
  const uint64_t half = bit ? ~uint64_t{0} : 0;
  return AesPlane{half, half};
}

// state[byte][bit]; the byte of row r and column c is r + 4c, as in FIPS 197.
using AesState = AesPlane[16][8];

inline void aes_add_round_key(AesState& state, const uint8_t* key) {
  for (int i = 0; i < 16; ++i) {
    for (int bit = 0; bit < 8; ++bit) state[i][bit] ^= aes_all((key[i] >> bit) & 1);
  }
}

inline void aes_sub_bytes_shift_rows(AesState& state) {
  AesState shifted;
  for (int i = 0; i < 16; ++i) {
    aes_sbox(state[i], aes_all(true));
    const int row = i % 4, column = (i / 4 + 4 - row) % 4;
    std::memcpy(shifted[row + 4 * column], state[i], sizeof(state[i]));
  }
  std::memcpy(state, shifted, sizeof(state));
}

// Each byte of a column becomes 2 (a + b) + b + c + d, where b, c, d follow a.
inline void aes_mix_columns(AesState& state) {
  for (int column = 0; column < 16; column += 4) {
    AesPlane in[4][8];
    std::memcpy(in, state[column], sizeof(in));
    for (int row = 0; row < 4; ++row) {
      const AesPlane* a = in[row];
      const AesPlane* b = in[(row + 1) % 4];
      const AesPlane* c = in[(row + 2) % 4];
      const AesPlane* d = in[(row + 3) % 4];
      const AesPlane top = a[7] ^ b[7];
      for (int bit = 0; bit < 8; ++bit) {
        AesPlane twice = bit == 0 ? top : a[bit - 1] ^ b[bit - 1];
        if (bit == 1 || bit == 3 || bit == 4) twice ^= top;  // modulo x^8 + x^4 + x^3 + x + 1
        state[column + row][bit] = twice ^ b[bit] ^ c[bit] ^ d[bit];
      }
    }
  }
}

inline void aes_encrypt(AesState& state, const AesKey& key) {
  aes_add_round_key(state, key.round[0]);
  for (int r = 1; r < 10; ++r) {
    aes_sub_bytes_shift_rows(state);
    aes_mix_columns(state);
    aes_add_round_key(state, key.round[r]);
  }
  aes_sub_bytes_shift_rows(state);
  aes_add_round_key(state, key.round[10]);
}

inline void aes_load_half(AesState& state, int half, const uint64_t* low, const uint64_t* high) {
  alignas(64) uint64_t words[64];
  for (int byte = 0; byte < 16; byte += 8) {
    std::memcpy(words, byte == 0 ? low : high, sizeof(words));
    transpose_64x64(words);
    for (int bit = 0; bit < 64; ++bit) state[byte + bit / 8][bit % 8][half] = words[bit];
  }
}

// Encrypts 128 blocks in place; low[i] and high[i] are the two halves of block i.
inline void aes_batch(const AesKey& key, uint64_t* low, uint64_t* high) {
  alignas(64) uint64_t words[64];
  AesState state;
  for (int half = 0; half < 2; ++half) {
    aes_load_half(state, half, low + 64 * half, high + 64 * half);
  }
  aes_encrypt(state, key);
  for (int half = 0; half < 2; ++half) {
    for (int bit = 0; bit < 64; ++bit) words[bit] = state[bit / 8][bit % 8][half];
    transpose_64x64(words);
    std::memcpy(low + 64 * half, words, sizeof(words));
    for (int bit = 0; bit < 64; ++bit) words[bit] = state[8 + bit / 8][bit % 8][half];
    transpose_64x64(words);
    std::memcpy(high + 64 * half, words, sizeof(words));
  }
}

inline void aes_hash(const AesKey& key, uint8_t* at, int64_t count) {
  uint64_t low[kAesBatch] = {}, high[kAesBatch] = {}, block[2];
  for (int64_t start = 0; start < count; start += kAesBatch) {
    const int64_t blocks = count - start < kAesBatch ? count - start : kAesBatch;
    for (int64_t i = 0; i < blocks; ++i) {
      std::memcpy(block, at + 16 * (start + i), 16);
      low[i] = block[0], high[i] = block[1];
    }
    aes_batch(key, low, high);
    for (int64_t i = 0; i < blocks; ++i) {
      std::memcpy(block, at + 16 * (start + i), 16);
      block[0] ^= low[i], block[1] ^= high[i];
      std::memcpy(at + 16 * (start + i), block, 16);
    }
  }
}

// The blocks of all rows make one list, so that short rows fill a batch together.
inline void aes_counter(const AesKey& key, const CounterRows& rows) {
  const int64_t total = rows.rows * rows.blocks;
  uint64_t low[kAesBatch] = {}, high[kAesBatch] = {};
  for (int64_t start = 0; start < total; start += kAesBatch) {
    const int64_t count = total - start < kAesBatch ? total - start : kAesBatch;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = (start + i) / rows.blocks, block = (start + i) % rows.blocks;
      low[i] = rows.nonce;
      high[i] =
          rows.first + static_cast<uint64_t>(row) * rows.row_step + static_cast<uint64_t>(block);
    }
    aes_batch(key, low, high);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = (start + i) / rows.blocks, block = (start + i) % rows.blocks;
      uint8_t* to = rows.out + row * rows.out_step + 16 * block;
      std::memcpy(to, &low[i], 8);
      std::memcpy(to + 8, &high[i], 8);
    }
  }
}

}  // namespace veil
