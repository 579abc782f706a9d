// Matrix products by balanced limbs (kernels/gemm/limbs.cuh) on wgmma (sm_90a): two groups of four
// warps make 64 x kColumns of a tile each, one below the other.
//
// Limbs of the left factor are where wgmma wants them in registers: four depths of a line, taken
// apart, are a register of each limb's fragment. So a thread copies and splits just what it holds,
// and each fragment meets all limbs of the right factor that it has to. Those are split by all
// threads to planes in shared memory, for both groups.
//
// Products are asynchronous, so that no warp waits for another's splits: while those of step n are
// made, n + 1 is split, and handed on before they are done. That takes two sets of fragments and
// three of planes; there are four, which are told apart without a counter.
#pragma once

#include "kernels/cuda/group_products.cuh"
#include "kernels/gemm/limbs.cuh"

namespace veil {

template <class Tile_>
struct GroupMemory;
template <class Tile_, int Terms>
class Fragments;
template <class Tile_>
class GroupSums;

template <class Ring_, int Columns, int Stages, int LeftTerms = 1, int RightTerms = 1>
struct GroupTile {
  using Ring = Ring_;
  using Memory = GroupMemory<GroupTile>;
  using Left = Fragments<GroupTile, LeftTerms>;
  using Right = Quads<GroupTile, Columns, RightTerms>;
  using Sums = GroupSums<GroupTile>;
  static constexpr int kRows = 16 * kWarps, kColumns = Columns, kStages = Stages;
};

// Shared memory of a block: words of every stage, the left factor's first, then four sets of
// planes of the right one's limbs. A plane is core matrices of eight lines of 16 depths, its first
// halves before its second ones; nine pieces from core matrix to core matrix, so that stores of
// every fourth line meet different banks.
template <class Tile_>
struct GroupMemory : WordMemory<Tile_> {
  using Words = WordMemory<Tile_>;
  static constexpr int kSets = 4, kQuads = 4;  // quads of a step of the left factor, a thread
  static constexpr int kRightWords = Tile_::Left::kTerms * Tile_::Left::kTermBytes;
  static constexpr int kStageBytes = kRightWords + Tile_::Right::kTerms * Tile_::Right::kTermBytes;
  static constexpr int kCoreMatrix = 9 * Words::kPiece;
  static constexpr int kHalf = Tile_::kColumns / 8 * kCoreMatrix;
  static constexpr int kPlaneBytes = 2 * kHalf;
  static constexpr int kSetBytes = Tile_::Ring::kLimbs * kPlaneBytes;
  static constexpr int kBytes = Tile_::kStages * kStageBytes + kSets * kSetBytes;

  static __device__ __forceinline__ int place(int line, int half) {
    return half * kHalf + line / 8 * kCoreMatrix + line % 8 * Words::kPiece;
  }
  // Where piece `number` of a packed plane lies, which has no gaps.
  static __device__ __forceinline__ int packed_place(int number) {
    return place(number % Tile_::kColumns, number / Tile_::kColumns);
  }
};

// A thread's share of the left factor: quads t and t + 4 of lines g and g + 8 of its warp's 16.
template <class Tile_, int Terms>
class Fragments {
  using Memory = typename Tile_::Memory;
  using T = typename Tile_::Ring::Word;
  static constexpr int kPieces = Memory::kPieces, kVector = Memory::kVector;
  static constexpr int kLimbs = Tile_::Ring::kLimbs, kQuads = Memory::kQuads;
  static_assert(kLimbs <= kQuads * kPieces);

 public:
  static constexpr int kTerms = Terms;
  static constexpr int kTermBytes = kQuads * Memory::kPassBytes;

  using Limbs = uint32_t[kLimbs][kQuads];

  __device__ __forceinline__ explicit Fragments(Access access) : access_(access) {}

  // Lines from `first` up to `end`, depths from `k` up to `depth`; zeros beyond.
  template <class Source>
  __device__ __forceinline__ void copy(const Source& source, uint8_t* words, int first, int end,
                                       int k, int depth) const {
    if (Terms == 1 && access_ == kPacked) {
      copy_packed(source, words, first / Tile_::kRows, k / kStepDepth);
    } else if (access_ != kVectorsAlongDepths) {
      copy_words(source, words, first, end, k, depth);
    } else if (first + Tile_::kRows <= end && k + kStepDepth <= depth) {
      copy_vectors<true>(source, words, first, end, k, depth);
    } else {
      copy_vectors<false>(source, words, first, end, k, depth);
    }
  }

  // What was copied, as fragments of each limb.
  __device__ __forceinline__ void split_to(Limbs& limbs, const uint8_t* words) const {
    if (Terms == 1 && access_ == kPacked) {
#pragma unroll
      for (int limb = 0; limb < kLimbs; ++limb) Memory::read(limbs[limb], words, limb);
      return;
    }
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      T quad[kQuad];
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        Memory::template read_sum<Terms, kTermBytes>(quad + p * kVector, words, q * kPieces + p);
      }
      uint32_t each[kLimbs];
      split(quad, each);
#pragma unroll
      for (int limb = 0; limb < kLimbs; ++limb) limbs[limb][q] = each[limb];
    }
  }

 private:
  using WordsOfLimb = WordMemory<Tile_>;

  // The line of quad 0 in the tile, and its first depth in the step; others are as far from it.
  static __device__ __forceinline__ int line() {
    const int thread = made_anew(static_cast<int>(threadIdx.x));
    return thread / kLanes * 16 + thread % kLanes / 4;
  }
  static __device__ __forceinline__ int first_depth() {
    return made_anew(static_cast<int>(threadIdx.x)) % 4 * kQuad;
  }
  static __device__ constexpr int further_line(int q) { return q % 2 * 8; }
  static __device__ constexpr int further_depth(int q) { return q / 2 * 4 * kQuad; }

  template <bool Whole, class Source>
  static __device__ __forceinline__ void copy_vectors(const Source& source, uint8_t* words,
                                                      int first, int end, int k, int depth) {
    const int number = first + line(), at = k + first_depth();
    const T* start = source.address(source.line(number), source.depth(at));
    const int64_t next = further_line(1) * source.stride;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const T* from = start + q % 2 * next + further_depth(q);
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        const int left = depth - at - further_depth(q) - p * kVector;
        const int rest = number + further_line(q) < end ? left : 0;
        Memory::template copy_vector<Whole>(source, words, q * kPieces + p, from + p * kVector,
                                            rest);
      }
    }
  }

  // A quad at a time: unrolled, addresses would take registers that sums have.
  template <class Source>
  static __device__ __forceinline__ void copy_words(const Source& source, uint8_t* words, int first,
                                                    int end, int k, int depth) {
#pragma unroll 1
    for (int q = 0; q < kQuads; ++q) {
      const int number = first + line() + further_line(q);
      const int at = k + first_depth() + further_depth(q);
      Memory::copy_words(source, words, q * kPieces, source.line(number), at,
                         number < end ? depth - at : 0);
    }
  }

  template <class Source>
  static __device__ __forceinline__ void copy_packed(const Source& source, uint8_t* words, int tile,
                                                     int step) {
    const T* run = source.address(source.line(tile), source.depth(step));
#pragma unroll
    for (int limb = 0; limb < kLimbs; ++limb) {
      const T* from = run + Memory::piece(limb) / Memory::kWord;
      copy_async<Memory::kPiece>(shared_address(words + Memory::piece(limb)), from);
    }
  }

  Access access_;
};

// What a group adds up: 64 x kColumns sums for each weight.
template <class Tile_>
class GroupSums {
  using T = typename Tile_::Ring::Word;
  using Memory = typename Tile_::Memory;
  static constexpr int kLimbs = Tile_::Ring::kLimbs;
  static constexpr int kAcross = Tile_::kColumns / 8;

 public:
  // Begins to add one step; limbs and planes stay as they are until a wait that covers it.
  __device__ __forceinline__ void add(const typename Tile_::Left::Limbs& left,
                                      const uint8_t* right) {
    const SharedAddress planes = shared_address(right);
    begin_products();
#pragma unroll
    for (int j = 0; j < kLimbs; ++j) {
      const uint64_t plane =
          core_matrices_at(planes + j * Memory::kPlaneBytes, Memory::kHalf, Memory::kCoreMatrix);
#pragma unroll
      for (int i = kLimbs - 1 - j; i >= 0; --i) multiply_bytes(sums_[i + j], left[i], plane);
    }
    end_products();
  }

  // Behind the last wait.
  __device__ __forceinline__ void take() {
#pragma unroll
    for (int w = 0; w < kLimbs; ++w) take_sums(sums_[w]);
  }

  // Calls body(row, column, sum) for what this thread has made, weights put together.
  template <class Body>
  __device__ __forceinline__ void for_each(const LimbPart& part, Body body) const {
    for_each_place<1, kAcross>(
        part, row(), 0, [&](int, int n, int e, int at, int to) { body(at, to, sum(4 * n + e)); });
  }

  // Calls body(row, column, sums) for four at a time, as in an mma tile.
  template <class Body>
  __device__ __forceinline__ void for_each_four(const LimbPart& part, Body body) const {
    for_each_tile<1, kAcross>(part, row(), 0, [&](int, int n, int at, int to) {
      const T four[4] = {sum(4 * n), sum(4 * n + 1), sum(4 * n + 2), sum(4 * n + 3)};
      body(at, to, four);
    });
  }

 private:
  // Where the warp's part of the tile begins.
  static __device__ __forceinline__ int row() {
    return static_cast<int>(threadIdx.x) / kLanes * 16;
  }
  __device__ __forceinline__ T sum(int number) const {
    T sum = 0;
#pragma unroll
    for (int w = 0; w < kLimbs; ++w) sum += weighted<T>(sums_[w][number], w);
    return sum;
  }
  int32_t sums_[kLimbs][4 * kAcross] = {};
};

// Adds all steps of a part.
template <class Tile_, class Operands>
__device__ __forceinline__ void add_steps(GroupSums<Tile_>& sums, const Operands& operands,
                                          const LimbPart& part) {
  using Memory = typename Tile_::Memory;
  constexpr int kStages = Tile_::kStages;
  uint8_t* words = dynamic_shared();
  uint8_t* planes = words + kStages * Memory::kStageBytes;
  LimbLoader<Tile_, Operands> loader(operands, part);
#pragma unroll 1
  for (int ahead = 0; ahead < kStages - 1; ++ahead) {
    loader.copy(words + ahead * Memory::kStageBytes);
  }
  typename Tile_::Left::Limbs left[2];
  int stage = 0;
  const auto planes_of = [&](int step) {
    return planes + step % Memory::kSets * Memory::kSetBytes;
  };
  const auto split = [&](int step, int parity) {
    const int free = stage == 0 ? kStages - 1 : stage - 1;  // split a step ago
    loader.copy(words + free * Memory::kStageBytes);
    wait_for_copies<kStages - 1>();
    loader.split_to(left[parity], planes_of(step), words + stage * Memory::kStageBytes);
    stage = stage + 1 == kStages ? 0 : stage + 1;
    show_words();
    __syncthreads();
  };
  const int steps = part.end - part.begin;
  // Left sums in a branch of their own: else the assembler splits them behind the barrier, and both
  // addends take more registers until then than there are.
  if (Tile_::Left::kTerms == 1 || made_anew(1)) split(0, 0);
#pragma unroll 1
  for (int step = 0; step < steps; step += 2) {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
      if (step + parity >= steps) break;
      sums.add(left[parity], planes_of(step + parity));
      wait_for_products<1>();  // the step before: its fragments and planes are free
      if (step + parity + 1 < steps) split(step + parity + 1, parity ^ 1);
    }
  }
  wait_for_products<0>();
  sums.take();
  __syncthreads();
}

}  // namespace veil
