// AES-128 with the x86 instructions: 4 blocks an instruction with VAES, else one.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/aes.h"

namespace veil {

template <int Constant>
inline __m128i next_round_key(__m128i key) {
  const __m128i word = _mm_shuffle_epi32(_mm_aeskeygenassist_si128(key, Constant), 0xff);
  key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
  key = _mm_xor_si128(key, _mm_slli_si128(key, 8));
  return _mm_xor_si128(key, word);
}

inline AesKey aes_expand(const uint8_t* key) {
  AesKey expanded;
  auto* round = reinterpret_cast<__m128i*>(expanded.round);
  round[0] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(key));
  round[1] = next_round_key<kAesRoundConstants[0]>(round[0]);
  round[2] = next_round_key<kAesRoundConstants[1]>(round[1]);
  round[3] = next_round_key<kAesRoundConstants[2]>(round[2]);
  round[4] = next_round_key<kAesRoundConstants[3]>(round[3]);
  round[5] = next_round_key<kAesRoundConstants[4]>(round[4]);
  round[6] = next_round_key<kAesRoundConstants[5]>(round[5]);
  round[7] = next_round_key<kAesRoundConstants[6]>(round[6]);
  round[8] = next_round_key<kAesRoundConstants[7]>(round[7]);
  round[9] = next_round_key<kAesRoundConstants[8]>(round[8]);
  round[10] = next_round_key<kAesRoundConstants[9]>(round[9]);
  return expanded;
}

// A vector of blocks and what AES needs of it, for the widest instructions there are.
#if defined(__VAES__) && defined(__AVX512F__)
using AesVector = __m512i;
inline AesVector aes_repeat(__m128i block) { return _mm512_broadcast_i32x4(block); }
inline AesVector aes_xor(AesVector a, AesVector b) { return _mm512_xor_si512(a, b); }
inline AesVector aes_round(AesVector a, AesVector k) { return _mm512_aesenc_epi128(a, k); }
inline AesVector aes_last(AesVector a, AesVector k) { return _mm512_aesenclast_epi128(a, k); }
inline void aes_store(uint8_t* to, AesVector a) { _mm512_store_si512(to, a); }
inline AesVector aes_load(const uint8_t* from) { return _mm512_load_si512(from); }
inline AesVector aes_counters(uint64_t nonce, uint64_t block) {
  const auto n = static_cast<int64_t>(nonce);
  const auto b = static_cast<int64_t>(block);
  return _mm512_set_epi64(b + 3, n, b + 2, n, b + 1, n, b, n);
}
#else
using AesVector = __m128i;
inline AesVector aes_repeat(__m128i block) { return block; }
inline AesVector aes_xor(AesVector a, AesVector b) { return _mm_xor_si128(a, b); }
inline AesVector aes_round(AesVector a, AesVector k) { return _mm_aesenc_si128(a, k); }
inline AesVector aes_last(AesVector a, AesVector k) { return _mm_aesenclast_si128(a, k); }
inline void aes_store(uint8_t* to, AesVector a) {
  _mm_store_si128(reinterpret_cast<__m128i*>(to), a);
}
inline AesVector aes_load(const uint8_t* from) {
  return _mm_load_si128(reinterpret_cast<const __m128i*>(from));
}
inline AesVector aes_counters(uint64_t nonce, uint64_t block) {
  return _mm_set_epi64x(static_cast<int64_t>(block), static_cast<int64_t>(nonce));
}
#endif

constexpr int64_t kAesLanes = sizeof(AesVector) / 16;

// A key's rounds, each repeated for the blocks of a vector.
struct AesVectorKey {
  AesVector round[11];
};

inline AesVectorKey aes_vector_key(const AesKey& key) {
  AesVectorKey keys;
  for (int r = 0; r < 11; ++r) {
    keys.round[r] = aes_repeat(_mm_load_si128(reinterpret_cast<const __m128i*>(key.round[r])));
  }
  return keys;
}

// `Count` vectors in flight together, so that the rounds' latency is hidden.
template <int Count>
inline void aes_encrypt(const AesVector* keys, AesVector* state) {
  for (int i = 0; i < Count; ++i) state[i] = aes_xor(state[i], keys[0]);
  for (int r = 1; r < 10; ++r) {
    for (int i = 0; i < Count; ++i) state[i] = aes_round(state[i], keys[r]);
  }
  for (int i = 0; i < Count; ++i) state[i] = aes_last(state[i], keys[10]);
}

template <int Count>
inline void aes_keystream(const AesVector* keys, uint64_t nonce, uint64_t block, uint8_t* out) {
  AesVector state[Count];
  for (int i = 0; i < Count; ++i) state[i] = aes_counters(nonce, block + i * kAesLanes);
  aes_encrypt<Count>(keys, state);
  for (int i = 0; i < Count; ++i) {
    aes_store(out + i * static_cast<int64_t>(sizeof(AesVector)), state[i]);
  }
}

template <int Count>
inline void aes_hash_vectors(const AesVector* keys, uint8_t* at) {
  constexpr int64_t kBytes = sizeof(AesVector);
  AesVector given[Count], state[Count];
  for (int i = 0; i < Count; ++i) given[i] = state[i] = aes_load(at + i * kBytes);
  aes_encrypt<Count>(keys, state);
  for (int i = 0; i < Count; ++i) aes_store(at + i * kBytes, aes_xor(state[i], given[i]));
}

inline void aes_hash(const AesKey& key, uint8_t* at, int64_t count) {
  const AesVectorKey keys = aes_vector_key(key);
  const int64_t blocks = (count + 3) / 4 * 4;
  int64_t done = 0;
  for (; done + 8 * kAesLanes <= blocks; done += 8 * kAesLanes) {
    aes_hash_vectors<8>(keys.round, at + 16 * done);
  }
  for (; done < blocks; done += 4) aes_hash_vectors<4 / kAesLanes>(keys.round, at + 16 * done);
}

inline void aes_counter(const AesKey& key, const CounterRows& rows) {
  const AesVectorKey expanded = aes_vector_key(key);
  const AesVector* keys = expanded.round;
  const int64_t blocks = (rows.blocks + 3) / 4 * 4;  // rows have room for whole 64 bytes
  for (int64_t row = 0; row < rows.rows; ++row) {
    const uint64_t first = rows.first + static_cast<uint64_t>(row) * rows.row_step;
    uint8_t* out = rows.out + row * rows.out_step;
    int64_t done = 0;
    for (; done + 8 * kAesLanes <= blocks; done += 8 * kAesLanes) {
      aes_keystream<8>(keys, rows.nonce, first + done, out + 16 * done);
    }
    for (; done < blocks; done += 4) {
      aes_keystream<4 / kAesLanes>(keys, rows.nonce, first + done, out + 16 * done);
    }
  }
}

}  // namespace veil
