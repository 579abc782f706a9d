// Words to and from the packed form of the wire: element i is bits [i*bits, (i+1)*bits).
//
// Eight elements are exactly `bits` bytes, so groups of eight start at whole bytes; 64 elements are
// whole 64-bit words. Callers start at multiples of 64 elements, but for packed_element.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__AVX512VBMI__)
#include <immintrin.h>
#endif

namespace veil {

inline int64_t packed_bytes(int64_t elements, uint32_t bits) {
  return (elements * bits + 63) / 64 * 8;
}

inline uint64_t low_bits(uint32_t bits) { return ~uint64_t{0} >> (64 - bits); }

// One element; reads no 64-bit word that holds no bit of it.
inline uint64_t packed_element(const uint8_t* data, int64_t index, uint32_t bits) {
  const int64_t bit = index * bits;
  const auto* words = reinterpret_cast<const uint64_t*>(data) + bit / 64;
  const int shift = bit % 64;
  uint64_t value = words[0] >> shift;
  if (shift + bits > 64) value |= words[1] << (64 - shift);
  return value & low_bits(bits);
}

// Bit by bit order in a 64-bit register that is written out whenever it is full.
template <class T>
inline void store_packed_serially(uint8_t* data, const T* in, int64_t first, int64_t count,
                                  uint32_t bits) {
  auto* to = reinterpret_cast<uint64_t*>(data) + first * bits / 64;
  const uint64_t low = low_bits(bits);
  uint64_t pending = 0;
  uint32_t filled = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t value = in[i] & low;
    pending |= value << filled;
    filled += bits;
    if (filled < 64) continue;
    *to++ = pending;
    filled -= 64;
    pending = filled == 0 ? 0 : value >> (bits - filled);
  }
  if (filled > 0) *to = pending;
}

#if defined(__AVX512VBMI__)

// For each width: where the bytes of eight elements lie in their `bits` bytes, and the way back.
struct PackedLayout {
  uint8_t load[8][8];        // byte m of element e's 64-bit window
  uint8_t load_ninth[8][8];  // the byte after that window, at byte 0 of element e
  uint64_t shift[8];         // bits of the window below the element
  uint8_t store[64];  // for byte k: element and byte, of the shifted (0-63) or spilled (64-127)
  uint8_t store_next[64];  // for byte k: the element that begins inside it
  uint64_t next_mask;      // which bytes have one
};

constexpr PackedLayout packed_layout(int bits) {
  PackedLayout l{};
  for (int e = 0; e < 8; ++e) {
    const int start = e * bits / 8;
    l.shift[e] = e * bits % 8;
    for (int m = 0; m < 8; ++m) {
      l.load[e][m] = (start + m) & 63;
      l.load_ninth[e][m] = (start + 8) & 63;
    }
    for (int m = 0; m < 9 && 8 * (start + m) < (e + 1) * bits; ++m) {
      const bool begins_inside = m == 0 && l.shift[e] != 0;
      if (begins_inside) {
        l.store_next[start] = 8 * e;
        l.next_mask |= uint64_t{1} << start;
      } else {
        l.store[start + m] = m < 8 ? 8 * e + m : 64 + 8 * e;
      }
    }
  }
  return l;
}

struct PackedLayouts {
  PackedLayout of[65];
};

constexpr PackedLayouts packed_layouts() {
  PackedLayouts all{};
  for (int bits = 1; bits <= 64; ++bits) all.of[bits] = packed_layout(bits);
  return all;
}

alignas(64) inline constexpr PackedLayouts kPackedLayouts = packed_layouts();

inline __mmask64 byte_mask(int64_t bytes) {
  return bytes >= 64 ? ~uint64_t{0} : (uint64_t{1} << bytes) - 1;
}

template <class T>
inline void load_packed(T* out, const uint8_t* data, int64_t first, int64_t count, uint32_t bits) {
  const PackedLayout& l = kPackedLayouts.of[bits];
  const __m512i window = _mm512_loadu_si512(l.load), ninth = _mm512_loadu_si512(l.load_ninth);
  const __m512i shift = _mm512_loadu_si512(l.shift);
  const __m512i up = _mm512_sub_epi64(_mm512_set1_epi64(64), shift);
  const __m512i low = _mm512_set1_epi64(static_cast<int64_t>(low_bits(bits)));
  const uint8_t* from = data + first / 8 * bits;
  for (int64_t i = 0; i < count; i += 8, from += bits) {
    const int64_t bytes = count - i >= 8 ? bits : ((count - i) * bits + 7) / 8;
    const __m512i raw = _mm512_maskz_loadu_epi8(byte_mask(bytes), from);
    __m512i value = _mm512_srlv_epi64(_mm512_permutexvar_epi8(window, raw), shift);
    if (bits > 57) {
      value = _mm512_or_si512(value, _mm512_sllv_epi64(_mm512_permutexvar_epi8(ninth, raw), up));
    }
    value = _mm512_and_si512(value, low);
    if constexpr (sizeof(T) == 8) {
      _mm512_store_si512(out + i, value);
    } else {
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + i), _mm512_cvtepi64_epi32(value));
    }
  }
}

template <class T>
inline __m512i load_words(const T* from) {
  if constexpr (sizeof(T) == 8) {
    return _mm512_load_si512(from);
  } else {
    return _mm512_cvtepu32_epi64(_mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
  }
}

template <class T>
inline void store_packed(uint8_t* data, const T* in, int64_t first, int64_t count, uint32_t bits) {
  if (bits < 8) return store_packed_serially(data, in, first, count, bits);  // 3 elements in a byte
  const PackedLayout& l = kPackedLayouts.of[bits];
  const __m512i place = _mm512_loadu_si512(l.store), next = _mm512_loadu_si512(l.store_next);
  const __m512i shift = _mm512_loadu_si512(l.shift);
  const __m512i down = _mm512_sub_epi64(_mm512_set1_epi64(64), shift);
  const __m512i low = _mm512_set1_epi64(static_cast<int64_t>(low_bits(bits)));
  uint8_t* to = data + first / 8 * bits;
  for (int64_t i = 0; i < count; i += 8, to += bits) {
    const int64_t left = count - i;
    const __mmask8 valid = left >= 8 ? 0xff : (1 << left) - 1;
    const __m512i value = _mm512_maskz_and_epi64(valid, load_words(in + i), low);
    const __m512i shifted = _mm512_sllv_epi64(value, shift);
    const __m512i spilled = _mm512_srlv_epi64(value, down);
    const __m512i bytes =
        _mm512_or_si512(_mm512_permutex2var_epi8(shifted, place, spilled),
                        _mm512_maskz_permutexvar_epi8(l.next_mask, next, shifted));
    const int64_t size = left >= 8 ? bits : (left * bits + 7) / 8;
    _mm512_mask_storeu_epi8(to, byte_mask(size), bytes);
  }
}

#else

template <class T>
inline void load_packed(T* out, const uint8_t* data, int64_t first, int64_t count, uint32_t bits) {
  const auto* words = reinterpret_cast<const uint64_t*>(data);
  const uint64_t low = low_bits(bits);
  // The last element may end in the last word: do not read the one after it.
  for (int64_t i = 0; i + 1 < count; ++i) {
    const int64_t bit = (first + i) * bits;
    const int shift = bit % 64;
    const uint64_t above = words[(bit + bits - 1) / 64];
    const uint64_t spilled = (above << 1) << (63 - shift);
    const uint64_t value = words[bit / 64] >> shift;
    out[i] = static_cast<T>((shift + bits > 64 ? value | spilled : value) & low);
  }
  if (count > 0) out[count - 1] = static_cast<T>(packed_element(data, first + count - 1, bits));
}

template <class T>
inline void store_packed(uint8_t* data, const T* in, int64_t first, int64_t count, uint32_t bits) {
  store_packed_serially(data, in, first, count, bits);
}

#endif

// Words <- packed elements [first, first + count), zero-extended; `first` a multiple of 64.
template <class T>
inline void unpack_words(T* out, const uint8_t* data, int64_t first, int64_t count, uint32_t bits) {
  if (bits == 8 * sizeof(T)) {
    std::memcpy(out, data + first * sizeof(T), count * sizeof(T));
  } else {
    load_packed(out, data, first, count, bits);
  }
}

// Packed elements [first, first + count) <- words; bits up to the next 64-bit word become zero.
template <class T>
inline void pack_words(uint8_t* data, const T* in, int64_t first, int64_t count, uint32_t bits) {
  if (bits == 8 * sizeof(T)) {
    std::memcpy(data + first * sizeof(T), in, count * sizeof(T));
  } else {
    store_packed(data, in, first, count, bits);
  }
  const int64_t end = ((first + count) * bits + 7) / 8;
  std::memset(data + end, 0, packed_bytes(first + count, bits) - end);
}

}  // namespace veil
