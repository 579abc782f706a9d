// Point functions: a thread makes one index's words, or one leaf of a row, down the path from its
// root. AES's table and the key's rounds lie in shared memory.
#include "kernels/cuda/aes.cuh"
#include "kernels/cuda/prelude.cuh"
#include "kernels/point/tree.cuh"

namespace veil {

__device__ __forceinline__ uint4 hashed(const Aes& aes, uint4 node, uint32_t side) {
  return hashed(aes, marked(node, side));
}

struct PointShape {
  int64_t party, index_bits, lane_bits, levels;
};

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
                                  uint4 second, uint64_t index, uint32_t* out) {
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
    store_block(out, level, marked(lost, on_left));
    right_bits |= (on_right & 1u) << level;
    const uint4 word = marked(lost, (on_right & mask) | (on_left & ~mask));
    ours = both(both(a, masked(both(a, b), mask)), masked(word, mask_of(ours.x)));
    theirs = both(both(c, masked(both(c, d), mask)), masked(word, mask_of(theirs.x)));
  }
  store_block(out, shape.levels, make_uint4(right_bits, 0, 0, 0));
  const uint4 a = hashed(aes, ours, 0), b = hashed(aes, theirs, 0);
  const uint32_t mask = mask_of(theirs.x);
  store_block(out, shape.levels + 1,
              shape.lane_bits == 2 ? leaf_word<uint32_t>(a, b, index, mask)
                                   : leaf_word<uint64_t>(a, b, index, mask));
}

// The hash of leaf `number` below a root, and what its control bit adds.
template <class T>
__device__ inline Numbers<T> leaf_numbers(const Aes& aes, const PointShape& shape, uint4 root,
                                          Blocks words, int64_t number) {
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
__device__ inline void make_rows(T* out, Blocks key, Blocks roots, Blocks words, const void* opened,
                                 int64_t opened_bits, int64_t count, int64_t width,
                                 const PointShape& shape) {
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
        leaf_numbers<T>(aes, shape, roots[e], words.from(e * (shape.levels + 2)), number);
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

extern "C" __global__ void veil_point_words(uint32_t* out, veil::Blocks key, veil::Blocks first,
                                            veil::Blocks second, const void* indices,
                                            int64_t word_bits, int64_t count,
                                            veil::PointShape shape) {
  __shared__ veil::AesTable table;
  __shared__ veil::AesSchedule schedule;
  veil::load_public_key(table, schedule, key);
  const veil::Aes aes = veil::aes_of(table, schedule, threadIdx.x % veil::kLanes);
  for (int64_t e = veil::grid_thread(); e < count; e += veil::grid_threads()) {
    const uint64_t index = word_bits == 64 ? static_cast<const uint64_t*>(indices)[e]
                                           : static_cast<const uint32_t*>(indices)[e];
    veil::make_words(aes, shape, first[e], second[e], index, out + 4 * e * (shape.levels + 2));
  }
}

extern "C" __global__ void veil_point_rows32(uint32_t* out, veil::Blocks key, veil::Blocks roots,
                                             veil::Blocks words, const void* opened,
                                             int64_t opened_bits, int64_t count, int64_t width,
                                             veil::PointShape shape) {
  veil::make_rows(out, key, roots, words, opened, opened_bits, count, width, shape);
}

extern "C" __global__ void veil_point_rows64(uint64_t* out, veil::Blocks key, veil::Blocks roots,
                                             veil::Blocks words, const void* opened,
                                             int64_t opened_bits, int64_t count, int64_t width,
                                             veil::PointShape shape) {
  veil::make_rows(out, key, roots, words, opened, opened_bits, count, width, shape);
}
