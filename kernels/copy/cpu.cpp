// Strided copies: whole runs where memory allows, tiles where rows become columns.
#include <cstdint>
#include <cstring>

#include "kernels/cpu/abi.h"
#include "kernels/cpu/buffers.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/strided.h"

namespace veil {
namespace {

template <class T>
void copy_run(T* out, const T* in, const Dimension& d) {
  if (d.out == 1 && d.in == 1) {
    std::memcpy(out, in, d.extent * sizeof(T));
  } else if (d.out == 1 && d.in == 0) {
    const T value = *in;
    for (int64_t i = 0; i < d.extent; ++i) out[i] = value;
  } else if (d.out == 1 && d.in == 2) {  // every other element
    for (int64_t i = 0; i < d.extent; ++i) out[i] = in[2 * i];
  } else {
    for (int64_t i = 0; i < d.extent; ++i) out[i * d.out] = in[i * d.in];
  }
}

// A matrix whose rows lie along `row` and columns along `column`, in squares of two cache lines or
// so.
template <class T>
void copy_tiles(T* out, const T* in, const Dimension& row, const Dimension& column) {
  constexpr int64_t kTile = 16;
  for (int64_t r = 0; r < row.extent; r += kTile) {
    const int64_t rows = row.extent - r < kTile ? row.extent - r : kTile;
    for (int64_t c = 0; c < column.extent; c += kTile) {
      const int64_t columns = column.extent - c < kTile ? column.extent - c : kTile;
      T* to = out + r * row.out + c * column.out;
      const T* from = in + r * row.in + c * column.in;
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          to[i * row.out + j * column.out] = from[i * row.in + j * column.in];
        }
      }
    }
  }
}

// The dimension along which the input lies in a row while the output does not: a transposition's.
int transposed_dimension(const Walk& w) {
  if (magnitude(w.inner().in) <= 1) return -1;
  for (int d = 0; d + 1 < w.rank; ++d) {
    if (magnitude(w.dims[d].in) == 1) return d;
  }
  return -1;
}

template <class T>
void copy_all(T* out, const T* in, Walk w) {
  const int across = transposed_dimension(w);
  if (across < 0) {
    for_each_index(w, w.rank - 1, 0, 0,
                   [&](int64_t o, int64_t i) { copy_run(out + o, in + i, w.inner()); });
    return;
  }
  const Dimension row = w.dims[across], column = w.inner();
  w.dims[across] = w.dims[w.rank - 2];
  for_each_index(w, w.rank - 2, 0, 0,
                 [&](int64_t o, int64_t i) { copy_tiles(out + o, in + i, row, column); });
}

template <class T>
void copy(const VeilCall& call) {
  const Walk w = walk(call.buffers[0], call.buffers[1]);
  if (w.empty()) return;
  T* out = reinterpret_cast<T*>(call.buffers[0].data);
  const T* in = reinterpret_cast<const T*>(call.buffers[1].data);
  constexpr int64_t kGrain = int64_t{1} << 16;
  const Dimension& outer = w.dims[0];
  const int64_t work = element_count(call.buffers[0]);
  auto part = [&](int64_t, int64_t first, int64_t last, uint8_t*) {
    Walk mine = w;
    mine.dims[0].extent = last - first;
    copy_all(out + first * outer.out, in + first * outer.in, mine);
  };
  parallel_grid(*call.context, 1, outer.extent, work, kGrain, part);
}

const char* check(const VeilCall* call, int64_t* at) {
  if (const char* reason = check_counts(*call, 2)) return fault(at, -1, reason);
  if (const char* reason = check_words(*call, at)) return reason;
  const VeilBuffer &out = call->buffers[0], &in = call->buffers[1];
  if (out.rank != in.rank) return fault(at, 1, "shapes differ");
  for (uint32_t d = 0; d < out.rank; ++d) {
    if (out.shape[d] != in.shape[d]) return fault(at, 1, "shapes differ");
  }
  if (repeats(out)) return fault(at, 0, "output repeats elements");
  return nullptr;
}

int64_t scratch_bytes(const VeilCall*) { return 0; }

const char* run(const VeilCall* call) {
  if (call->buffers[0].kind == VEIL_WORDS64) {
    copy<uint64_t>(*call);
  } else {
    copy<uint32_t>(*call);
  }
  return nullptr;
}

}  // namespace
}  // namespace veil

extern const VeilKernel veil_copy;
const VeilKernel veil_copy = {"copy", veil::check, veil::scratch_bytes, veil::run, nullptr};
