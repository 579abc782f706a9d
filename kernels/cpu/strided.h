// Walks over strided arrays of one shape: dimensions are merged and ordered so that the innermost
// runs are as long, and memory as close together, as the strides allow.
#pragma once
#include <cstdint>
#include <utility>

#include "kernels/cpu/abi.h"

namespace veil {

struct Dimension {
  int64_t extent, out, in;  // strides in elements
};

// The common shape of an output and an input, outermost dimension first. Always has at least one
// dimension; an extent of zero means that there is nothing to do.
struct Walk {
  int rank = 0;
  Dimension dims[VEIL_MAX_RANK];

  bool empty() const {
    for (int d = 0; d < rank; ++d) {
      if (dims[d].extent == 0) return true;
    }
    return false;
  }
  const Dimension& inner() const { return dims[rank - 1]; }
};

inline int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

// Which side's memory is to be walked in order.
enum class Order { kOutput, kInput };

inline bool steps_further(const Dimension& a, const Dimension& b, Order order) {
  const int64_t out = magnitude(a.out) - magnitude(b.out), in = magnitude(a.in) - magnitude(b.in);
  const int64_t first = order == Order::kOutput ? out : in;
  return first != 0 ? first > 0 : (order == Order::kOutput ? in : out) > 0;
}

inline bool merges(const Dimension& outer, const Dimension& inner) {
  return outer.out == inner.out * inner.extent && outer.in == inner.in * inner.extent;
}

// The walk over `shape` (extents of `in`); a dimension where `out` has extent 1 steps nowhere in
// `out`.
inline Walk walk(const VeilBuffer& out, const VeilBuffer& in, Order order = Order::kOutput) {
  Walk w;
  for (uint32_t d = 0; d < in.rank; ++d) {
    if (in.shape[d] == 1) continue;
    const int64_t step = out.shape[d] == in.shape[d] ? out.strides[d] : 0;
    w.dims[w.rank++] = {in.shape[d], step, in.strides[d]};
  }
  for (int i = 1; i < w.rank; ++i) {
    for (int j = i; j > 0 && steps_further(w.dims[j], w.dims[j - 1], order); --j) {
      std::swap(w.dims[j], w.dims[j - 1]);
    }
  }
  int kept = w.rank > 0 ? 1 : 0;
  for (int i = 1; i < w.rank; ++i) {
    Dimension& last = w.dims[kept - 1];
    if (merges(last, w.dims[i])) {
      last = {last.extent * w.dims[i].extent, w.dims[i].out, w.dims[i].in};
    } else {
      w.dims[kept++] = w.dims[i];
    }
  }
  w.rank = kept;
  if (w.rank == 0) w.dims[w.rank++] = {1, 1, 1};
  return w;
}

// Calls body(out offset, in offset) for every index of the first `depth` dimensions.
template <class Body>
void for_each_index(const Walk& w, int depth, int64_t out, int64_t in, Body&& body) {
  int64_t index[VEIL_MAX_RANK] = {};
  while (true) {
    body(out, in);
    int d = depth - 1;
    for (; d >= 0; --d) {
      out += w.dims[d].out;
      in += w.dims[d].in;
      if (++index[d] < w.dims[d].extent) break;
      out -= w.dims[d].out * w.dims[d].extent;
      in -= w.dims[d].in * w.dims[d].extent;
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace veil
