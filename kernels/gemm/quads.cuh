// Words of a step of a product by limbs on their way to the planes of limbs: copied to shared
// memory asynchronously, and split by the thread that has copied them.
#pragma once

#include "kernels/cuda/tensor_core.cuh"
#include "kernels/gemm/splits.cuh"

namespace veil {

constexpr int kStepDepth = 32;
constexpr int kLinesAtOnce = 32;  // lines of a step that a block copies at a time
constexpr int kWarps = 8;         // of a block
constexpr int kLimbThreads = kWarps * kLanes;

// How the threads of a block share the copies of a factor's step, and how wide each copy is. What
// comes with a vector is 16 bytes of neighbouring words, and begins at a multiple of 16 bytes.
enum Access : int64_t {
  kWordsAlongLines = 0,   // neighbouring threads take neighbouring lines
  kWordsAlongDepths = 1,  // neighbouring threads take neighbouring depths
  kVectorsAlongDepths = 2,
  kVectorsAlongLines = 3,  // a thread takes a vector of lines, four depths of it
  kPacked = 4,             // limbs are there: kernels/gemm/pack.cuh. Strides are of tiles and steps
};

// Words of a step in shared memory, in pieces of 16 bytes that belong to a thread.
template <class Tile_>
struct WordMemory {
  using T = typename Tile_::Ring::Word;
  static constexpr int kPiece = 16;  // bytes of a quad that a thread holds side by side
  static constexpr int kWord = sizeof(T);
  static constexpr int kVector = kPiece / kWord;   // words of a piece
  static constexpr int kPieces = kQuad / kVector;  // of a quad
  static constexpr int kPassBytes = kPieces * kPiece * kLimbThreads;
  // A whole number of vectors of lines.
  static constexpr int passes(int lines) {
    return (lines + kLinesAtOnce * kVector - 1) / (kLinesAtOnce * kVector) * kVector;
  }

  // Piece `p` of those that a thread copies of a factor.
  static __device__ __forceinline__ int piece(int p) {
    return (p * kLimbThreads + static_cast<int>(threadIdx.x)) * kPiece;
  }

  // A vector as piece `p`, of which `rest` words are there, all of them where the step is whole.
  template <bool Whole, class Source>
  static __device__ __forceinline__ void copy_vector(const Source& source, uint8_t* words, int p,
                                                     const T* from, int rest) {
    const SharedAddress to = shared_address(words + piece(p));
    if constexpr (Whole) {
      copy_async<kPiece>(to, from);
    } else {
      const int valid = rest <= 0 ? 0 : rest < kVector ? rest : kVector;
      copy_async<kPiece>(to, valid > 0 ? from : source.data, valid * kWord);
    }
  }

  // Depths from `k` on of a line, `left` of which are there, word by word, from piece `p` on.
  template <class Source>
  static __device__ __forceinline__ void copy_words(const Source& source, uint8_t* words, int p,
                                                    const typename Source::Line& line, int k,
                                                    int left) {
#pragma unroll
    for (int d = 0; d < kQuad; ++d) {
      const T* from = d < left ? source.address(line, source.depth(k + d)) : nullptr;
      uint8_t* to = words + piece(p + d / kVector) + d % kVector * kWord;
      copy_async<kWord>(shared_address(to), from ? from : source.data, from ? kWord : 0);
    }
  }

  // The words of a piece.
  static __device__ __forceinline__ void read(uint32_t* to, const uint8_t* words, int p) {
    const uint4 all = *reinterpret_cast<const uint4*>(words + piece(p));
    to[0] = all.x, to[1] = all.y, to[2] = all.z, to[3] = all.w;
  }

  static __device__ __forceinline__ void read(uint64_t* to, const uint8_t* words, int p) {
    const uint4 two = *reinterpret_cast<const uint4*>(words + piece(p));
    to[0] = static_cast<uint64_t>(two.y) << 32 | two.x;
    to[1] = static_cast<uint64_t>(two.w) << 32 | two.z;
  }

  // The same of a factor that is a sum of `Terms`, each with its words `Bytes` behind the last's.
  template <int Terms, int Bytes>
  static __device__ __forceinline__ void read_sum(T* to, const uint8_t* words, int p) {
    read(to, words, p);
#pragma unroll
    for (int term = 1; term < Terms; ++term) {
      T more[kVector];
      read(more, words + term * Bytes, p);
#pragma unroll
      for (int v = 0; v < kVector; ++v) to[v] += more[v];
    }
  }
};

// A thread's share of one factor: of every step, four depths of every kLinesAtOnce-th line, or of
// every kLinesAtOnce-th vector of lines. Nothing of it is kept: registers are the sums'. A factor
// of two terms is the sum of two matrices, whose words are added up when they are split.
template <class Tile_, int Lines, int Terms>
class Quads {
  using Memory = typename Tile_::Memory;
  using T = typename Tile_::Ring::Word;
  static constexpr int kVector = Memory::kVector, kPieces = Memory::kPieces;
  static constexpr int kPasses = (Lines + kLinesAtOnce - 1) / kLinesAtOnce;
  static constexpr int kVectorPasses = Memory::passes(Lines) / kVector;
  static constexpr int kLimbs = Tile_::Ring::kLimbs;
  static constexpr int kPlanePieces = Lines * kStepDepth / Memory::kPiece;  // of a limb
  static constexpr int kPackedPasses = (kLimbs * kPlanePieces + kLimbThreads - 1) / kLimbThreads;
  static_assert(kPackedPasses <= Memory::passes(Lines) * kPieces);

 public:
  static constexpr int kTerms = Terms;
  static constexpr int kTermBytes = Memory::passes(Lines) * Memory::kPassBytes;

  // Of a warp, lanes take 8 lines, or vectors of them, and 4 quads of each. Addresses follow from
  // the line, so the compiler can't keep any from step to step.
  __device__ __forceinline__ explicit Quads(Access access) : access_(access) {
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    const int warp = static_cast<int>(threadIdx.x) / kLanes;
    const bool along_depths = access == kWordsAlongDepths || access == kVectorsAlongDepths;
    line_ = made_anew(warp / 2 * 8 + (along_depths ? lane / 4 : lane % 8));
    quad_ = warp % 2 * 4 + (along_depths ? lane % 4 : lane / 8);
  }

  // Lines from `first` up to `end`, depths from `k` up to `depth`; zeros beyond.
  template <class Source>
  __device__ __forceinline__ void copy(const Source& source, uint8_t* words, int first, int end,
                                       int k, int depth) const {
    const bool is_whole = first + Lines <= end && k + kStepDepth <= depth;
    if constexpr (Source::kHasVectors) {
      if (Terms == 1 && access_ == kPacked) {
        copy_packed(source, words, first / Lines, k / kStepDepth);
        return;
      }
    }
    k += kQuad * quad_;
    if constexpr (Source::kHasVectors) {
      if (access_ == kVectorsAlongDepths) {
        if (is_whole) {
          copy_depths<true>(source, words, first, end, k, depth - k);
        } else {
          copy_depths<false>(source, words, first, end, k, depth - k);
        }
        return;
      }
      if (access_ == kVectorsAlongLines) {
        if (is_whole) {
          copy_lines<true>(source, words, first, end, k, depth - k);
        } else {
          copy_lines<false>(source, words, first, end, k, depth - k);
        }
        return;
      }
    }
    copy_words(source, words, first, end, k, depth - k);
  }

  // What was copied, as limbs in the planes at `lines`, this factor's first line.
  __device__ __forceinline__ void split_to(uint8_t* lines, const uint8_t* words) const {
    if (Terms == 1 && access_ == kPacked) {
      move_planes(lines, words);
    } else if (access_ == kVectorsAlongLines) {
      split_lines(lines, words);
    } else {
      split_depths(lines, words);
    }
  }

 private:
  // Whether line `line` of the tile is beyond one of fewer lines than a block copies at a time.
  static __device__ __forceinline__ bool is_beside(int line, int at_once) {
    return Lines % at_once != 0 && line >= Lines;
  }

  template <bool Whole, class Source>
  __device__ __forceinline__ void copy_depths(const Source& source, uint8_t* words, int first,
                                              int end, int k, int left) const {
    const T* from = source.address(source.line(first + line_), source.depth(k));
    const int64_t next = kLinesAtOnce * source.stride;
#pragma unroll
    for (int i = 0; i < kPasses; ++i, from += next) {
      if (is_beside(line_ + kLinesAtOnce * i, kLinesAtOnce)) continue;
      const bool inside = first + line_ + kLinesAtOnce * i < end;
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        const int rest = inside ? left - p * kVector : 0;
        Memory::template copy_vector<Whole>(source, words, i * kPieces + p, from + p * kVector,
                                            rest);
      }
    }
  }

  template <bool Whole, class Source>
  __device__ __forceinline__ void copy_lines(const Source& source, uint8_t* words, int first,
                                             int end, int k, int left) const {
#pragma unroll
    for (int i = 0; i < kVectorPasses; ++i) {
      const int inside = kVector * (line_ + kLinesAtOnce * i);
      if (is_beside(inside, kVector * kLinesAtOnce)) continue;
      const T* from = source.address(source.line(first + inside), source.depth(k));
#pragma unroll
      for (int d = 0; d < kQuad; ++d, from += source.depth_stride) {
        const int rest = d < left ? end - first - inside : 0;
        Memory::template copy_vector<Whole>(source, words, i * kQuad + d, from, rest);
      }
    }
  }

  template <class Source>
  __device__ __forceinline__ void copy_words(const Source& source, uint8_t* words, int first,
                                             int end, int k, int left) const {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      if (is_beside(line_ + kLinesAtOnce * i, kLinesAtOnce)) continue;
      const int number = first + line_ + kLinesAtOnce * i;
      Memory::copy_words(source, words, i * kPieces, source.line(number), k,
                         number < end ? left : 0);
    }
  }

  // Piece `i` of this thread's, of all pieces of a packed step.
  static __device__ __forceinline__ int packed_piece(int i) {
    return kLimbThreads * i + made_anew(static_cast<int>(threadIdx.x));
  }
  static __device__ __forceinline__ bool is_beyond(int number) {
    return kLimbs * kPlanePieces % kLimbThreads != 0 && number >= kLimbs * kPlanePieces;
  }

  template <class Source>
  static __device__ __forceinline__ void copy_packed(const Source& source, uint8_t* words, int tile,
                                                     int step) {
    const T* run = source.address(source.line(tile), source.depth(step));
#pragma unroll
    for (int i = 0; i < kPackedPasses; ++i) {
      const int number = packed_piece(i);
      if (is_beyond(number)) continue;
      copy_async<Memory::kPiece>(shared_address(words + Memory::piece(i)), run + number * kVector);
    }
  }

  static __device__ __forceinline__ void move_planes(uint8_t* lines, const uint8_t* words) {
#pragma unroll
    for (int i = 0; i < kPackedPasses; ++i) {
      const int number = packed_piece(i);
      if (is_beyond(number)) continue;
      const int limb = number / kPlanePieces, place = Memory::packed_place(number % kPlanePieces);
      *reinterpret_cast<uint4*>(lines + limb * Memory::kPlaneBytes + place) =
          *reinterpret_cast<const uint4*>(words + Memory::piece(i));
    }
  }

  static __device__ __forceinline__ void read(T* to, const uint8_t* words, int p) {
    Memory::template read_sum<Terms, kTermBytes>(to, words, p);
  }

  __device__ __forceinline__ void split_depths(uint8_t* lines, const uint8_t* words) const {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int line = line_ + kLinesAtOnce * i;
      if (is_beside(line, kLinesAtOnce)) continue;
      T quad[kQuad];
#pragma unroll
      for (int p = 0; p < kPieces; ++p) read(quad + p * kVector, words, i * kPieces + p);
      store(lines, line, quad);
    }
  }

  __device__ __forceinline__ void split_lines(uint8_t* lines, const uint8_t* words) const {
#pragma unroll
    for (int i = 0; i < kVectorPasses; ++i) {
      const int line = kVector * (line_ + kLinesAtOnce * i);
      if (is_beside(line, kVector * kLinesAtOnce)) continue;
      T block[kQuad][kVector];
#pragma unroll
      for (int d = 0; d < kQuad; ++d) read(block[d], words, i * kQuad + d);
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        const T quad[kQuad] = {block[0][v], block[1][v], block[2][v], block[3][v]};
        store(lines, line + v, quad);
      }
    }
  }

  __device__ __forceinline__ void store(uint8_t* lines, int line, const T (&quad)[kQuad]) const {
    uint32_t limbs[kLimbs];
    split(quad, limbs);
    uint8_t* to = lines + Memory::place(line, quad_ / 4) + quad_ % 4 * kQuad;
#pragma unroll
    for (int limb = 0; limb < kLimbs; ++limb) {
      *reinterpret_cast<uint32_t*>(to + limb * Memory::kPlaneBytes) = limbs[limb];
    }
  }

  Access access_;
  int line_, quad_;
};

}  // namespace veil
