// Trees of blocks on a GPU: a node is a seed and, as its lowest bit, a control bit.
#pragma once

#include "kernels/cuda/aes.cuh"
#include "kernels/cuda/prelude.cuh"

namespace veil {

// Blocks of 128 bits that lie among words, wherever a word may. A vector is loaded from multiples
// of 16 bytes alone, on a GPU.
struct Blocks {
  const uint32_t* at;

  __device__ __forceinline__ uint4 operator[](int64_t i) const {
    const uint32_t* of = at + 4 * i;
    return make_uint4(of[0], of[1], of[2], of[3]);
  }

  __device__ __forceinline__ Blocks from(int64_t i) const { return {at + 4 * i}; }
};

__device__ __forceinline__ void store_block(uint32_t* blocks, int64_t i, uint4 block) {
  uint32_t* to = blocks + 4 * i;
  to[0] = block.x, to[1] = block.y, to[2] = block.z, to[3] = block.w;
}

// One round key after another (FIPS 197, section 5.2), by one thread; S(a) is an entry's middle.
__device__ inline void expand_aes_key(const AesTable& table, const uint4& key, AesSchedule& to) {
  uint4 k = key;
  uint32_t constant = 1;
  to.round[0] = k;
  for (int r = 1; r < 11; ++r) {
    uint32_t turned = 0;  // SubWord(RotWord(the last word))
    for (int i = 0; i < 4; ++i) {
      const uint32_t byte = k.w >> 8 * ((i + 1) % 4) & 0xff;
      turned |= (table.at[byte][0] >> 8 & 0xff) << 8 * i;
    }
    k.x ^= turned ^ constant;
    k.y ^= k.x;
    k.z ^= k.y;
    k.w ^= k.z;
    to.round[r] = k;
    constant = aes_times_x(constant);
  }
}

// By all threads of a block, before any of them hashes.
__device__ inline void load_public_key(AesTable& table, AesSchedule& schedule, Blocks key) {
  fill_aes_table(table);
  __syncthreads();
  if (threadIdx.x == 0) expand_aes_key(table, key[0], schedule);
  __syncthreads();
}

__device__ __forceinline__ uint4 both(uint4 a, uint4 b) {
  return make_uint4(a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w);
}

__device__ __forceinline__ uint4 masked(uint4 a, uint32_t mask) {
  return make_uint4(a.x & mask, a.y & mask, a.z & mask, a.w & mask);
}

// All bits as the lowest of `bit` is.
__device__ __forceinline__ uint32_t mask_of(uint32_t bit) { return 0u - (bit & 1u); }

// A node's seed, with this control bit.
__device__ __forceinline__ uint4 marked(uint4 node, uint32_t bit) {
  return make_uint4((node.x & ~1u) | (bit & 1u), node.y, node.z, node.w);
}

// AES(x) XOR x.
__device__ __forceinline__ uint4 hashed(const Aes& aes, uint4 x) { return both(aes.encrypt(x), x); }

// The numbers of a block, of 128 >> LaneBits bits.
template <class T>
struct Numbers {
  static constexpr int kCount = 16 / sizeof(T);
  T of[kCount];
};

__device__ __forceinline__ Numbers<uint32_t> numbers_of(uint4 b, uint32_t) {
  return {{b.x, b.y, b.z, b.w}};
}

__device__ __forceinline__ Numbers<uint64_t> numbers_of(uint4 b, uint64_t) {
  return {{b.x | static_cast<uint64_t>(b.y) << 32, b.z | static_cast<uint64_t>(b.w) << 32}};
}

__device__ __forceinline__ uint4 block_of(const Numbers<uint32_t>& n) {
  return make_uint4(n.of[0], n.of[1], n.of[2], n.of[3]);
}

__device__ __forceinline__ uint4 block_of(const Numbers<uint64_t>& n) {
  return make_uint4(static_cast<uint32_t>(n.of[0]), static_cast<uint32_t>(n.of[0] >> 32),
                    static_cast<uint32_t>(n.of[1]), static_cast<uint32_t>(n.of[1] >> 32));
}

}  // namespace veil
