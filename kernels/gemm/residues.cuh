// Matrix products in ring words on 8-bit tensor cores, by residues: kernels/gemm/residues.py has
// the formulas and their proof, and prints the constants above the kernels.
//
//   reduce     words [lines, depth] to bytes [modulus][line][depth], depths filled up with zeros
//   multiply   bytes of both factors to t_i [modulus][row][column], a byte each
//   combine    t_i to words
//
// A block of `multiply` makes 128 x 256 of the output for one modulus, each of its eight warps
// 64 x 64. A step is 64 depths, four of them in shared memory: [line][64 bytes], whose four pieces
// of 16 are changed about by bits 1 and 2 of the line, so that eight lines' same pieces are in all
// banks.
#pragma once

#include "kernels/cuda/tensor_core.cuh"
#include "kernels/matmul/pairs.cuh"

namespace veil {

struct Modulus {
  int32_t m, inverse;
  uint32_t below;      // floor((2^32 - 1) / m)
  uint32_t above;      // ceil(2^32 / m)
  int32_t half;        // ceil(2^31 / m)
  uint32_t low, high;  // 256^j mod m, j = 0 .. 7, as signed bytes
  uint64_t weight;     // M / m modulo 2^64
  uint64_t fraction;   // 2^56 / m
};

constexpr int kFractionBits = 56;

// x mod m nearest to zero, as a byte modulo 256, for |x| <= 2^17. The quotient is within 2^-11 of
// x / m before it is rounded, so the result is off zero by at most m / 2 + 1/8: a signed byte, or
// 128 where m is 256, which is -128 there.
__device__ __forceinline__ uint32_t nearest_residue(int32_t x, const Modulus& modulus) {
  const int32_t quotient = static_cast<int32_t>(int64_t{x << 13} * modulus.half >> 32);
  return static_cast<uint32_t>(x - (quotient + (1 << 11) >> 12) * modulus.m) & 0xff;
}

// The sum of products of the signed bytes of a and b, and c.
__device__ __forceinline__ int32_t dot_bytes(uint32_t a, uint32_t b, int32_t c) {
#if defined(__CUDACC__)
  return __dp4a(static_cast<int>(a), static_cast<int>(b), c);
#else
  for (int i = 0; i < 4; ++i)
    c += static_cast<int8_t>(a >> 8 * i) * static_cast<int8_t>(b >> 8 * i);
  return c;
#endif
}

__device__ __forceinline__ int32_t dot_limbs(uint32_t x, const Modulus& modulus) {
  return dot_bytes(x + 0x80808080u ^ 0x80808080u, modulus.low, 0);
}

__device__ __forceinline__ int32_t dot_limbs(uint64_t x, const Modulus& modulus) {
  constexpr uint64_t kHalves = 0x8080808080808080u;
  const uint64_t y = x + kHalves ^ kHalves;
  return dot_bytes(static_cast<uint32_t>(y), modulus.low,
                   dot_bytes(static_cast<uint32_t>(y >> 32), modulus.high, 0));
}

// Residues of a factor's entries: of `lines` lines and `depth` depths each, at depths `at` to
// at + filled of `pitch` in all. A thread takes four depths of a line at a time.
template <class T, int Count>
__device__ __forceinline__ void reduce(uint32_t* out, const Factor& factor, int64_t batch,
                                       int64_t lines, int64_t depth, int64_t at, int64_t filled,
                                       int64_t pitch, const Modulus* moduli) {
  // Neighbouring threads read neighbouring words: 4 quads of 8 lines, or quads alone.
  const int64_t side = factor.depth_stride == 1 ? 1 : 8, each = 32 / side;
  const int64_t quads = filled / 4, across = (quads + each - 1) / each;
  const int64_t down = (lines + side - 1) / side, warps = grid_threads() / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  for (int64_t i = grid_thread() / kLanes; i < batch * down * across; i += warps) {
    const int64_t entry = i / (down * across), rest = i - entry * down * across;
    const int64_t line = rest / across * side + lane % side;
    const int64_t quad = rest % across * each + lane / side;
    if (line >= lines || quad >= quads) continue;
    const Strided<T> source = factor.entry<T>(entry);
    T words[4];
#pragma unroll
    for (int d = 0; d < 4; ++d) {
      const int64_t k = 4 * quad + d;
      words[d] = k < depth ? *source.address(source.line(line), source.depth(k)) : T{0};
    }
#pragma unroll
    for (int m = 0; m < Count; ++m) {
      uint32_t bytes = 0;
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        bytes |= nearest_residue(dot_limbs(words[d], moduli[m]), moduli[m]) << 8 * d;
      }
      out[(((entry * Count + m) * lines + line) * pitch + at) / 4 + quad] = bytes;
    }
  }
}

constexpr int kByteStep = 64;  // depths
constexpr int kByteRows = 128, kByteColumns = 256, kByteStages = 4;
constexpr int kByteDown = 4, kByteAcross = 8;  // of mma's 16 x 8, a warp
constexpr int kByteThreads = 256;
constexpr int kByteStageBytes = (kByteRows + kByteColumns) * kByteStep;
constexpr int kByteSharedBytes = kByteStages * kByteStageBytes;

__device__ __forceinline__ int place_in_bytes(int line, int piece) {
  return line * kByteStep + ((piece ^ line >> 1 & 3) << 4);
}

// Copies of one step: lines [first, first + Lines) of a plane, zeros from `end` on.
template <int Lines>
__device__ __forceinline__ void copy_bytes(uint8_t* to, const uint8_t* plane, int first, int end,
                                           int64_t pitch, int64_t k) {
  const int thread = made_anew(static_cast<int>(threadIdx.x));
#pragma unroll
  for (int i = 0; i < Lines * 4 / kByteThreads; ++i) {
    const int number = thread + kByteThreads * i;
    const int line = number / 4, piece = number % 4, from = first + line;
    copy_async<16>(shared_address(to + place_in_bytes(line, piece)),
                   plane + (from < end ? from * pitch + k + 16 * piece : 0), from < end ? 16 : 0);
  }
}

struct ByteSums {
  int32_t of[kByteDown][kByteAcross][4];
};

__device__ __forceinline__ void add_bytes(ByteSums& sums, const uint8_t* stage, int row,
                                          int column) {
  const int lane = made_anew(static_cast<int>(threadIdx.x) % kLanes);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t a[kByteDown][4], b[kByteAcross][2];
#pragma unroll
    for (int m = 0; m < kByteDown; ++m) {
      const int place = place_in_bytes(row + 16 * m + lane % 16, 2 * half + lane / 16);
      load_matrices(a[m], shared_address(stage + place));
    }
#pragma unroll
    for (int n = 0; n < kByteAcross; n += 2) {
      const int line = kByteRows + column + 8 * n + lane % 8 + lane / 16 * 8;
      uint32_t both[4];
      load_matrices(both, shared_address(stage + place_in_bytes(line, 2 * half + lane / 8 % 2)));
      b[n][0] = both[0], b[n][1] = both[1], b[n + 1][0] = both[2], b[n + 1][1] = both[3];
    }
#pragma unroll
    for (int m = 0; m < kByteDown; ++m) {
#pragma unroll
      for (int n = 0; n < kByteAcross; ++n) multiply_bytes(sums.of[m][n], a[m], b[n]);
    }
  }
}

// r inverse mod m in [0, m), for any r: the first quotient is too small by one at most (for r < 0
// too large by one at most), the second exact, because r inverse is below 2^16.
__device__ __forceinline__ uint32_t scaled_residue(int32_t r, const Modulus& modulus) {
  const int64_t quotient = int64_t{r} * modulus.below >> 32;
  int32_t rest = r - static_cast<int32_t>(quotient) * modulus.m;
  rest += rest < 0 ? modulus.m : 0;
  rest -= rest >= modulus.m ? modulus.m : 0;
  const uint32_t scaled = static_cast<uint32_t>(rest) * static_cast<uint32_t>(modulus.inverse);
  const uint32_t whole = static_cast<uint32_t>(uint64_t{scaled} * modulus.above >> 32);
  return scaled - whole * static_cast<uint32_t>(modulus.m);
}

// t_i of a tile; z of the grid walks over entries and moduli.
template <int Count>
__device__ __forceinline__ void multiply(uint8_t* out, const uint8_t* left, const uint8_t* right,
                                         int64_t batch, int rows, int columns, int64_t depth,
                                         int64_t out_pitch, const Modulus* moduli) {
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int row = warp / 4 * 16 * kByteDown, column = warp % 4 * 8 * kByteAcross;
  const int64_t down = (rows + kByteRows - 1) / kByteRows;
  const TilePlace place = place_of(blockIdx.x, down, (columns + kByteColumns - 1) / kByteColumns);
  const int first_row = static_cast<int>(place.row) * kByteRows;
  const int first_column = static_cast<int>(place.column) * kByteColumns;
  uint8_t* stages = dynamic_shared();
  for (int64_t z = blockIdx.z; z < batch * Count; z += gridDim.z) {
    const Modulus& modulus = moduli[z % Count];
    const uint8_t* a = left + z * rows * depth;
    const uint8_t* b = right + z * columns * depth;
    const int steps = static_cast<int>(depth / kByteStep);
    const auto copy = [&](int step) {
      if (step < steps) {
        uint8_t* to = stages + step % kByteStages * kByteStageBytes;
        const int64_t k = int64_t{step} * kByteStep;
        copy_bytes<kByteRows>(to, a, first_row, rows, depth, k);
        copy_bytes<kByteColumns>(to + kByteRows * kByteStep, b, first_column, columns, depth, k);
      }
      end_copies();
    };
    ByteSums sums = {};
    for (int step = 0; step < kByteStages - 1; ++step) copy(step);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      wait_for_copies<kByteStages - 2>();
      __syncthreads();
      copy(step + kByteStages - 1);
      add_bytes(sums, stages + step % kByteStages * kByteStageBytes, row, column);
    }
    __syncthreads();
    const int lane = made_anew(static_cast<int>(threadIdx.x) % kLanes);
#pragma unroll
    for (int m = 0; m < kByteDown; ++m) {
#pragma unroll
      for (int n = 0; n < kByteAcross; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int at = first_row + row + 16 * m + lane / 4 + e / 2 * 8;
          const int across = first_column + column + 8 * n + lane % 4 * 2 + e % 2;
          if (at >= rows || across >= columns) continue;
          out[(z * rows + at) * out_pitch + across] =
              static_cast<uint8_t>(scaled_residue(sums.of[m][n][e], modulus));
        }
      }
    }
  }
}

// Words of entries of rows x columns; a thread takes four columns at a time.
template <class T, int Count>
__device__ __forceinline__ void combine(T* out, const uint32_t* t, int64_t batch, int64_t rows,
                                        int64_t columns, int64_t pitch, uint64_t product,
                                        const Modulus* moduli) {
  const int64_t quads = pitch / 4;
  for (int64_t i = grid_thread(); i < batch * rows * quads; i += grid_threads()) {
    const int64_t line = i / quads, quad = i - line * quads, entry = line / rows;
    const int64_t row = line - entry * rows;
    uint64_t sums[4] = {}, fractions[4] = {};
#pragma unroll
    for (int m = 0; m < Count; ++m) {
      const uint32_t bytes = t[((entry * Count + m) * rows + row) * quads + quad];
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        const uint64_t each = bytes >> 8 * d & 0xff;
        sums[d] += each * moduli[m].weight;
        fractions[d] += each * moduli[m].fraction;
      }
    }
#pragma unroll
    for (int d = 0; d < 4; ++d) {
      const uint64_t q = fractions[d] + (uint64_t{1} << (kFractionBits - 1)) >> kFractionBits;
      const int64_t column = 4 * quad + d;
      if (column < columns) out[line * columns + column] = static_cast<T>(sums[d] - q * product);
    }
  }
}

}  // namespace veil

#define VEIL_RESIDUES(name, word)                                                                  \
  extern "C" __global__ void __launch_bounds__(256)                                                \
      veil_reduce_##name(uint32_t* out, const veil::Factor factor, int64_t batch, int64_t lines,   \
                         int64_t depth, int64_t at, int64_t filled, int64_t pitch) {               \
    veil::reduce<word, veil::Basis::kCount>(out, factor, batch, lines, depth, at, filled, pitch,   \
                                            veil::kModuli);                                        \
  }                                                                                                \
  extern "C" __global__ void __launch_bounds__(256, 1)                                             \
      veil_multiply_##name(uint8_t* out, const uint8_t* left, const uint8_t* right, int64_t batch, \
                           int64_t rows, int64_t columns, int64_t depth, int64_t pitch) {          \
    veil::multiply<veil::Basis::kCount>(out, left, right, batch, static_cast<int>(rows),           \
                                        static_cast<int>(columns), depth, pitch, veil::kModuli);   \
  }                                                                                                \
  extern "C" __global__ void __launch_bounds__(256) veil_combine_##name(                           \
      word* out, const uint32_t* t, int64_t batch, int64_t rows, int64_t columns, int64_t pitch) { \
    veil::combine<word, veil::Basis::kCount>(out, t, batch, rows, columns, pitch,                  \
                                             veil::Basis::kProduct, veil::kModuli);                \
  }
