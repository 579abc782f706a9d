// Word registers of a printed fused program: a warp works on a tile of 128 elements.
//
//     lane l holds elements 32 c + l of the tile, for c < 4
//
// so that a warp reads and writes whole lines, four of them in flight a register, and a tile's 128
// bits of a plane are one AES block.
#pragma once

#include "kernels/cuda/prelude.cuh"

namespace veil {

constexpr int kParts = 4;                   // elements of a tile that a lane holds
constexpr int64_t kTile = kParts * kLanes;  // elements

struct Tile {
  int64_t first, elements;  // the tile's first element; of the program
  unsigned lane;

  __device__ __forceinline__ int64_t element(int part) const {
    return first + kLanes * part + lane;
  }
};

__device__ __forceinline__ Tile first_tile(int64_t elements) {
  return {grid_thread() / kLanes * kTile, elements, threadIdx.x % kLanes};
}

__device__ __forceinline__ int64_t tile_stride() { return grid_threads() / kLanes * kTile; }

template <class T>
struct Words {
  T at[kParts];
};

using W32 = Words<uint32_t>;
using W64 = Words<uint64_t>;

template <class T, class F>
__device__ __forceinline__ Words<T> each_part(F f) {
  Words<T> out;
#pragma unroll
  for (int c = 0; c < kParts; ++c) out.at[c] = f(c);
  return out;
}

template <class T>
__device__ __forceinline__ Words<T> all_words(uint64_t value) {
  return each_part<T>([&](int) { return static_cast<T>(value); });
}

// Zero-extended, or the low half.
template <class T, class From>
__device__ __forceinline__ Words<T> cast_words(const Words<From>& a) {
  return each_part<T>([&](int c) { return static_cast<T>(a.at[c]); });
}

template <class T>
__device__ __forceinline__ Words<T> operator+(const Words<T>& a, const Words<T>& b) {
  return each_part<T>([&](int c) { return a.at[c] + b.at[c]; });
}

template <class T>
__device__ __forceinline__ Words<T> operator-(const Words<T>& a, const Words<T>& b) {
  return each_part<T>([&](int c) { return a.at[c] - b.at[c]; });
}

template <class T>
__device__ __forceinline__ Words<T> operator*(const Words<T>& a, const Words<T>& b) {
  return each_part<T>([&](int c) { return a.at[c] * b.at[c]; });
}

template <class T>
__device__ __forceinline__ Words<T> operator&(const Words<T>& a, const Words<T>& b) {
  return each_part<T>([&](int c) { return a.at[c] & b.at[c]; });
}

template <class T>
__device__ __forceinline__ Words<T> operator|(const Words<T>& a, const Words<T>& b) {
  return each_part<T>([&](int c) { return a.at[c] | b.at[c]; });
}

template <class T>
__device__ __forceinline__ Words<T> operator^(const Words<T>& a, const Words<T>& b) {
  return each_part<T>([&](int c) { return a.at[c] ^ b.at[c]; });
}

template <class T>
__device__ __forceinline__ Words<T> operator-(const Words<T>& a) {
  return each_part<T>([&](int c) { return -a.at[c]; });
}

template <class T>
__device__ __forceinline__ Words<T> operator~(const Words<T>& a) {
  return each_part<T>([&](int c) { return ~a.at[c]; });
}

template <class T>
__device__ __forceinline__ Words<T> operator<<(const Words<T>& a, int count) {
  return each_part<T>([&](int c) { return a.at[c] << count; });
}

template <class T>
__device__ __forceinline__ Words<T> operator>>(const Words<T>& a, int count) {
  return each_part<T>([&](int c) { return a.at[c] >> count; });
}

// Elements of a buffer: words, or packed ones of `Bits` bits. An element's 64-bit words are read
// and no others.
template <class T>
struct WordsIn {
  const T* data;
  __device__ __forceinline__ T operator()(int64_t i) const { return data[i]; }
};

template <class T, int Bits>
struct PackedIn {
  const uint64_t* data;
  __device__ __forceinline__ T operator()(int64_t i) const {
    const int64_t bit = i * Bits;
    const int shift = bit % 64;
    uint64_t value = data[bit / 64] >> shift;
    if (shift + Bits > 64) value |= data[bit / 64 + 1] << (64 - shift);
    return static_cast<T>(value & ~uint64_t{0} >> (64 - Bits));
  }
};

template <class T>
__device__ __forceinline__ WordsIn<T> words_in(const uint8_t* data) {
  return {reinterpret_cast<const T*>(data)};
}

template <class T, int Bits>
__device__ __forceinline__ PackedIn<T, Bits> packed_in(const uint8_t* data) {
  return {reinterpret_cast<const uint64_t*>(data)};
}

// Element i of the program, those behind its last one zero. A `Tile_` has elements anywhere.
template <class T, class Tile_, class Source>
__device__ __forceinline__ Words<T> load(const Tile_& tile, const Source& source) {
  return each_part<T>([&](int c) {
    const int64_t i = tile.element(c);
    return i < tile.elements ? source(i) : T{0};
  });
}

// Element (i / repeat) % period; the printer says which of the two it takes, and that Index holds
// every i.
template <class T, class Index, bool Divides, bool Wraps, class Tile_, class Source>
__device__ __forceinline__ Words<T> load_broadcast(const Tile_& tile, const Source& source,
                                                   uint64_t repeat, uint64_t period) {
  return each_part<T>([&](int c) {
    if (tile.element(c) >= tile.elements) return T{0};
    Index i = static_cast<Index>(tile.element(c));
    if (Divides) i /= static_cast<Index>(repeat);
    if (Wraps) i %= static_cast<Index>(period);
    return source(i);
  });
}

template <class T>
__device__ __forceinline__ Words<T> lookup(const uint8_t* table, uint64_t entries,
                                           const Words<T>& index) {
  const T* from = reinterpret_cast<const T*>(table);
  return each_part<T>([&](int c) { return from[index.at[c] & static_cast<T>(entries - 1)]; });
}

template <class T, class Tile_>
__device__ __forceinline__ void store(const Tile_& tile, uint8_t* to, const Words<T>& value) {
#pragma unroll
  for (int c = 0; c < kParts; ++c) {
    const int64_t i = tile.element(c);
    if (i < tile.elements) reinterpret_cast<T*>(to)[i] = value.at[c];
  }
}

// 32 elements of `Bits` bits are `Bits` words of 32 bits: lane w makes word w of them, and 32 + w
// where there are so many, from the one to kTerms elements that have bits in it.
template <int Bits, class T>
__device__ __forceinline__ uint32_t packed_word(T value, int word) {
  constexpr int kTerms = (Bits + 30) / Bits + 1;
  const int first = 32 * word / Bits;
  uint32_t out = 0;
#pragma unroll
  for (int t = 0; t < kTerms; ++t) {
    const T element = __shfl_sync(kAllLanes, value, (first + t) % kLanes);
    const int shift = (first + t) * Bits - 32 * word;
    if (t == 0) {
      out = static_cast<uint32_t>(element >> -shift);
    } else if (shift < 32) {
      out |= static_cast<uint32_t>(element) << shift;
    }
  }
  return out;
}

// Packed to `Bits` bits; what is behind the last element in its 64-bit word becomes zero.
template <int Bits, class T>
__device__ __forceinline__ void store_packed(const Tile& tile, uint8_t* to, const Words<T>& value) {
  auto* words = reinterpret_cast<uint32_t*>(to);
  const int64_t end = (tile.elements * Bits + 63) / 64 * 2;
#pragma unroll
  for (int c = 0; c < kParts; ++c) {
    const T low = static_cast<T>(value.at[c] & ~uint64_t{0} >> (64 - Bits));
    const T mine = tile.element(c) < tile.elements ? low : T{0};
    const int64_t group = (tile.first / kLanes + c) * Bits;
#pragma unroll
    for (int half = 0; half < Bits; half += kLanes) {
      const int word = half + static_cast<int>(tile.lane);
      const uint32_t out = packed_word<Bits>(mine, word);
      if (word < Bits && group + word < end) words[group + word] = out;
    }
  }
}

}  // namespace veil
