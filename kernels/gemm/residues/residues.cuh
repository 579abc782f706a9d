// Matrix products in ring words on 8-bit tensor cores, by residues:
// kernels/gemm/residues/residues.py has the formulas and their proof, and prints the constants
// above the kernels.
//
//   reduce     words [lines, depth] to planes of bytes, one a modulus, depths filled up with zeros
//   multiply   bytes of both factors to t_i [modulus][row][column], a byte each; how planes of
//              bytes lie, and the kernels of this step: byte_products.cuh
//   combine    t_i to words
#pragma once

#include "kernels/gemm/residues/byte_products.cuh"
#include "kernels/gemm/residues/modulus.cuh"
#include "kernels/matmul/pairs.cuh"

namespace veil {

// A float of 2^23 or more whose bits are those of another one, kWhole, plus an integer.
constexpr float kWhole = 3 << 22;
constexpr int32_t kWholeBits = 0x4b400000;

// x mod m nearest to zero, in the lowest byte, for |x| <= 2^17 that has been added to kWholeBits.
// Sums that are as large as kWhole are integers, so adding it rounds. 1 / m is off by 2^-24 of
// itself, and the quotient by 2^-7 / m before it is rounded: the result is off zero by at most
// m / 2, and 128 is -128 where m is 256. All other steps are exact.
__device__ __forceinline__ uint32_t nearest_residue(int32_t bits, const Modulus& modulus) {
  const float x = __int_as_float(bits);
  const float quotient = __fmaf_rn(x - kWhole, modulus.inverse, kWhole) - kWhole;
  return static_cast<uint32_t>(__float_as_int(__fmaf_rn(-quotient, modulus.m, x)));
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

// The sum of x's limbs times 256^j mod m, and c.
__device__ __forceinline__ int32_t dot_limbs(uint32_t x, const Modulus& modulus, int32_t c) {
  return dot_bytes(x + 0x80808080u ^ 0x80808080u, modulus.low, c);
}

__device__ __forceinline__ int32_t dot_limbs(uint64_t x, const Modulus& modulus, int32_t c) {
  constexpr uint64_t kHalves = 0x8080808080808080u;
  const uint64_t y = x + kHalves ^ kHalves;
  return dot_bytes(static_cast<uint32_t>(y), modulus.low,
                   dot_bytes(static_cast<uint32_t>(y >> 32), modulus.high, c));
}

// Residues of four words, a word of bytes for each modulus: `next` words lie between them.
template <class T, int Count>
__device__ __forceinline__ void put_quads(uint32_t* out, const T (&words)[4], int64_t next,
                                          const Modulus* moduli) {
#pragma unroll
  for (int m = 0; m < Count; ++m) {
    constexpr unsigned kLowBytes = 0x40, kLowHalves = 0x5410;
    uint32_t each[4];
#pragma unroll
    for (int d = 0; d < 4; ++d) {
      each[d] = nearest_residue(dot_limbs(words[d], moduli[m], kWholeBits), moduli[m]);
    }
    out[m * next] = __byte_perm(__byte_perm(each[0], each[1], kLowBytes),
                                __byte_perm(each[2], each[3], kLowBytes), kLowHalves);
  }
}

// Residues of a factor's entries: of `lines` lines and `depth` depths each, at depths `at` to
// at + filled of `pitch` in all. A thread takes four depths of a line at a time. Where there is an
// `addend`, entries are sums with what lies there in the same strides.
template <class T, int Count>
__device__ __forceinline__ void reduce(uint32_t* out, const Factor& factor, int64_t batch,
                                       int64_t lines, int64_t depth, int64_t at, int64_t filled,
                                       int64_t pitch, uint64_t addend, const Modulus* moduli) {
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
    const Strided<T> source = factor.entry<T>(entry), more = factor.at(addend).entry<T>(entry);
    const int64_t place = place_in_plane(line, at + 4 * quad, pitch);
    T words[4];
#pragma unroll
    for (int d = 0; d < 4; ++d) {
      const int64_t k = 4 * quad + d;
      words[d] = k < depth ? *source.address(source.line(line), source.depth(k)) : T{0};
      if (addend && k < depth) words[d] += *more.address(more.line(line), more.depth(k));
    }
    const int64_t plane = byte_plane(lines, pitch);
    put_quads<T, Count>(out + (entry * Count * plane + place) / 4, words, plane / 4, moduli);
  }
}

// Words of entries of so many rows, for put(line, column, word), where lines are rows of all
// entries; a thread takes four columns at a time.
template <int Count, class Put>
__device__ __forceinline__ void combine(const uint32_t* t, int64_t batch, int64_t rows,
                                        int64_t pitch, uint64_t product, const Modulus* moduli,
                                        Put put) {
  const int64_t quads = pitch / 4;
  for (int64_t i = grid_thread(); i < batch * rows * quads; i += grid_threads()) {
    const int64_t line = i / quads, quad = i - line * quads, entry = line / rows;
    const int64_t row = line - entry * rows;
    ModularSum sums[4];
#pragma unroll
    for (int m = 0; m < Count; ++m) {
      const uint32_t bytes = t[((entry * Count + m) * rows + row) * quads + quad];
#pragma unroll
      for (int d = 0; d < 4; ++d) sums[d].add(bytes >> 8 * d & 0xff, moduli[m]);
    }
#pragma unroll
    for (int d = 0; d < 4; ++d) put(line, 4 * quad + d, sums[d].value(product));
  }
}

}  // namespace veil

#define VEIL_RESIDUES(name, word)                                                                  \
  extern "C" __global__ void __launch_bounds__(256) veil_reduce_##name(                            \
      uint32_t* out, const veil::Factor factor, int64_t batch, int64_t lines, int64_t depth,       \
      int64_t at, int64_t filled, int64_t pitch, uint64_t addend) {                                \
    veil::reduce<word, veil::Basis::kCount>(out, factor, batch, lines, depth, at, filled, pitch,   \
                                            addend, veil::kModuli);                                \
  }                                                                                                \
  extern "C" __global__ void __launch_bounds__(256) veil_combine_##name(                           \
      word* out, const uint32_t* t, int64_t batch, int64_t rows, int64_t columns, int64_t pitch) { \
    veil::combine<veil::Basis::kCount>(t, batch, rows, pitch, veil::Basis::kProduct,               \
                                       veil::kModuli,                                              \
                                       [&](int64_t line, int64_t column, uint64_t sum) {           \
                                         if (column < columns)                                     \
                                           out[line * columns + column] = static_cast<word>(sum);  \
                                       });                                                         \
  }
