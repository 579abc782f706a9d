// Trees of blocks: a node is a seed and, as its lowest bit, a control bit.
#pragma once
#include <cstdint>
#include <cstring>

#include "kernels/cpu/aes.h"

namespace veil {

struct PointBlock {
  uint64_t low, high;
};

inline PointBlock operator^(PointBlock a, PointBlock b) { return {a.low ^ b.low, a.high ^ b.high}; }

// All bits as `bit` is.
inline uint64_t mask_of(uint64_t bit) { return 0 - (bit & 1); }

inline PointBlock masked(PointBlock a, uint64_t mask) { return {a.low & mask, a.high & mask}; }

// `a` where the mask is set, else `b`.
inline PointBlock chosen(uint64_t mask, PointBlock a, PointBlock b) {
  return b ^ masked(a ^ b, mask);
}

// A node's seed, with this control bit.
inline PointBlock marked(PointBlock node, uint64_t bit) {
  return {(node.low & ~uint64_t{1}) | (bit & 1), node.high};
}

inline void hash(const AesKey& key, PointBlock* blocks, int64_t count) {
  aes_hash(key, reinterpret_cast<uint8_t*>(blocks), count);
}

// What turns the left and the right child of a node whose control bit is 1, level by level.
struct PointWords {
  const PointBlock* words;
  int64_t levels;

  PointBlock left(int64_t level) const { return words[level]; }
  PointBlock right(int64_t level) const { return marked(words[level], words[levels].low >> level); }
  PointBlock leaf() const { return words[levels + 1]; }
};

}  // namespace veil
