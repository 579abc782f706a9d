// Word registers: loads, stores, draws and ring arithmetic on one block of elements.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/aes.h"
#include "kernels/cpu/packed.h"
#include "kernels/fused/program.h"

namespace veil {

// Elements [first, first + count) of the program. Registers are computed up to `padded`, the next
// multiple of 64; what lies beyond `count` is junk.
struct Block {
  int64_t first, count, padded;
};

// out[i] = f(a[i]) or f(a[i], b[i]); `out` may be an operand. The inner loop has a constant length
// and no alias to worry about, so that it becomes whole vectors.
template <class T, class F>
inline void each(int64_t padded, T* out, const T* a, F f) {
  for (int64_t i = 0; i < padded; i += 64) {
#pragma GCC ivdep
    for (int64_t k = i; k < i + 64; ++k) out[k] = f(a[k]);
  }
}

template <class T, class F>
inline void each(int64_t padded, T* out, const T* a, const T* b, F f) {
  for (int64_t i = 0; i < padded; i += 64) {
#pragma GCC ivdep
    for (int64_t k = i; k < i + 64; ++k) out[k] = f(a[k], b[k]);
  }
}

template <class T>
inline void fill_words(T* out, T value, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = value;
}

template <class T>
inline T element_of(const VeilBuffer& b, int64_t index) {
  if (b.kind == VEIL_PACKED) return static_cast<T>(packed_element(b.data, index, b.bits));
  return reinterpret_cast<const T*>(b.data)[index];
}

// Element i of the program is element (i / repeat) % period of the buffer.
template <class T>
inline void load_broadcast(T* out, const VeilBuffer& b, const Block& block, int64_t repeat,
                           int64_t period) {
  int64_t index = block.first / repeat % period;
  int64_t run = repeat - block.first % repeat;  // elements left that name this index
  for (int64_t i = 0; i < block.count;) {
    const int64_t left = block.count - i;
    if (repeat == 1 && b.kind != VEIL_PACKED) {
      const int64_t length = period - index < left ? period - index : left;
      std::memcpy(out + i, reinterpret_cast<const T*>(b.data) + index, length * sizeof(T));
      i += length;
      index = 0;
      continue;
    }
    const int64_t length = run < left ? run : left;
    fill_words(out + i, element_of<T>(b, index), length);
    i += length;
    run = repeat;
    index = index + 1 == period ? 0 : index + 1;
  }
}

template <class T>
inline void load(T* out, const VeilBuffer& b, const Block& block, const Instruction& ins) {
  if (ins.c > 0) {
    load_broadcast(out, b, block, ins.b, ins.c);
  } else if (b.kind == VEIL_PACKED) {
    unpack_words(out, b.data, block.first, block.count, b.bits);
  } else {
    std::memcpy(out, reinterpret_cast<const T*>(b.data) + block.first, block.count * sizeof(T));
  }
}

template <class T>
inline void store(const VeilBuffer& b, const T* in, const Block& block) {
  if (b.kind == VEIL_PACKED) {
    pack_words(b.data, in, block.first, block.count, b.bits);
  } else {
    std::memcpy(reinterpret_cast<T*>(b.data) + block.first, in, block.count * sizeof(T));
  }
}

template <class T>
inline void lookup(T* out, const VeilBuffer& table, const T* index, int64_t padded) {
  const T* entries = reinterpret_cast<const T*>(table.data);
  const T mask = static_cast<T>(element_count(table) - 1);
  each(padded, out, index, [=](T i) { return entries[i & mask]; });
}

// Lanes of type L, zero-extended: keystream bytes [first * sizeof(L), ...), 512 elements at a time.
template <class T, class L>
inline void draw_lanes(T* out, const AesKey& key, uint64_t nonce, const Block& block) {
  constexpr int64_t kPart = 512;
  alignas(64) L lanes[kPart];
  for (int64_t i = 0; i < block.padded; i += kPart) {
    const int64_t count = block.padded - i < kPart ? block.padded - i : kPart;
    const int64_t size = sizeof(L), start = (block.first + i) * size / 16;
    auto* to =
        reinterpret_cast<uint8_t*>(sizeof(L) == sizeof(T) ? static_cast<void*>(out + i) : lanes);
    aes_counter(key, {nonce, static_cast<uint64_t>(start), 0, 1, count * size / 16, to, 0});
    if constexpr (sizeof(L) != sizeof(T)) {
      for (int64_t k = 0; k < count; ++k) out[i + k] = lanes[k];
    }
  }
}

template <class T>
inline void draw(T* out, const AesKey& key, uint64_t nonce, const Block& block, int lane_bits) {
  switch (lane_bits) {
    case 8:
      return draw_lanes<T, uint8_t>(out, key, nonce, block);
    case 16:
      return draw_lanes<T, uint16_t>(out, key, nonce, block);
    case 32:
      return draw_lanes<T, uint32_t>(out, key, nonce, block);
    default:
      return draw_lanes<T, std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>(out, key, nonce,
                                                                                   block);
  }
}

// Both may be the same register: from the back, 64 elements at a time through memory of their own.
inline void widen(uint64_t* out, const uint32_t* in, int64_t padded) {
  for (int64_t i = padded - 64; i >= 0; i -= 64) {
    uint32_t part[64];
    std::memcpy(part, in + i, sizeof(part));
    for (int64_t k = 0; k < 64; ++k) out[i + k] = part[k];
  }
}

inline void narrow(uint32_t* out, const uint64_t* in, int64_t padded) {
  for (int64_t i = 0; i < padded; i += 64) {
    uint32_t part[64];
    for (int64_t k = 0; k < 64; ++k) part[k] = static_cast<uint32_t>(in[i + k]);
    std::memcpy(out + i, part, sizeof(part));
  }
}

}  // namespace veil
