// Products of a vector and a matrix: the matrix is read once, in the order in which it lies.
#pragma once
#include <cstdint>

namespace veil {

// out[j] (+)= sum over k of a[k] b[k, j], for a matrix whose rows lie `row_stride` words apart,
// each in one piece: four rows at a time, so that the output is read and written a fourth as often.
template <class T>
void add_rows(T* out, const T* a, int64_t a_stride, const T* b, int64_t row_stride, int64_t depth,
              int64_t columns) {
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4) {
    const T a0 = a[k * a_stride], a1 = a[(k + 1) * a_stride];
    const T a2 = a[(k + 2) * a_stride], a3 = a[(k + 3) * a_stride];
    const T *b0 = b + k * row_stride, *b1 = b0 + row_stride, *b2 = b1 + row_stride,
            *b3 = b2 + row_stride;
#pragma GCC ivdep
    for (int64_t j = 0; j < columns; ++j) {
      out[j] += a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j];
    }
  }
  for (; k < depth; ++k) {
    const T factor = a[k * a_stride];
    const T* row = b + k * row_stride;
#pragma GCC ivdep
    for (int64_t j = 0; j < columns; ++j) out[j] += factor * row[j];
  }
}

// The same for a matrix whose columns lie in one piece each: inner products.
template <class T>
T inner_product(const T* a, const T* b, int64_t depth) {
  T sum = 0;
  for (int64_t k = 0; k < depth; ++k) sum += a[k] * b[k];
  return sum;
}

template <class T>
void add_inner_products(T* out, const T* a, const T* b, int64_t column_stride, int64_t depth,
                        int64_t columns) {
  for (int64_t j = 0; j < columns; ++j) out[j] += inner_product(a, b + j * column_stride, depth);
}

// A matrix product with one row (or, turned, one column): vector a of `depth`, matrix b by its
// strides.
template <class T>
struct VectorMatrix {
  const T* a;
  int64_t a_stride;
  const T* b;
  int64_t depth_stride, column_stride, depth;

  // Adds the outputs of columns [first, first + count).
  void add(T* out, int64_t first, int64_t count) const {
    const T* columns = b + first * column_stride;
    if (column_stride == 1) {
      // The outputs of a block stay in the first-level cache while all rows pass.
      constexpr int64_t kBlock = 1024;
      for (int64_t j = 0; j < count; j += kBlock) {
        const int64_t size = count - j < kBlock ? count - j : kBlock;
        add_rows(out + j, a, a_stride, columns + j, depth_stride, depth, size);
      }
    } else if (depth_stride == 1 && a_stride == 1) {
      add_inner_products(out, a, columns, column_stride, depth, count);
    } else {
      for (int64_t j = 0; j < count; ++j) {
        T sum = 0;
        for (int64_t k = 0; k < depth; ++k) {
          sum += a[k * a_stride] * columns[k * depth_stride + j * column_stride];
        }
        out[j] += sum;
      }
    }
  }
};

}  // namespace veil
