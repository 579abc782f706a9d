// Around the products of a convolution by residues: images and weights to planes of bytes, and t_i
// to words. kernels/conv2d/residues/image_planes.py has the layout.
#pragma once

#include "kernels/conv2d/divisor.cuh"
#include "kernels/conv2d/residues/byte_images.cuh"
#include "kernels/gemm/residues/residues.cuh"

namespace veil {

// Rows or columns of images: of phase p of `phases` those at (first + p step) % stride, and every
// `stride` from there on, as far as `used` of them.
struct ImageAxis {
  int64_t extent, stride, first, step, used, phases;
  Divisor by_stride, by_phases;

  // Where number i of a phase is in the image; negative beside it.
  __device__ __forceinline__ int place(int phase, int i) const {
    const int at = static_cast<int>(first) + phase * static_cast<int>(step);
    const int turns = i - by_stride.quotient(at);
    const int place = turns * static_cast<int>(stride) + at;
    return i < static_cast<int>(used) && place < static_cast<int>(extent) ? place : -1;
  }
};

// Lines from the first on that a tap reads: images after each other, of rows with gaps between
// them, from `front` on.
struct ImageLines {
  int64_t images, front;
  int64_t of_image, of_row;
  Divisor image, row;  // the same

  struct Place {
    int image, row, column;
  };
  __device__ __forceinline__ Place place(int64_t line) const {
    const int at = static_cast<int>(line - front + of_image);  // one image more: not negative
    const int number = image.quotient(at), rest = at - number * static_cast<int>(of_image);
    const int y = row.quotient(rest);
    return {number - 1, y, rest - y * static_cast<int>(of_row)};
  }
};

// A pair's images and where its residues go: bytes from plane to plane, from 64 channels to the
// next, and from 16 to the next, of which phases are the next 64 of; `at` is the pair's first
// block.
struct ImageReduction {
  int64_t groups, channels;  // of a group
  ImageAxis rows, columns;
  ImageLines lines;
  int64_t filled;  // lines that are read
  int64_t plane, block, piece;
  int64_t blocks, at;
  int64_t across;  // of eight lines
  Divisor by_blocks, by_across;
};

// A thread takes four channels of a line at a time; a warp 16 channels of eight lines.
template <class T, int Count>
__device__ __forceinline__ void reduce_images(uint32_t* out, const T* images,
                                              const ImageReduction& r, const Modulus* moduli) {
  constexpr int kLines = 8, kPieces = kByteStep / kPieceBytes;
  const int across = static_cast<int>(r.across), blocks = static_cast<int>(r.blocks);
  const int high = static_cast<int>(r.rows.phases), wide = static_cast<int>(r.columns.phases);
  const int warps = static_cast<int>(r.groups) * blocks * high * wide * kPieces * across;
  const int lane = static_cast<int>(threadIdx.x) % kLanes, quad = lane / kLines;
  const int channels = static_cast<int>(r.channels);
  const int64_t size = r.rows.extent * r.columns.extent;
  for (int64_t i = grid_thread() / kLanes; i < warps; i += grid_threads() / kLanes) {
    const int run = r.by_across.quotient(static_cast<int>(i)), of_phase = run / kPieces;
    const int of_row = r.columns.by_phases.quotient(of_phase);
    const int of_block = r.rows.by_phases.quotient(of_row);
    const int group = r.by_blocks.quotient(of_block), block = of_block - group * blocks;
    const int line = (static_cast<int>(i) - run * across) * kLines + lane % kLines;
    if (line >= r.filled) continue;
    const ImageLines::Place place = r.lines.place(line);
    const int y = r.rows.place(of_row - of_block * high, place.row);
    const int x = r.columns.place(of_phase - of_row * wide, place.column);
    const bool is_inside = place.image >= 0 && place.image < r.lines.images && y >= 0 && x >= 0;
    const int channel = block * kByteStep + run % kPieces * kPieceBytes + 4 * quad;
    const int64_t number = (int64_t{place.image} * r.groups + group) * channels + channel;
    const T* from = images + number * size + y * r.columns.extent + x;
    T words[4];
#pragma unroll
    for (int d = 0; d < 4; ++d, from += size) {
      words[d] = is_inside && channel + d < channels ? *from : T{0};
    }
    const int of_piece = run - of_block * (high * wide * kPieces);
    const int64_t at = int64_t{group} * Count * r.plane + (r.at + block) * r.block +
                       of_piece * r.piece + line * kPieceBytes;
    put_quads<T, Count>(out + at / 4 + quad, words, r.plane / 4, moduli);
  }
}

// A pair's weights [groups, filters, channels, taps], `at` its first block of 64 channels of all
// taps, among `depth` depths.
struct WeightReduction {
  int64_t groups, filters, channels, taps;
  int64_t blocks, at, depth;
};

// A thread takes four channels of a filter, tap by tap.
template <class T, int Count>
__device__ __forceinline__ void reduce_weights(uint32_t* out, const T* weights,
                                               const WeightReduction& r, const Modulus* moduli) {
  constexpr int64_t kQuads = kByteStep / 4;
  const int64_t plane = byte_plane(r.filters, r.depth), each = r.blocks * kQuads;
  for (int64_t i = grid_thread(); i < r.groups * r.filters * each; i += grid_threads()) {
    const int64_t line = i / each, quad = i - line * each, group = line / r.filters;
    const int64_t block = quad / kQuads, within = quad % kQuads * 4;
    const T* from = weights + (line * r.channels + 4 * quad) * r.taps;
    for (int64_t tap = 0; tap < r.taps; ++tap) {
      T words[4];
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        words[d] = 4 * quad + d < r.channels ? from[d * r.taps + tap] : T{0};
      }
      const int64_t depth = ((r.at + block) * r.taps + tap) * kByteStep + within;
      const int64_t place = place_in_plane(line - group * r.filters, depth, r.depth);
      put_quads<T, Count>(out + (group * Count * plane + place) / 4, words, plane / 4, moduli);
    }
  }
}

// Outputs [images, groups, filters, rows, columns] among t_i [group][modulus][filter][pitch], whose
// lines begin with the first output.
struct OutputPlanes {
  int64_t groups, filters, rows, columns, pitch;
  ImageLines lines;
};

template <class T, int Count>
__device__ __forceinline__ void combine_images(T* out, const uint32_t* t, const OutputPlanes& o,
                                               uint64_t product, const Modulus* moduli) {
  const int64_t all = o.groups * o.filters;
  combine<Count>(t, o.groups, o.filters, o.pitch, product, moduli,
                 [&](int64_t filter, int64_t line, uint64_t sum) {
                   const ImageLines::Place place = o.lines.place(line);
                   if (place.image >= o.lines.images || place.row >= o.rows) return;
                   if (place.column >= o.columns) return;
                   const int64_t row = (place.image * all + filter) * o.rows + place.row;
                   out[row * o.columns + place.column] = static_cast<T>(sum);
                 });
}

}  // namespace veil

#define VEIL_IMAGE_RESIDUES(name, word)                                                            \
  extern "C" __global__ void __launch_bounds__(256) veil_reduce_images_##name(                     \
      uint32_t* out, const word* images, const __grid_constant__ veil::ImageReduction reduction) { \
    veil::reduce_images<word, veil::Basis::kCount>(out, images, reduction, veil::kModuli);         \
  }                                                                                                \
  extern "C" __global__ void __launch_bounds__(256)                                                \
      veil_reduce_weights_##name(uint32_t* out, const word* weights,                               \
                                 const __grid_constant__ veil::WeightReduction reduction) {        \
    veil::reduce_weights<word, veil::Basis::kCount>(out, weights, reduction, veil::kModuli);       \
  }                                                                                                \
  extern "C" __global__ void __launch_bounds__(256) veil_combine_images_##name(                    \
      word* out, const uint32_t* t, const __grid_constant__ veil::OutputPlanes planes) {           \
    veil::combine_images<word, veil::Basis::kCount>(out, t, planes, veil::Basis::kProduct,         \
                                                    veil::kModuli);                                \
  }
