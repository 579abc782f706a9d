// Sums of matrix products: blocked, or as inner products where one of the factors is a vector.
#include <cstdint>
#include <cstring>

#include "kernels/cpu/abi.h"
#include "kernels/cpu/buffers.h"
#include "kernels/cpu/parallel.h"
#include "kernels/gemm/cpu/blocked.h"
#include "kernels/gemm/cpu/strided_source.h"
#include "kernels/matmul/vector.h"

namespace veil {
namespace {

// Output [batch, rows, columns] of a call.
struct Extents {
  int64_t batch, rows, columns;
};

Extents extents_of(const VeilCall& call) {
  const VeilBuffer& out = call.buffers[0];
  return {out.shape[0], out.shape[1], out.shape[2]};
}

// What decides on the micro-kernel: the first pair stands for all.
Product product_of(const VeilCall& call) {
  const Extents e = extents_of(call);
  return {params_of<MatmulParams>(call).bits, e.rows, e.columns, call.buffers[1].shape[2]};
}

int64_t multiply_adds(const VeilCall& call) {
  int64_t depth = 0;
  for (uint32_t i = 1; i < call.buffer_count; i += 2) depth += call.buffers[i].shape[2];
  return saturating_product(element_count(call.buffers[0]), depth);
}

constexpr int64_t kGrain = int64_t{1} << 19;  // multiply-adds for which a thread is worth waking

// The pairs of one batch entry, as the blocked product wants them.
template <class T>
struct Pairs {
  const VeilCall& call;
  int64_t batch;

  int64_t count() const { return (call.buffer_count - 1) / 2; }

  Term<StridedSource<T>, StridedSource<T>> term(int64_t pair) const {
    const VeilBuffer &a = call.buffers[1 + 2 * pair], &b = call.buffers[2 + 2 * pair];
    return {
        {first(a), a.strides[1], a.strides[2]}, {first(b), b.strides[2], b.strides[1]}, a.shape[2]};
  }

  const T* first(const VeilBuffer& b) const {
    return reinterpret_cast<const T*>(b.data) + batch * b.strides[0];
  }
};

// A contiguous output matrix.
template <class T>
struct RowMajor {
  T* data;
  int64_t columns;

  bool in_one_piece(int64_t, int64_t) const { return true; }
  T* at(int64_t row, int64_t column) const { return data + row * columns + column; }
  int64_t row_stride() const { return columns; }
};

// Units [first, last) of `step` each, as a range of [0, extent).
struct Range {
  int64_t first, count;
};

Range range_of(int64_t first, int64_t last, int64_t step, int64_t extent) {
  const int64_t end = last * step < extent ? last * step : extent;
  return {first * step, end - first * step};
}

// Threads share out the batch and, inside an entry, columns or rows of the output.
template <class Micro>
void blocked(const VeilCall& call) {
  using T = typename Micro::Word;
  const Extents e = extents_of(call);
  const bool by_rows = e.rows / Micro::kRows > e.columns / Micro::kColumns;
  const int64_t step = by_rows ? Micro::kRows : Micro::kColumns;
  const int64_t extent = by_rows ? e.rows : e.columns;
  auto part = [&](int64_t batch, int64_t first, int64_t last, uint8_t* scratch) {
    const Range r = range_of(first, last, step, extent);
    const Tile tile =
        by_rows ? Tile{r.first, r.count, 0, e.columns} : Tile{0, e.rows, r.first, r.count};
    T* out = reinterpret_cast<T*>(call.buffers[0].data) + batch * e.rows * e.columns;
    multiply<Micro>(Pairs<T>{call, batch}, RowMajor<T>{out, e.columns}, tile, scratch);
  };
  const int64_t steps = (extent + step - 1) / step;
  parallel_grid(*call.context, e.batch, steps, multiply_adds(call), kGrain, part);
}

// One row, or one column: then factors change places, and strides with them.
template <class T>
void by_vectors(const VeilCall& call) {
  constexpr int64_t kStep = 64;
  const Extents e = extents_of(call);
  const bool one_row = e.rows == 1;
  const int64_t length = one_row ? e.columns : e.rows;
  auto part = [&](int64_t batch, int64_t first, int64_t last, uint8_t*) {
    const Range r = range_of(first, last, kStep, length);
    T* out = reinterpret_cast<T*>(call.buffers[0].data) + batch * length + r.first;
    std::memset(out, 0, r.count * sizeof(T));
    const Pairs<T> pairs{call, batch};
    for (int64_t p = 0; p < pairs.count(); ++p) {
      const auto t = pairs.term(p);
      const auto &vector = one_row ? t.left : t.right, &matrix = one_row ? t.right : t.left;
      const VectorMatrix<T> product{vector.data,         vector.depth_stride, matrix.data,
                                    matrix.depth_stride, matrix.lane_stride,  t.depth};
      product.add(out, r.first, r.count);
    }
  };
  const int64_t steps = (length + kStep - 1) / kStep;
  parallel_grid(*call.context, e.batch, steps, multiply_adds(call), kGrain, part);
}

template <class T>
void matmul(const VeilCall& call) {
  const Extents e = extents_of(call);
  if (e.rows == 1 || e.columns == 1) return by_vectors<T>(call);
  if (multiply_adds(call) == 0) {
    std::memset(call.buffers[0].data, 0, element_count(call.buffers[0]) * sizeof(T));
    return;
  }
  with_micro<T>(product_of(call), [&]<class Micro>() { blocked<Micro>(call); });
}

const char* check_pair(const VeilBuffer& out, const VeilBuffer& a, const VeilBuffer& b) {
  if (a.rank != 3 || b.rank != 3) return "matrix is not of rank 3";
  if (a.shape[0] != out.shape[0] || b.shape[0] != out.shape[0]) return "batches differ";
  if (a.shape[1] != out.shape[1]) return "rows are not the output's";
  if (b.shape[2] != out.shape[2]) return "columns are not the output's";
  return a.shape[2] == b.shape[1] ? nullptr : "inner extents differ";
}

const char* check(const VeilCall* call, int64_t* at) {
  if (const char* reason = check_params<MatmulParams>(*call, at)) return reason;
  if (call->buffer_count < 3 || call->buffer_count % 2 == 0) {
    return fault(at, -1, "wrong number of buffers");
  }
  if (const char* reason = check_words(*call, at)) return reason;
  const VeilBuffer& out = call->buffers[0];
  if (out.rank != 3) return fault(at, 0, "matrix is not of rank 3");
  if (!is_contiguous(out)) return fault(at, 0, "output is not contiguous");
  if (!holds_ring(out, params_of<MatmulParams>(*call).bits)) {
    return fault(at, MatmulParams::at_bits, "ring exceeds the words");
  }
  for (uint32_t i = 1; i < call->buffer_count; i += 2) {
    if (const char* reason = check_pair(out, call->buffers[i], call->buffers[i + 1])) {
      return fault(at, i, reason);
    }
  }
  return nullptr;
}

int64_t scratch_bytes(const VeilCall* call) {
  const auto bytes = []<class Micro>() { return Blocking<Micro>::kScratch; };
  const Product p = product_of(*call);
  return call->buffers[0].kind == VEIL_WORDS64 ? with_micro<uint64_t>(p, bytes)
                                               : with_micro<uint32_t>(p, bytes);
}

const char* run(const VeilCall* call) {
  if (call->buffers[0].kind == VEIL_WORDS64) {
    matmul<uint64_t>(*call);
  } else {
    matmul<uint32_t>(*call);
  }
  return nullptr;
}

}  // namespace
}  // namespace veil

extern const VeilKernel veil_matmul;
const VeilKernel veil_matmul = {"matmul", veil::check, veil::scratch_bytes, veil::run, nullptr};
