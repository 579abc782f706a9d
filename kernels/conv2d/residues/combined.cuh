// Outputs of a convolution by residues as a fused program makes them: `combine` of
// kernels/conv2d/residues/residues.cuh with the program that follows.
#pragma once

#include "kernels/conv2d/divisor.cuh"
#include "kernels/gemm/residues/combined.cuh"

namespace veil {

// Outputs [images, groups, filters, rows, columns] among t_i [group][modulus][filter][pitch], whose
// lines are images of `of_image`, rows of `of_row`. The divisors are of rows x columns, columns,
// all filters, and those of a group.
struct OutputElements {
  int64_t filters, group_filters, size, columns, pitch;
  int64_t of_image, of_row;
  Divisor image, row, all_filters, filter;
};

template <class T, int Count>
__device__ __forceinline__ Words<T> combined_images(const Tile& tile, const uint8_t* t,
                                                    const OutputElements& o, uint64_t product,
                                                    const Modulus* moduli) {
  const int64_t plane = o.group_filters * o.pitch;
  return each_part<T>([&](int c) {
    if (tile.element(c) >= tile.elements) return T{0};
    const int i = static_cast<int>(tile.element(c));
    const int of_filter = o.image.quotient(i), in_image = i - of_filter * static_cast<int>(o.size);
    const int y = o.row.quotient(in_image), x = in_image - y * static_cast<int>(o.columns);
    const int number = o.all_filters.quotient(of_filter);
    const int filter = of_filter - number * static_cast<int>(o.filters);
    const int group = o.filter.quotient(filter);
    const int64_t first = int64_t{group} * (Count - 1) * plane + filter * o.pitch;
    const uint8_t* from = t + (first + number * o.of_image + y * o.of_row + x);
    return static_cast<T>(combined_sum<Count>(from, plane, product, moduli));
  });
}

}  // namespace veil
