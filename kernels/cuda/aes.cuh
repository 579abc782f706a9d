// AES-128 in counter mode on a GPU (FIPS 197, SP 800-38A): the same stream as kernels/cpu/aes.h.
//
// A thread encrypts a block of its own. Rounds are looked up in one table of 32-bit words (J.
// Daemen and V. Rijmen, "The Design of Rijndael", section 4.2) that lies in shared memory once for
// each lane of a warp, in that lane's bank: no two lanes ever wait for each other, so the time of a
// look-up depends on neither key nor data. Table entries for the other rows are rotations.
#pragma once

#include "kernels/cuda/prelude.cuh"

namespace veil {

struct AesWords {
  uint32_t of[256];
};

// a times x in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1.
__host__ __device__ constexpr uint32_t aes_times_x(uint32_t a) {
  return (a << 1 ^ (a >> 7) * 0x11b) & 0xff;
}

// For each byte a column of MixColumns: 2 S(a), S(a), S(a), 3 S(a), from the lowest byte up.
constexpr AesWords aes_words() {
  uint8_t power[256] = {}, log[256] = {};
  uint32_t unit = 1;
  for (int i = 0; i < 255; ++i) {
    power[i] = static_cast<uint8_t>(unit);
    log[unit] = static_cast<uint8_t>(i);
    unit ^= aes_times_x(unit);  // times 3, which generates the units
  }
  AesWords words = {};
  for (int a = 0; a < 256; ++a) {
    const uint32_t inverse = a == 0 ? 0 : power[(255 - log[a]) % 255];
    uint32_t s = 0x63;
    for (int k = 0; k < 5; ++k) s ^= (inverse << k | inverse >> (8 - k)) & 0xff;
    const uint32_t twice = aes_times_x(s);
    words.of[a] = twice | s << 8 | s << 16 | (twice ^ s) << 24;
  }
  return words;
}

__device__ const AesWords kAesWords = aes_words();

// In shared memory: entry `byte` of lane `lane`.
struct AesTable {
  uint32_t at[256][kLanes];
};

struct AesSchedule {
  uint4 round[11];
};

// By all threads of a block, which then meet (__syncthreads) before they use it.
__device__ __forceinline__ void fill_aes_table(AesTable& table) {
  for (unsigned i = threadIdx.x; i < 256 * kLanes; i += blockDim.x) {
    table.at[i / kLanes][i % kLanes] = kAesWords.of[i / kLanes];
  }
}

__device__ __forceinline__ void load_aes_schedule(AesSchedule& to, const AesSchedule* schedules,
                                                  uint64_t number) {
  if (threadIdx.x < 11) to.round[threadIdx.x] = schedules[number].round[threadIdx.x];
}

// The same for `counter`: with the inference's number, the first word of every counter block, in
// the first round key. What differs between blocks is left, and nothing has to keep the number.
__device__ __forceinline__ void load_draw_schedule(AesSchedule& to, const AesSchedule* schedules,
                                                   uint64_t number, const uint64_t* run) {
  load_aes_schedule(to, schedules, number);
  if (threadIdx.x == 0) to.round[0].x ^= static_cast<uint32_t>(*run);
}

__device__ __forceinline__ uint32_t rotate_left(uint32_t x, unsigned count) {
  return __funnelshift_l(x, x, count);
}

// What one thread needs of a block's shared memory: its lane's entries, and a key.
struct Aes {
  SharedAddress entries;  // of the lane's first
  const AesSchedule* key;

  // The entry of one byte of x. A dot product of bytes takes the byte out, multiplies it and adds
  // the lane's place in one instruction, where other units than those of shifts and logic are.
  template <int Number>
  __device__ __forceinline__ uint32_t word(uint32_t x) const {
    constexpr uint32_t kRow = sizeof(AesTable::at[0]);
    static_assert(kRow < 256);
    const SharedAddress place = __dp4a(x, kRow << 8 * Number, entries);
    return *static_cast<const uint32_t*>(__cvta_shared_to_generic(place));
  }

  // A column of a round from the four bytes that ShiftRows brings into it.
  __device__ __forceinline__ uint32_t column(uint32_t a, uint32_t b, uint32_t c, uint32_t d,
                                             uint32_t key_word) const {
    return key_word ^ word<0>(a) ^ rotate_left(word<1>(b), 8) ^ rotate_left(word<2>(c), 16) ^
           rotate_left(word<3>(d), 24);
  }

  // The same without MixColumns: S(a) is the middle bytes of an entry.
  __device__ __forceinline__ uint32_t last_column(uint32_t a, uint32_t b, uint32_t c, uint32_t d,
                                                  uint32_t key_word) const {
    const uint32_t low = __byte_perm(word<0>(a), word<1>(b), 0x0051);
    const uint32_t high = __byte_perm(word<2>(c), word<3>(d), 0x0051);
    const uint32_t bytes = __byte_perm(low, high, 0x5410);
    return bytes ^ key_word;
  }

  __device__ __forceinline__ uint4 encrypt(uint4 s) const {
    const uint4 first = key->round[0];
    s = make_uint4(s.x ^ first.x, s.y ^ first.y, s.z ^ first.z, s.w ^ first.w);
#pragma unroll 1  // a program has many draws, and an instruction cache not much room
    for (int r = 1; r < 10; ++r) {
      const uint4 k = key->round[r];
      s = make_uint4(column(s.x, s.y, s.z, s.w, k.x), column(s.y, s.z, s.w, s.x, k.y),
                     column(s.z, s.w, s.x, s.y, k.z), column(s.w, s.x, s.y, s.z, k.w));
    }
    const uint4 k = key->round[10];
    return make_uint4(last_column(s.x, s.y, s.z, s.w, k.x), last_column(s.y, s.z, s.w, s.x, k.y),
                      last_column(s.z, s.w, s.x, s.y, k.z), last_column(s.w, s.x, s.y, s.z, k.w));
  }

  // Block `block` of a draw, by a key of `load_draw_schedule`.
  __device__ __forceinline__ uint4 counter(uint64_t draw, uint64_t block) const {
    return encrypt(make_uint4(0, static_cast<uint32_t>(draw), static_cast<uint32_t>(block),
                              static_cast<uint32_t>(block >> 32)));
  }
};

// The address is hidden from the compiler, which would otherwise add it up again at every look-up.
__device__ __forceinline__ Aes aes_of(const AesTable& table, const AesSchedule& key,
                                      unsigned lane) {
  auto entries = static_cast<SharedAddress>(__cvta_generic_to_shared(&table.at[0][lane]));
  asm("" : "+r"(entries));
  return {entries, &key};
}

}  // namespace veil
