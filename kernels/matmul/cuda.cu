// Sums of matrix products by tiles; z of the grid walks over the batch and the parts of the depth.
#include "kernels/matmul/pairs.cuh"

namespace veil {

template <class T, int Rows, int Columns>
__device__ __forceinline__ void matmul(T* out, int64_t batch, int64_t rows, int64_t columns,
                                       int64_t parts, int64_t pitch, bool adds,
                                       const Pairs& pairs) {
  for (int64_t z = blockIdx.z; z < batch * parts; z += gridDim.z) {
    const int64_t entry = z / parts;
    const TilePart tile = {rows,
                           columns,
                           static_cast<int64_t>(blockIdx.y) * Rows,
                           static_cast<int64_t>(blockIdx.x) * Columns,
                           z % parts,
                           parts};
    Product<T, Rows, Columns> product;
    for (int p = 0; p < pairs.count; ++p) {
      const Pair& pair = pairs.pair[p];
      product.add(pair.a.entry<T>(entry), pair.b.entry<T>(entry), pair.depth, tile);
    }
    T* to = out + tile.part * pitch + entry * rows * columns;
    product.for_each(tile, [&](int64_t row, int64_t column, T sum) {
      put_sum(to + row * columns + column, sum, adds);
    });
  }
}

}  // namespace veil

#define VEIL_MATMUL(bits, rows_each, columns_each)                                                 \
  extern "C" __global__ void __launch_bounds__(256, 1)                                             \
      veil_matmul##bits##_##rows_each##x##columns_each(                                            \
          uint##bits##_t* out, int64_t batch, int64_t rows, int64_t columns, int64_t parts,        \
          int64_t pitch, int64_t adds, veil::Pairs pairs) {                                        \
    veil::matmul<uint##bits##_t, rows_each, columns_each>(out, batch, rows, columns, parts, pitch, \
                                                          adds != 0, pairs);                       \
  }

VEIL_MATMUL(32, 128, 128)
VEIL_MATMUL(32, 32, 128)
VEIL_MATMUL(32, 128, 32)
VEIL_MATMUL(64, 128, 64)
VEIL_MATMUL(64, 32, 128)
VEIL_MATMUL(64, 128, 32)
