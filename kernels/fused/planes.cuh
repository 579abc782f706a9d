// Bit registers of a printed fused program: up to 32 planes of a tile in one register a part.
//
//     lane j holds plane j: bit e of its word c is element 32 c + e of the tile
//
// Gates then do 32 planes of 32 elements an instruction, as many bits as there are, and memory and
// draws are in this order already. Words meet bits by transposing 32 x 32 bits among a warp's
// lanes.
#pragma once

#include "kernels/cuda/aes.cuh"
#include "kernels/fused/words.cuh"

namespace veil {

struct Planes {
  uint32_t at[kParts];
};

template <class F>
__device__ __forceinline__ Planes each_word(F f) {
  Planes out;
#pragma unroll
  for (int c = 0; c < kParts; ++c) out.at[c] = f(c);
  return out;
}

__device__ __forceinline__ Planes operator^(const Planes& a, const Planes& b) {
  return each_word([&](int c) { return a.at[c] ^ b.at[c]; });
}

__device__ __forceinline__ Planes operator&(const Planes& a, const Planes& b) {
  return each_word([&](int c) { return a.at[c] & b.at[c]; });
}

__device__ __forceinline__ Planes operator~(const Planes& a) {
  return each_word([&](int c) { return ~a.at[c]; });
}

__device__ __forceinline__ Planes all_planes(bool bit) {
  return each_word([&](int) { return bit ? ~0u : 0u; });
}

// Lane l <- lane (step l + start) % 32.
__device__ __forceinline__ Planes moved(const Tile& tile, const Planes& a, int step, int start) {
  const unsigned from = (step * static_cast<int>(tile.lane) + start) % kLanes;
  return each_word([&](int c) { return __shfl_sync(kAllLanes, a.at[c], from); });
}

// Lanes of `mask` from a, the others from b.
__device__ __forceinline__ Planes merged(const Tile& tile, uint32_t mask, const Planes& a,
                                         const Planes& b) {
  const bool mine = mask >> tile.lane & 1;
  return each_word([&](int c) { return mine ? a.at[c] : b.at[c]; });
}

// Bit i of lane j <-> bit j of lane i: blocks beside the diagonal change places, ever smaller ones.
__device__ __forceinline__ uint32_t transposed(uint32_t x, unsigned lane) {
#pragma unroll
  for (unsigned size = 16; size > 0; size /= 2) {
    const uint32_t low = 0xffffffffu / ((1u << size) + 1);
    const uint32_t keep = lane & size ? ~low : low;
    const uint32_t other = __shfl_xor_sync(kAllLanes, x, size);
    const uint32_t turned = __funnelshift_l(other, other, lane & size ? 32 - size : size);
    x = (x & keep) | (turned & ~keep);
  }
  return x;
}

// Lane j <- bit low + j of each word, for j < 32.
template <class T>
__device__ __forceinline__ Planes pack(const Tile& tile, const Words<T>& a, int low) {
  return each_word(
      [&](int c) { return transposed(static_cast<uint32_t>(a.at[c] >> low), tile.lane); });
}

// Each word <- sum over lanes j < count of its bit in plane j, shifted up by low + j.
template <class T>
__device__ __forceinline__ Words<T> unpack(const Tile& tile, const Planes& a, int count, int low) {
  const bool mine = static_cast<int>(tile.lane) < count;
  return each_part<T>(
      [&](int c) { return static_cast<T>(transposed(mine ? a.at[c] : 0, tile.lane)) << low; });
}

// a where plane `plane` is 1, else b.
template <class T>
__device__ __forceinline__ Words<T> select(const Tile& tile, const Planes& bits, int plane,
                                           const Words<T>& a, const Words<T>& b) {
  return each_part<T>([&](int c) {
    const uint32_t word = __shfl_sync(kAllLanes, bits.at[c], plane);
    return word >> tile.lane & 1 ? a.at[c] : b.at[c];
  });
}

// The 64-bit words of a plane that a tile has: two, but for the last tile's.
__device__ __forceinline__ int64_t words_left(const Tile& tile) {
  return (tile.elements + 63) / 64 - tile.first / 64;
}

// Lane j < count <- plane start + step j, planes `plane_words` 64-bit words apart. Other lanes load
// the first plane and drop it: with branches nvcc takes minutes for a program of many planes.
__device__ __forceinline__ Planes load_planes(const Tile& tile, const uint8_t* from,
                                              uint64_t plane_words, int start, int step,
                                              int count) {
  const int lane = static_cast<int>(tile.lane);
  const bool mine = lane < count, more = words_left(tile) > 1;
  const auto* words = reinterpret_cast<const uint2*>(from) +
                      static_cast<int64_t>(start + step * (mine ? lane : 0)) * plane_words +
                      tile.first / 64;
  const uint2 low = words[0], high = words[more];
  const uint32_t first = mine ? ~0u : 0u, second = mine && more ? ~0u : 0u;
  return {{low.x & first, low.y & first, high.x & second, high.y & second}};
}

// Plane start + step j <- lane from_lane + j, for j < count; bits behind the last element are zero.
__device__ __forceinline__ void store_planes(const Tile& tile, uint8_t* to, uint64_t plane_words,
                                             int start, int step, int from_lane, int count,
                                             const Planes& a) {
  const int j = static_cast<int>(tile.lane) - from_lane;
  if (j < 0 || j >= count) return;
  auto* words = reinterpret_cast<uint2*>(to) +
                static_cast<int64_t>(start + step * j) * plane_words + tile.first / 64;
  const int64_t left = tile.elements - tile.first;
  const Planes kept = each_word([&](int c) {
    const int64_t valid = left - kLanes * c;
    if (valid >= kLanes) return a.at[c];
    return valid > 0 ? a.at[c] & ((1u << valid) - 1) : 0u;
  });
  words[0] = uint2{kept.at[0], kept.at[1]};
  if (words_left(tile) > 1) words[1] = uint2{kept.at[2], kept.at[3]};
}

// The lane, hidden from the compiler: what is worked out from it is then not kept in registers from
// one tile to the next.
__device__ __forceinline__ unsigned hidden_lane(const Tile& tile) {
  unsigned lane = tile.lane;
  asm volatile("" : "+r"(lane));
  return lane;
}

// The plane of a draw that a lane makes, under which of the program's keys.
struct DrawnPlane {
  unsigned key;
  uint64_t draw;
  int64_t plane;
};

// Plane start + step j of a draw to lane from_lane + j.
__device__ __forceinline__ DrawnPlane drawn_plane(const Tile& tile, unsigned key, uint64_t draw,
                                                  int64_t start, int step, int from_lane) {
  return {key, draw, start + step * (static_cast<int>(hidden_lane(tile)) - from_lane)};
}

// b from lane `lane` up, a below it.
__device__ __forceinline__ DrawnPlane from_lane(const Tile& tile, unsigned lane,
                                                const DrawnPlane& a, const DrawnPlane& b) {
  const bool above = hidden_lane(tile) >= lane;
  return {above ? b.key : a.key, above ? b.draw : a.draw, above ? b.plane : a.plane};
}

// Each lane's plane, for lanes below `count`: block p * ceil(elements / 128) begins plane p.
__device__ __forceinline__ Planes draw_planes(const Tile& tile, const AesTable& table,
                                              const AesSchedule* keys, const DrawnPlane& mine,
                                              unsigned count) {
  if (tile.lane >= count) return all_planes(false);
  const int64_t plane_blocks = (tile.elements + kTile - 1) / kTile;
  const Aes aes = aes_of(table, keys[mine.key], tile.lane);
  const uint4 block = aes.counter(mine.draw, mine.plane * plane_blocks + tile.first / kTile);
  return {{block.x, block.y, block.z, block.w}};
}

// Element `element` of type L of the 32 blocks that the lanes of a warp hold, one each.
template <class L>
__device__ __forceinline__ L element_of(const uint4& block, unsigned element) {
  const unsigned byte = element * sizeof(L), from = byte / 16 % kLanes;
  const uint32_t x = __shfl_sync(kAllLanes, block.x, from);
  const uint32_t y = __shfl_sync(kAllLanes, block.y, from);
  const uint32_t z = __shfl_sync(kAllLanes, block.z, from);
  const uint32_t w = __shfl_sync(kAllLanes, block.w, from);
  const uint64_t half = byte & 8 ? uint64_t{w} << 32 | z : uint64_t{y} << 32 | x;
  return static_cast<L>(half >> byte % 8 * 8);
}

// Lanes of type L, zero-extended. A tile takes 8 sizeof(L) blocks: up to 32 of them a turn, a lane
// each, and elements are fetched from whoever made them.
template <class T, class L>
__device__ __forceinline__ Words<T> draw_words(const Tile& tile, const Aes& aes, uint64_t draw) {
  constexpr int kBlocks = 8 * sizeof(L), kTurns = (kBlocks + kLanes - 1) / kLanes;
  constexpr int kEach = kParts / kTurns;  // parts a turn
  const int64_t first = tile.first * static_cast<int64_t>(sizeof(L)) / 16 + tile.lane;
  Words<T> out = all_words<T>(0);
#pragma unroll 1  // the second turn is the same code; a part's number must be known to the compiler
  for (int turn = 0; turn < kTurns; ++turn) {
    const uint4 block = aes.counter(draw, first + kLanes * turn);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const T value = element_of<L>(block, kLanes * i + tile.lane);
#pragma unroll
      for (int c = i; c < kParts; c += kEach) {
        if (c / kEach == turn) out.at[c] = value;
      }
    }
  }
  return out;
}

}  // namespace veil
