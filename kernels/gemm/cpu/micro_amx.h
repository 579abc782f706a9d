// The innermost product on AMX's tiles: words as unsigned 8-bit limbs, whose products are exact.
//
// With a = sum of a_i 2^(8 i) and b likewise, a b modulo 2^(8 L) is the sum over classes s < L of
// 2^(8 s) times the sum of a_i b_j with i + j = s: 36 of 64 products of limbs for L = 8, 10 of 16
// for L = 4. One instruction multiplies 16 x 64 by 64 x 16 bytes into 32-bit sums, which hold
// 66,051 products of bytes: a class has up to L a step of the depth, so a block of it is bounded.
//
// Of eight tiles four are sums of four classes, one is a limb on the left and three are limbs on
// the right: while i goes up, the limbs j of these classes go down by one, so that each limb is
// loaded once for every four classes.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/gemm/cpu/bytes_avx512.h"
#include "kernels/gemm/cpu/stepwise.h"

namespace veil {

// The tile instructions by number: GCC's intrinsics take literals alone, and name less memory than
// they read.
template <int Tile>
inline void tile_clear() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(Tile));
}
template <int Tile>
inline void tile_load(const void* from) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(int64_t{64}), "i"(Tile)
                   : "memory");
}
template <int Tile>
inline void tile_store(void* to) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(int64_t{64}), "i"(Tile)
                   : "memory");
}
template <int Sum, int Left, int Right>
inline void tile_multiply_add() {
  __asm__ volatile("tdpbuud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sum), "i"(Left), "i"(Right));
}

// While one of these lives, all tiles of the thread are rows of 64 bytes: 16, or as few as there
// are on the left, which sets what an instruction takes.
class TileScope {
 public:
  explicit TileScope(int64_t rows) {
    const auto r = static_cast<uint8_t>(rows < kSquareLanes ? rows : kSquareLanes);
    const struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16];
    } config{.rows = {r, r, r, r, r, 16, 16, 16}};
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
  }
  ~TileScope() { __asm__ volatile("tilerelease"); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

// Classes First to First + 3, as far as there are so many, of one square of the depth.
template <int Limbs, int First>
struct ClassStep {
  static constexpr int kEnd = First + 4 < Limbs ? First + 4 : Limbs;
  static constexpr int kLeft = 4, kRight = 5;  // tiles; sums are 0 to 3, right limbs kRight + j % 3

  static void run(const uint8_t* a, const uint8_t* b) { left<0>(a, b); }

  static void clear() {
    tile_clear<0>();
    if constexpr (kEnd - First > 1) tile_clear<1>();
    if constexpr (kEnd - First > 2) tile_clear<2>();
    if constexpr (kEnd - First > 3) tile_clear<3>();
  }

  static void store(uint32_t* sums) {
    tile_store<0>(sums + First * 256);
    if constexpr (kEnd - First > 1) tile_store<1>(sums + (First + 1) * 256);
    if constexpr (kEnd - First > 2) tile_store<2>(sums + (First + 2) * 256);
    if constexpr (kEnd - First > 3) tile_store<3>(sums + (First + 3) * 256);
  }

 private:
  template <int I>
  static void left(const uint8_t* a, const uint8_t* b) {
    if constexpr (I < kEnd) {
      tile_load<kLeft>(a + I * kSquareBytes);
      right<I, kEnd - 1 - I>(b);
      left<I + 1>(a, b);
    }
  }

  // j downwards: the limb that is new for this i takes the place of the first one used.
  template <int I, int J>
  static void right(const uint8_t* b) {
    constexpr int kLowest = First > I ? First - I : 0;
    if constexpr (J >= kLowest) {
      constexpr int kFirstUse = First > J ? First - J : 0;
      if constexpr (I == kFirstUse) tile_load<kRight + J % 3>(b + J * kSquareBytes);
      tile_multiply_add<I + J - First, kLeft, kRight + J % 3>();
      right<I, J - 1>(b);
    }
  }
};

// Sums of classes, 16 lanes of one row, modulo the word: `sums` of a class are 256 apart.
template <int Limbs>
inline void put_classes(uint32_t* out, const uint32_t* sums, bool accumulate) {
  __m512i sum = accumulate ? _mm512_loadu_si512(out) : _mm512_setzero_si512();
  for (int s = 0; s < Limbs; ++s) {
    sum = _mm512_add_epi32(sum, _mm512_slli_epi32(_mm512_load_si512(sums + 256 * s), 8 * s));
  }
  _mm512_storeu_si512(out, sum);
}

template <int Limbs>
inline void put_classes(uint64_t* out, const uint32_t* sums, bool accumulate) {
  __m512i top = _mm512_setzero_si512();  // of classes of which only 32 bits count
  for (int s = 4; s < Limbs; ++s) {
    const __m512i each = _mm512_load_si512(sums + 256 * s);
    top = _mm512_add_epi32(top, _mm512_slli_epi32(each, 8 * (s - 4)));
  }
  for (int half = 0; half < 2; ++half) {
    const __m256i upper = half ? _mm512_extracti64x4_epi64(top, 1) : _mm512_castsi512_si256(top);
    __m512i sum = _mm512_slli_epi64(_mm512_cvtepu32_epi64(upper), 32);
    if (accumulate) sum = _mm512_add_epi64(sum, _mm512_loadu_si512(out + 8 * half));
    for (int s = 0; s < 4; ++s) {
      const auto* at = reinterpret_cast<const __m256i*>(sums + 256 * s + 8 * half);
      const __m512i each = _mm512_cvtepu32_epi64(_mm256_load_si256(at));
      sum = _mm512_add_epi64(sum, _mm512_slli_epi64(each, 8 * s));
    }
    _mm512_storeu_si512(out + 8 * half, sum);
  }
}

// Rings of up to 8 Limbs bits.
template <class T, int Limbs>
struct MicroAmx {
  using Word = T;
  using Scope = TileScope;
  static constexpr int kRows = kSquareLanes, kColumns = kSquareLanes;
  static constexpr int kBytesA = Limbs, kBytesB = Limbs;
  static constexpr int64_t kDepthStep = kSquareSteps;
  static constexpr int64_t kBlockDepth = 256, kBlockRows = 32;
  static constexpr int64_t kBlockColumns = 2560 / Limbs / kColumns * kColumns;
  static_assert(kBlockDepth * Limbs <= UINT32_MAX / (255 * 255));

  template <class Source>
  static void pack_left(uint8_t* to, const Source& left, int64_t lane, int64_t count, int64_t first,
                        int64_t depth) {
    if (left.along_depth()) {
      rows(to, left, lane, count, first, depth);
    } else {
      quads(to, left, lane, count, first, depth);
      transpose(to, depth);
    }
  }

  template <class Source>
  static void pack_right(uint8_t* to, const Source& right, int64_t lane, int64_t count,
                         int64_t first, int64_t depth) {
    if (right.along_depth()) {
      rows(to, right, lane, count, first, depth);
      transpose(to, depth);
    } else {
      quads(to, right, lane, count, first, depth);
    }
  }

  static void run(int64_t depth, const uint8_t* a, const uint8_t* b, T* out, int64_t stride,
                  bool accumulate) {
    alignas(64) uint32_t sums[Limbs * 256];
    run_classes<0>(squares(depth), a, b, sums);
    for (int i = 0; i < kRows; ++i) {
      put_classes<Limbs>(out + i * stride, sums + 16 * i, accumulate);
    }
  }

 private:
  static int64_t squares(int64_t depth) { return (depth + kSquareSteps - 1) / kSquareSteps; }

  template <int First>
  static void run_classes(int64_t count, const uint8_t* a, const uint8_t* b, uint32_t* sums) {
    if constexpr (First < Limbs) {
      using Step = ClassStep<Limbs, First>;
      Step::clear();
      for (int64_t k = 0; k < count; ++k) {
        Step::run(a + k * Limbs * kSquareBytes, b + k * Limbs * kSquareBytes);
      }
      Step::store(sums);
      run_classes<First + 4>(count, a, b, sums);
    }
  }

  template <class Source>
  static void rows(uint8_t* to, const Source& source, int64_t lane, int64_t count, int64_t first,
                   int64_t depth) {
    for (int64_t k = 0; k < depth; k += kSquareSteps, to += Limbs * kSquareBytes) {
      for (int64_t i = 0; i < kSquareLanes; ++i) {
        const T* from = source.at(lane + (i < count ? i : 0), first + k);
        row_of_bytes<Limbs>(to + 64 * i, from, i < count ? depth - k : 0);
      }
    }
  }

  template <class Source>
  static void quads(uint8_t* to, const Source& source, int64_t lane, int64_t count, int64_t first,
                    int64_t depth) {
    alignas(64) T steps[4][kSquareLanes] = {};
    auto put = [&](int64_t quad) {
      uint8_t* square = to + quad / 16 * Limbs * kSquareBytes;
      quads_of_bytes<Limbs>(square + quad % 16 * 64, steps);
    };
    source.template panel<kSquareLanes>(lane, count, first, depth, [&](int64_t k, const T* values) {
      for (int i = 0; i < kSquareLanes; ++i) steps[k % 4][i] = values[i];
      if (k % 4 == 3) put(k / 4);
    });
    for (int64_t k = depth; k % 4 != 0; ++k) {
      std::memset(steps[k % 4], 0, sizeof(steps[0]));
      if (k % 4 == 3) put(k / 4);
    }
    const int64_t quad = (depth + 3) / 4, missing = squares(depth) * 16 - quad;
    uint8_t* rest = to + quad / 16 * Limbs * kSquareBytes + quad % 16 * 64;
    for (int l = 0; missing > 0 && l < Limbs; ++l) {
      std::memset(rest + l * kSquareBytes, 0, missing * 64);
    }
  }

  static void transpose(uint8_t* to, int64_t depth) {
    for (int64_t s = 0; s < squares(depth) * Limbs; ++s) transpose_square(to + s * kSquareBytes);
  }
};

// Whether tiles beat lanes, by cycles: an instruction takes one for each row of its left tile, and
// about a third more is lost around it; lanes multiply and add 6 words of 64 bits a cycle, or 15 of
// 52, with all that they lose but for what pads a tile (measured on Granite Rapids).
inline bool amx_pays(int64_t bits, int64_t rows, int64_t columns, int64_t depth) {
  const auto real = [](int64_t x, int64_t multiple) {  // products of extents may leave 64 bits
    return static_cast<double>(round_up(x, multiple));
  };
  const bool wide = bits > 52;
  const int64_t limbs = (bits + 7) / 8;
  const double high = real(rows, rows < kSquareLanes ? 1 : kSquareLanes);
  const double squares = real(columns, kSquareLanes) / 16 * real(depth, kSquareSteps) / 64;
  const double tiles = 4.0 / 3.0 * high * squares * static_cast<double>(limbs * (limbs + 1) / 2);
  const double padded = real(rows, wide ? 5 : 8) * real(columns, wide ? 16 : 24);
  return tiles < padded * static_cast<double>(depth) / (wide ? 6 : 15);
}

// Calls body.template operator()<Micro>() with the micro-kernel of as many limbs as a ring needs.
template <class T, class Body>
auto with_limbs(int64_t bits, Body&& body) {
  if constexpr (sizeof(T) == 8) {
    if (bits > 56) return body.template operator()<MicroAmx<T, 8>>();
    if (bits > 48) return body.template operator()<MicroAmx<T, 7>>();
    if (bits > 40) return body.template operator()<MicroAmx<T, 6>>();
    return body.template operator()<MicroAmx<T, 5>>();
  } else {
    if (bits > 24) return body.template operator()<MicroAmx<T, 4>>();
    if (bits > 16) return body.template operator()<MicroAmx<T, 3>>();
    return body.template operator()<MicroAmx<T, 2>>();
  }
}

}  // namespace veil
