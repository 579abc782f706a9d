// Comparison functions: a thread makes one threshold's words, or a party's part at one point, down
// the path from its root. AES's table and the key's rounds lie in shared memory.
#include "kernels/cuda/aes.cuh"
#include "kernels/cuda/prelude.cuh"
#include "kernels/point/tree.cuh"

namespace veil {

constexpr int kMostPayloads = 3;
constexpr int64_t kPoints = 4;  // of a leaf

struct CompareShape {
  int64_t party, index_bits, payloads, levels, rows, count;
  int64_t rings[kMostPayloads];  // bits of each
};

// A row of words of either width.
struct AnyWords {
  const void* at;
  int64_t bits;

  __device__ __forceinline__ uint64_t operator[](int64_t i) const {
    return bits == 64 ? static_cast<const uint64_t*>(at)[i] : static_cast<const uint32_t*>(at)[i];
  }
};

struct AnyRows {
  AnyWords of[kMostPayloads];
};

// A node's seed, with these lowest two bits.
__device__ __forceinline__ uint4 tagged(uint4 node, uint32_t tag) {
  return make_uint4((node.x & ~3u) | tag, node.y, node.z, node.w);
}

__device__ __forceinline__ uint4 child_of(uint4 hash, uint4 parent, uint4 word) {
  return both(tagged(hash, hash.x & 1u), masked(word, mask_of(parent.x)));
}

// A number modulo a payload's ring.
template <class T>
__device__ __forceinline__ T in_ring(const CompareShape& s, int i, T number) {
  return number & static_cast<T>(~uint64_t{0} >> (64 - s.rings[i]));
}

template <class T>
struct Payloads {
  T of[kMostPayloads];
};

// What a node has for all payloads.
template <class T>
__device__ __forceinline__ Payloads<T> numbers_at(const Aes& aes, uint4 node, uint32_t tag,
                                                  int64_t payloads) {
  constexpr int kCount = Numbers<T>::kCount;
  Payloads<T> found = {};
#pragma unroll
  for (int b = 0; b * kCount < kMostPayloads; ++b) {
    if (b * kCount >= payloads) break;
    const uint4 seed = make_uint4(node.x ^ static_cast<uint32_t>(b) << 2, node.y, node.z, node.w);
    const Numbers<T> block = numbers_of(hashed(aes, tagged(seed, tag)), T{});
#pragma unroll
    for (int i = 0; i < kCount && b * kCount + i < kMostPayloads; ++i) {
      found.of[b * kCount + i] = block.of[i];
    }
  }
  return found;
}

// -x where the mask is set.
template <class T>
__device__ __forceinline__ T negated(T x, uint32_t mask) {
  const T flip = static_cast<T>(static_cast<int32_t>(mask));
  return (x ^ flip) - flip;
}

template <class T>
__device__ inline void make_words(const Aes& aes, const CompareShape& s, uint4 first, uint4 second,
                                  uint64_t threshold, const AnyRows& given, int64_t e, T* out) {
  uint4 nodes[2] = {tagged(first, 0), tagged(second, 1)};
  auto* seeds = reinterpret_cast<uint32_t*>(out);
  T* sections = out + s.levels * Numbers<T>::kCount * s.count;
  T own[kMostPayloads], so_far[kMostPayloads] = {};
  for (int i = 0; i < s.payloads; ++i) own[i] = static_cast<T>(given.of[i][e]);
  for (int64_t level = 0; level < s.levels; ++level) {
    const auto turn = static_cast<uint32_t>(threshold >> (s.index_bits - 1 - level)) & 1u;
    const uint32_t right = mask_of(turn), sign = mask_of(nodes[1].x);
    const T wide = static_cast<T>(static_cast<int32_t>(right));
    Payloads<T> values[2][2];
    uint4 children[2][2];
    for (int j = 0; j < 2; ++j) {
      for (uint32_t side = 0; side < 2; ++side) {
        values[j][side] = numbers_at<T>(aes, nodes[j], 2 + side, s.payloads);
        children[j][side] = hashed(aes, tagged(nodes[j], side));
      }
    }
    for (int i = 0; i < s.payloads; ++i) {
      const T on_left = values[1][0].of[i] - values[0][0].of[i];
      const T on_right = values[1][1].of[i] - values[0][1].of[i];
      const T which = (on_left ^ on_right) & wide;
      const T lost = on_right ^ which, kept = on_left ^ which;
      const T number = negated<T>(lost - so_far[i] + (own[i] & wide), sign);
      so_far[i] += negated<T>(number, sign) - kept;
      sections[(i * s.rows + level) * s.count + e] = in_ring(s, i, number);
    }
    const uint4 left = both(children[0][0], children[1][0]);
    const uint4 other = both(children[0][1], children[1][1]);
    const uint4 lost = both(other, masked(both(left, other), right));
    const uint32_t on_left = (left.x ^ turn ^ 1u) & 1u, on_right = (other.x ^ turn) & 1u;
    store_block(seeds, level * s.count + e, tagged(lost, on_left | on_right << 1));
    const uint4 word = tagged(lost, (on_right & right) | (on_left & ~right));
    for (int j = 0; j < 2; ++j) {
      const uint4 apart = both(children[j][0], children[j][1]);
      nodes[j] = child_of(both(children[j][0], masked(apart, right)), nodes[j], word);
    }
  }
  const uint64_t place = threshold & static_cast<uint64_t>(kPoints - 1);
  const uint32_t sign = mask_of(nodes[1].x);
  for (int64_t point = 0; point < kPoints; ++point) {
    const auto tag = static_cast<uint32_t>(point);
    const Payloads<T> ours = numbers_at<T>(aes, nodes[0], tag, s.payloads);
    const Payloads<T> theirs = numbers_at<T>(aes, nodes[1], tag, s.payloads);
    const auto below = static_cast<T>(0) - static_cast<T>((point - place) >> 63);
    for (int i = 0; i < s.payloads; ++i) {
      const T number = theirs.of[i] - ours.of[i] - so_far[i] + (own[i] & below);
      sections[(i * s.rows + s.levels + point) * s.count + e] =
          in_ring(s, i, negated<T>(number, sign));
    }
  }
}

template <class T>
__device__ inline void make_parts(const Aes& aes, const CompareShape& s, uint4 root,
                                  uint64_t threshold, Blocks seeds, const AnyRows& words, int64_t e,
                                  T* out) {
  uint4 node = tagged(root, static_cast<uint32_t>(s.party));
  T total[kMostPayloads] = {};
  const auto add = [&](int64_t row, uint32_t tag) {
    const Payloads<T> own = numbers_at<T>(aes, node, tag, s.payloads);
    const T control = static_cast<T>(static_cast<int32_t>(mask_of(node.x)));
    for (int i = 0; i < s.payloads; ++i) {
      total[i] += own.of[i] + (static_cast<T>(words.of[i][row * s.count + e]) & control);
    }
  };
  for (int64_t level = 0; level < s.levels; ++level) {
    const auto turn = static_cast<uint32_t>(threshold >> (s.index_bits - 1 - level)) & 1u;
    add(level, 2 + turn);
    const uint4 word = seeds[level * s.count + e];
    node = child_of(hashed(aes, tagged(node, turn)), node, tagged(word, word.x >> turn & 1u));
  }
  const uint64_t place = threshold & static_cast<uint64_t>(kPoints - 1);
  add(s.levels + static_cast<int64_t>(place), static_cast<uint32_t>(place));
  for (int i = 0; i < s.payloads; ++i) {
    out[i * s.count + e] = in_ring<T>(s, i, s.party == 1 ? T{0} - total[i] : total[i]);
  }
}

template <class T>
__device__ inline void make_all_words(T* out, Blocks key, Blocks first, Blocks second,
                                      AnyWords thresholds, const AnyRows& payloads,
                                      const CompareShape& shape) {
  __shared__ AesTable table;
  __shared__ AesSchedule schedule;
  load_public_key(table, schedule, key);
  const Aes aes = aes_of(table, schedule, threadIdx.x % kLanes);
  for (int64_t e = grid_thread(); e < shape.count; e += grid_threads()) {
    make_words(aes, shape, first[e], second[e], thresholds[e], payloads, e, out);
  }
}

template <class T>
__device__ inline void make_all_parts(T* out, Blocks key, Blocks roots, AnyWords points,
                                      Blocks seeds, const AnyRows& words,
                                      const CompareShape& shape) {
  __shared__ AesTable table;
  __shared__ AesSchedule schedule;
  load_public_key(table, schedule, key);
  const Aes aes = aes_of(table, schedule, threadIdx.x % kLanes);
  for (int64_t e = grid_thread(); e < shape.count; e += grid_threads()) {
    make_parts(aes, shape, roots[e], points[e], seeds, words, e, out);
  }
}

}  // namespace veil

extern "C" __global__ void veil_compare_words32(uint32_t* out, veil::Blocks key, veil::Blocks first,
                                                veil::Blocks second, veil::AnyWords thresholds,
                                                veil::AnyRows payloads, veil::CompareShape shape) {
  veil::make_all_words(out, key, first, second, thresholds, payloads, shape);
}

extern "C" __global__ void veil_compare_words64(uint64_t* out, veil::Blocks key, veil::Blocks first,
                                                veil::Blocks second, veil::AnyWords thresholds,
                                                veil::AnyRows payloads, veil::CompareShape shape) {
  veil::make_all_words(out, key, first, second, thresholds, payloads, shape);
}

extern "C" __global__ void veil_compare_parts32(uint32_t* out, veil::Blocks key, veil::Blocks roots,
                                                veil::AnyWords points, veil::Blocks seeds,
                                                veil::AnyRows words, veil::CompareShape shape) {
  veil::make_all_parts(out, key, roots, points, seeds, words, shape);
}

extern "C" __global__ void veil_compare_parts64(uint64_t* out, veil::Blocks key, veil::Blocks roots,
                                                veil::AnyWords points, veil::Blocks seeds,
                                                veil::AnyRows words, veil::CompareShape shape) {
  veil::make_all_parts(out, key, roots, points, seeds, words, shape);
}
