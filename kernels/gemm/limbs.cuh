// Matrix products in ring words on 8-bit tensor cores, by balanced limbs.
//
//     x = sum over i of d_i(x) 256^i,  -128 <= d_i <= 127
//     a b = sum over weights w of 256^w (sum over i + j = w of d_i(a) d_j(b))   modulo 256^Limbs
//
// Weights of Limbs and more vanish, so Limbs (Limbs + 1) / 2 pairs of limbs are left: 10 of 4
// limbs, 15 of 5, 36 of 8. Those of one weight are added in one 32-bit sum, and the weights in the
// ring. kernels/gemm/limbs.py says how deep the sums are exact: `Ring::kSteps`.
//
// A block makes kRows x kColumns of the output, each of its warps 16 kDown x 8 kAcross of that. A
// step is 32 depths, and passes three stages:
//
//   words   global to shared memory, `kStages` steps ahead, asynchronously. A thread copies four
//           depths of a line (a row of a, a column of b) at a time, and reads only what it has
//           copied itself, so this needs no barrier.
//   limbs   the thread takes its four words apart, and stores the four bytes of each limb as one
//           word of that limb's plane: [line][32 depths], two planes of everything in turns.
//   sums    ldmatrix makes fragments of the planes, mma adds them up.
//
// Warps of one scheduler split and multiply in opposite order, so that integer units and tensor
// cores work at the same time.
#pragma once

#include "kernels/gemm/quads.cuh"
#include "kernels/gemm/tiled.cuh"

namespace veil {

// A ring by its words and limbs. A sum of weight w has up to w + 1 products of at most 2^14 a
// depth. Where the ring takes no more than 32 bits of it, it may wrap; where it takes more it must
// not: those weights end before 8 Limbs - 32, and the last of them fills up first.
template <class T, int Limbs>
struct Ring {
  using Word = T;
  static constexpr int kLimbs = Limbs;
  static constexpr int kWide = Limbs > 4 ? Limbs - 4 : 0;  // weights that must not wrap
  static constexpr int kMost = 0x7fffffff;
  static constexpr int kSteps = kWide == 0 ? kMost : kMost / (kWide << 14) / kStepDepth;
};

template <class Tile_>
struct LimbMemory;
template <class Tile_>
class LimbSums;

// Tiles of `kDown` x `kAcross` of mma's 16 x 8 a warp, of Down x Across warps a block; a factor may
// be a sum of two terms.
template <class Ring_, int Down, int Across, int WarpsDown, int WarpsAcross, int Stages,
          int LeftTerms = 1, int RightTerms = 1>
struct LimbTile {
  static_assert(WarpsDown * WarpsAcross == kWarps && Across % 2 == 0);
  using Ring = Ring_;
  using Memory = LimbMemory<LimbTile>;
  using Left = Quads<LimbTile, 16 * Down * WarpsDown, LeftTerms>;
  using Right = Quads<LimbTile, 8 * Across * WarpsAcross, RightTerms>;
  using Sums = LimbSums<LimbTile>;
  static constexpr int kDown = Down, kAcross = Across, kStages = Stages;
  static constexpr int kWarpsAcross = WarpsAcross;
  static constexpr int kRows = 16 * Down * WarpsDown, kColumns = 8 * Across * WarpsAcross;
};

// Where half a line, 16 depths of it, lies in a plane: 128 bytes are four lines, their eight halves
// changed about by the number of the four. So eight lines' same halves are in all banks, be it
// lines in a row (ldmatrix), or every second or fourth (the splits' stores).
__device__ __forceinline__ int place_in_plane(int line, int half) {
  const int four = line / 4;
  return four * 128 + (((line % 4 * 2 + half) ^ four % 8) << 4);
}

// Shared memory of a block: words of every stage, then two sets of planes, of a's lines before b's.
template <class Tile_>
struct LimbMemory : WordMemory<Tile_> {
  using Words = WordMemory<Tile_>;
  static constexpr int kRightWords = Tile_::Left::kTerms * Tile_::Left::kTermBytes;
  static constexpr int kStageBytes = kRightWords + Tile_::Right::kTerms * Tile_::Right::kTermBytes;
  static constexpr int kPlaneBytes = (Tile_::kRows + Tile_::kColumns) * kStepDepth;
  static constexpr int kSetBytes = Tile_::Ring::kLimbs * kPlaneBytes;
  static constexpr int kBytes = Tile_::kStages * kStageBytes + 2 * kSetBytes;

  static __device__ __forceinline__ int place(int line, int half) {
    return place_in_plane(line, half);
  }
  // Where piece `number` of a packed plane lies.
  static __device__ __forceinline__ int packed_place(int number) { return number * Words::kPiece; }
};

// The part of a product that a block makes at a time: a tile of the output, and steps [begin, end)
// of all steps of all pairs.
struct LimbPart {
  int rows, columns;  // of the output
  int first_row, first_column;
  int begin, end;
};

__device__ __forceinline__ int steps_of(int64_t depth) {
  return static_cast<int>((depth + kStepDepth - 1) / kStepDepth);
}

// Steps of both factors over all pairs of a sum, one after another. `Operands` says how many pairs
// there are, how deep each is, its factors, how all left and all right ones are read, and, where
// those of a side may be sums, what is added to each.
template <class Tile_, class Operands>
class LimbLoader {
  using Left = typename Tile_::Left;
  using Right = typename Tile_::Right;
  static constexpr int kRightWords = Tile_::Memory::kRightWords;

 public:
  __device__ __forceinline__ LimbLoader(const Operands& operands, const LimbPart& part)
      : operands_(operands), part_(part), left_steps_(part.end - part.begin) {
    int before = part.begin;
    while (pair_ + 1 < operands.count() && before >= steps_of(operands.depth(pair_))) {
      before -= steps_of(operands.depth(pair_++));
    }
    k_ = before * kStepDepth;
  }

  // Begins the copies of the next step, if there is one, as a group of their own.
  __device__ __forceinline__ void copy(uint8_t* words) {
    if (left_steps_ > 0) {
      while (k_ >= operands_.depth(pair_)) {
        ++pair_;
        k_ = 0;
      }
      const int depth = static_cast<int>(operands_.depth(pair_));
      left().copy(operands_.left(pair_), words, part_.first_row, part_.rows, k_, depth);
      right().copy(operands_.right(pair_), words + kRightWords, part_.first_column, part_.columns,
                   k_, depth);
      if constexpr (Left::kTerms == 2) {
        left().copy(operands_.left_addend(pair_), words + Left::kTermBytes, part_.first_row,
                    part_.rows, k_, operands_.has_left_addend(pair_) ? depth : 0);
      }
      if constexpr (Right::kTerms == 2) {
        right().copy(operands_.right_addend(pair_), words + kRightWords + Right::kTermBytes,
                     part_.first_column, part_.columns, k_,
                     operands_.has_right_addend(pair_) ? depth : 0);
      }
      k_ += kStepDepth;
      --left_steps_;
    }
    end_copies();
  }

  // The step whose words these are, as limbs where the sums want them.
  template <class LeftLimbs>
  __device__ __forceinline__ void split_to(LeftLimbs& left_limbs, uint8_t* right_planes,
                                           const uint8_t* words) const {
    right().split_to(right_planes, words + kRightWords);
    left().split_to(left_limbs, words);
  }

 private:
  __device__ __forceinline__ Left left() const { return Left(operands_.left_access()); }
  __device__ __forceinline__ Right right() const { return Right(operands_.right_access()); }

  const Operands& operands_;
  const LimbPart& part_;
  int left_steps_, k_ = 0, pair_ = 0;
};

// A sum of weight w in the ring.
template <class T>
__device__ __forceinline__ T weighted(int32_t sum, int w) {
  return static_cast<T>(static_cast<int64_t>(sum)) << 8 * w;
}

// Calls body(m, n, e, row, column) for sum e of each of Down x Across mma tiles of this thread that
// is in the output; the warp's begin at `first_row` and `first_column` of the block's tile.
template <int Down, int Across, class Body>
__device__ __forceinline__ void for_each_place(const LimbPart& part, int first_row,
                                               int first_column, Body body) {
  const int lane = made_anew(static_cast<int>(threadIdx.x) % kLanes);
#pragma unroll
  for (int m = 0; m < Down; ++m) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = part.first_row + first_row + 16 * m + lane / 4 + e / 2 * 8;
      if (row >= part.rows) continue;
#pragma unroll
      for (int n = 0; n < Across; ++n) {
        const int column = part.first_column + first_column + 8 * n + lane % 4 * 2 + e % 2;
        if (column < part.columns) body(m, n, e, row, column);
      }
    }
  }
}

// Calls body(m, n, row, column) for each of Down x Across mma tiles of this thread: its sum e is at
// row + e / 2 * 8 and column + e % 2, be that in the output or not.
template <int Down, int Across, class Body>
__device__ __forceinline__ void for_each_tile(const LimbPart& part, int first_row, int first_column,
                                              Body body) {
  const int lane = made_anew(static_cast<int>(threadIdx.x) % kLanes);
#pragma unroll
  for (int m = 0; m < Down; ++m) {
#pragma unroll
    for (int n = 0; n < Across; ++n) {
      body(m, n, part.first_row + first_row + 16 * m + lane / 4,
           part.first_column + first_column + 8 * n + lane % 4 * 2);
    }
  }
}

// What a warp adds up: of every mma tile, a sum for each weight.
template <class Tile_>
class LimbSums {
  using T = typename Tile_::Ring::Word;
  using Memory = LimbMemory<Tile_>;
  static constexpr int kLimbs = Tile_::Ring::kLimbs;
  static constexpr int kDown = Tile_::kDown, kAcross = Tile_::kAcross;

 public:
  // Adds one step, from a set of planes.
  __device__ __forceinline__ void add(const uint8_t* planes) {
    const int lane = made_anew(static_cast<int>(threadIdx.x) % kLanes);
    const SharedAddress all = shared_address(planes);
    SharedAddress left[2], right[2];  // of even and of odd sixteens of lines
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      left[odd] = all + place_in_plane(row() + lane % 16 + 16 * odd, lane / 16);
      const int line = column() + lane % 8 + lane / 16 * 8 + 16 * odd;
      right[odd] = all + Tile_::kRows * kStepDepth + place_in_plane(line, lane / 8 % 2);
    }
    uint32_t a[kLimbs][kDown][4];
#pragma unroll
    for (int i = 0; i < kLimbs; ++i) {
#pragma unroll
      for (int m = 0; m < kDown; ++m) {
        load_matrices(a[i][m], left[m % 2] + i * Memory::kPlaneBytes + m / 2 * 32 * kStepDepth);
      }
    }
#pragma unroll
    for (int j = 0; j < kLimbs; ++j) {
      uint32_t b[kAcross][2];
#pragma unroll
      for (int n = 0; n < kAcross; n += 2) {
        uint32_t both[4];
        load_matrices(both, right[n / 2 % 2] + j * Memory::kPlaneBytes + n / 4 * 32 * kStepDepth);
        b[n][0] = both[0], b[n][1] = both[1], b[n + 1][0] = both[2], b[n + 1][1] = both[3];
      }
#pragma unroll
      for (int i = kLimbs - 1 - j; i >= 0; --i) {
#pragma unroll
        for (int m = 0; m < kDown; ++m) {
#pragma unroll
          for (int n = 0; n < kAcross; ++n) multiply_bytes(sums_[i + j][m][n], a[i][m], b[n]);
        }
      }
    }
  }

  // Calls body(row, column, sum) for what this thread has made, weights put together.
  template <class Body>
  __device__ __forceinline__ void for_each(const LimbPart& part, Body body) const {
    for_each_place<kDown, kAcross>(part, row(), column(), [&](int m, int n, int e, int at, int to) {
      body(at, to, sum(m, n, e));
    });
  }

  // Calls body(row, column, sums) for each mma tile's four.
  template <class Body>
  __device__ __forceinline__ void for_each_four(const LimbPart& part, Body body) const {
    for_each_tile<kDown, kAcross>(part, row(), column(), [&](int m, int n, int at, int to) {
      const T four[4] = {sum(m, n, 0), sum(m, n, 1), sum(m, n, 2), sum(m, n, 3)};
      body(at, to, four);
    });
  }

 private:
  __device__ __forceinline__ T sum(int m, int n, int e) const {
    T sum = 0;
#pragma unroll
    for (int w = 0; w < kLimbs; ++w) sum += weighted<T>(sums_[w][m][n][e], w);
    return sum;
  }
  // Where the warp's part of the tile begins.
  static __device__ __forceinline__ int row() {
    return static_cast<int>(threadIdx.x) / kLanes / Tile_::kWarpsAcross * 16 * kDown;
  }
  static __device__ __forceinline__ int column() {
    return static_cast<int>(threadIdx.x) / kLanes % Tile_::kWarpsAcross * 8 * kAcross;
  }

  int32_t sums_[kLimbs][kDown][kAcross][4] = {};
};

// Adds all steps of a part.
template <class Tile_, class Operands>
__device__ __forceinline__ void add_steps(LimbSums<Tile_>& sums, const Operands& operands,
                                          const LimbPart& part) {
  using Memory = LimbMemory<Tile_>;
  constexpr int kStages = Tile_::kStages;
  uint8_t* words = dynamic_shared();
  uint8_t* planes = words + kStages * Memory::kStageBytes;
  LimbLoader<Tile_, Operands> loader(operands, part);
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage) loader.copy(words + stage * Memory::kStageBytes);
  int stage = 0, set = 0;
  const auto split_next = [&](int to) {
    wait_for_copies<kStages - 1>();
    uint8_t* from = words + stage * Memory::kStageBytes;
    uint8_t* left = planes + to * Memory::kSetBytes;
    loader.split_to(left, left + Tile_::kRows * kStepDepth, from);
    loader.copy(from);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  };
  // In step n, n + 1 is split while n is added up; before the first there is nothing to add.
#pragma unroll 1
  for (int step = part.begin - 1; step < part.end; ++step) {
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      if (half == static_cast<int>(threadIdx.x) / (kLimbThreads / 2)) {
        if (step + 1 < part.end) split_next(set ^ 1);
      } else if (step >= part.begin) {
        sums.add(planes + set * Memory::kSetBytes);
      }
    }
    set ^= 1;
    __syncthreads();
  }
}

// Where the sums of each part of the depth go: stored, or added to what a launch before or the
// block itself has stored.
template <class T>
struct Stored {
  T* out;
  int64_t pitch;  // from part to part
  int64_t adds;

  // `place(row, column)` is where a sum's element is in the output.
  template <class Sums, class Place>
  __device__ __forceinline__ void end(const Sums& sums, const LimbPart& part, bool is_later,
                                      Place place) const {
    T* to = out;
    if (pitch != 0) to += made_anew(static_cast<int>(blockIdx.y)) * pitch;
    sums.for_each(part, [&](int row, int column, T sum) {
      put_sum(to + place(row, column), sum, adds != 0 || is_later);
    });
  }
};

// All of a tile's part of a sum: end(sums, part, is_later) when they are made, again with is_later
// where the depth is more than 32-bit sums hold. All threads of a block together.
template <class Tile_, class Operands, class End>
__device__ __forceinline__ void limb_product(const Operands& operands, const TilePart& tile,
                                             End end_sums) {
  int64_t steps = 0;
  for (int p = 0; p < operands.count(); ++p) steps += steps_of(operands.depth(p));
  const int begin = static_cast<int>(steps * tile.part / tile.parts);
  const int end = static_cast<int>(steps * (tile.part + 1) / tile.parts);
  LimbPart part = {static_cast<int>(tile.rows),
                   static_cast<int>(tile.columns),
                   static_cast<int>(tile.first_row),
                   static_cast<int>(tile.first_column),
                   begin,
                   begin};
#pragma unroll 1
  do {
    part.begin = part.end;
    part.end = end - part.begin < Tile_::Ring::kSteps ? end : part.begin + Tile_::Ring::kSteps;
    typename Tile_::Sums sums;
    if (part.begin < part.end) add_steps(sums, operands, part);
    end_sums(sums, part, part.begin != begin);
  } while (part.end < end);
}

}  // namespace veil
