// Point functions: a thread makes one index's words, or one leaf of a row, down the path from its
// root. AES's table and the key's rounds lie in shared memory.
#include "kernels/cuda/aes.cuh"
#include "kernels/cuda/prelude.cuh"

namespace veil {

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
__device__ inline void load_public_key(AesTable& table, AesSchedule& schedule, const uint4* key) {
  fill_aes_table(table);
  __syncthreads();
  if (threadIdx.x == 0) expand_aes_key(table, *key, schedule);
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

__device__ __forceinline__ uint4 hashed(const Aes& aes, uint4 node, uint32_t side) {
  const uint4 x = marked(node, side);
  return both(aes.encrypt(x), x);
}

struct PointShape {
  int64_t party, index_bits, lane_bits, levels;
};

// The numbers of a leaf, of 128 >> LaneBits bits.
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

// unit - ours + theirs, negated where the mask is set.
template <class T>
__device__ __forceinline__ uint4 leaf_word(uint4 ours, uint4 theirs, uint64_t index,
                                           uint32_t mask) {
  Numbers<T> a = numbers_of(ours, T{}), b = numbers_of(theirs, T{});
  const auto lane = static_cast<uint32_t>(index) & (Numbers<T>::kCount - 1);
#pragma unroll
  for (uint32_t i = 0; i < Numbers<T>::kCount; ++i) {
    const T unit = ((i ^ lane) - 1) >> 31;
    const T flip = static_cast<T>(static_cast<int32_t>(mask));
    a.of[i] = ((unit - a.of[i] + b.of[i]) ^ flip) - flip;
  }
  return block_of(a);
}

__device__ inline void make_words(const Aes& aes, const PointShape& shape, uint4 first,
                                  uint4 second, uint64_t index, uint4* out) {
  index &= (uint64_t{1} << shape.index_bits) - 1;
  uint4 ours = marked(first, 0), theirs = marked(second, 1);
  uint32_t right_bits = 0;
  for (int64_t level = 0; level < shape.levels; ++level) {
    const auto turn = static_cast<uint32_t>(index >> (shape.index_bits - 1 - level)) & 1u;
    const uint32_t mask = mask_of(turn);
    const uint4 a = hashed(aes, ours, 0), b = hashed(aes, ours, 1);
    const uint4 c = hashed(aes, theirs, 0), d = hashed(aes, theirs, 1);
    const uint4 left = both(a, c), right = both(b, d);
    const uint4 lost = both(right, masked(both(left, right), mask));
    const uint32_t on_left = left.x ^ turn ^ 1, on_right = right.x ^ turn;
    out[level] = marked(lost, on_left);
    right_bits |= (on_right & 1u) << level;
    const uint4 word = marked(lost, (on_right & mask) | (on_left & ~mask));
    ours = both(both(a, masked(both(a, b), mask)), masked(word, mask_of(ours.x)));
    theirs = both(both(c, masked(both(c, d), mask)), masked(word, mask_of(theirs.x)));
  }
  out[shape.levels] = make_uint4(right_bits, 0, 0, 0);
  const uint4 a = hashed(aes, ours, 0), b = hashed(aes, theirs, 0);
  const uint32_t mask = mask_of(theirs.x);
  out[shape.levels + 1] = shape.lane_bits == 2 ? leaf_word<uint32_t>(a, b, index, mask)
                                               : leaf_word<uint64_t>(a, b, index, mask);
}

// The hash of leaf `number` below a root, and what its control bit adds.
template <class T>
__device__ inline Numbers<T> leaf_numbers(const Aes& aes, const PointShape& shape, uint4 root,
                                          const uint4* words, int64_t number) {
  uint4 node = marked(root, static_cast<uint32_t>(shape.party));
  const uint32_t right_bits = words[shape.levels].x;
  for (int64_t level = 0; level < shape.levels; ++level) {
    const auto side = static_cast<uint32_t>(number >> (shape.levels - 1 - level)) & 1u;
    uint4 word = words[level];
    if (side != 0) word = marked(word, right_bits >> level);
    node = both(hashed(aes, node, side), masked(word, mask_of(node.x)));
  }
  const T control = static_cast<T>(static_cast<int32_t>(mask_of(node.x)));
  Numbers<T> leaf = numbers_of(hashed(aes, node, 0), T{});
  const Numbers<T> last = numbers_of(words[shape.levels + 1], T{});
#pragma unroll
  for (int i = 0; i < Numbers<T>::kCount; ++i) {
    leaf.of[i] += last.of[i] & control;
    if (shape.party == 1) leaf.of[i] = T{0} - leaf.of[i];
  }
  return leaf;
}

// `opened_bits` is the width of the words c, 0 where there are none.
template <class T>
__device__ inline void make_rows(T* out, const uint4* key, const uint4* roots, const uint4* words,
                                 const void* opened, int64_t opened_bits, int64_t count,
                                 int64_t width, const PointShape& shape) {
  __shared__ AesTable table;
  __shared__ AesSchedule schedule;
  load_public_key(table, schedule, key);
  const Aes aes = aes_of(table, schedule, threadIdx.x % kLanes);
  const int64_t all = int64_t{1} << shape.index_bits;
  const int64_t lanes = Numbers<T>::kCount;
  const int64_t leaves = ((opened_bits ? all : width) + lanes - 1) / lanes;
  for (int64_t i = grid_thread(); i < count * leaves; i += grid_threads()) {
    const int64_t e = i / leaves, number = i - e * leaves;
    const Numbers<T> leaf =
        leaf_numbers<T>(aes, shape, roots[e], words + e * (shape.levels + 2), number);
    uint64_t c = 0;
    if (opened_bits == 32) c = static_cast<const uint32_t*>(opened)[e];
    if (opened_bits == 64) c = static_cast<const uint64_t*>(opened)[e];
    for (int64_t lane = 0; lane < lanes && number * lanes + lane < all; ++lane) {
      const int64_t at = number * lanes + lane;
      const int64_t place =
          opened_bits ? static_cast<int64_t>((c - static_cast<uint64_t>(at)) & (all - 1)) : at;
      if (place < width) out[e * width + place] = leaf.of[lane];
    }
  }
}

}  // namespace veil

extern "C" __global__ void veil_point_words(uint4* out, const uint4* key, const uint4* first,
                                            const uint4* second, const void* indices,
                                            int64_t word_bits, int64_t count,
                                            veil::PointShape shape) {
  __shared__ veil::AesTable table;
  __shared__ veil::AesSchedule schedule;
  veil::load_public_key(table, schedule, key);
  const veil::Aes aes = veil::aes_of(table, schedule, threadIdx.x % veil::kLanes);
  for (int64_t e = veil::grid_thread(); e < count; e += veil::grid_threads()) {
    const uint64_t index = word_bits == 64 ? static_cast<const uint64_t*>(indices)[e]
                                           : static_cast<const uint32_t*>(indices)[e];
    veil::make_words(aes, shape, first[e], second[e], index, out + e * (shape.levels + 2));
  }
}

extern "C" __global__ void veil_point_rows32(uint32_t* out, const uint4* key, const uint4* roots,
                                             const uint4* words, const void* opened,
                                             int64_t opened_bits, int64_t count, int64_t width,
                                             veil::PointShape shape) {
  veil::make_rows(out, key, roots, words, opened, opened_bits, count, width, shape);
}

extern "C" __global__ void veil_point_rows64(uint64_t* out, const uint4* key, const uint4* roots,
                                             const uint4* words, const void* opened,
                                             int64_t opened_bits, int64_t count, int64_t width,
                                             veil::PointShape shape) {
  veil::make_rows(out, key, roots, words, opened, opened_bits, count, width, shape);
}
