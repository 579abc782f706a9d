// Loops over the threads that a call's context offers.
#pragma once
#include <cstdint>

#include "kernels/cpu/abi.h"

namespace veil {

// Calls body(index, scratch) for index in [0, count); `scratch` belongs to the thread that runs it.
template <class Body>
void parallel_for(const VeilContext& context, int64_t count, Body&& body) {
  if (context.threads <= 1 || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i, context.scratch);
    return;
  }
  struct State {
    const VeilContext& context;
    Body& body;
  } state{context, body};
  auto each = [](void* opaque, int64_t index, uint32_t thread) {
    State& s = *static_cast<State*>(opaque);
    s.body(index, s.context.scratch + thread * s.context.scratch_bytes);
  };
  context.parallel_for(context.pool, count, each, &state);
}

// Units of work numbered (outer, inner), cut into one piece a thread, or fewer where a piece would
// be of less than `grain` of the `work` that all units are together. Calls body(outer, first, last,
// scratch) for ranges of inner units.
template <class Body>
void parallel_grid(const VeilContext& context, int64_t outer, int64_t inner, int64_t work,
                   int64_t grain, Body&& body) {
  const int64_t units = outer * inner;
  int64_t pieces = work / grain < context.threads ? work / grain : context.threads;
  if (pieces > units) pieces = units;
  if (pieces < 1) pieces = 1;
  parallel_for(context, pieces, [&](int64_t piece, uint8_t* scratch) {
    const int64_t end = units * (piece + 1) / pieces;
    for (int64_t unit = units * piece / pieces; unit < end;) {
      const int64_t first = unit % inner;
      const int64_t last = end - unit < inner - first ? first + end - unit : inner;
      body(unit / inner, first, last, scratch);
      unit += last - first;
    }
  });
}

// The product of non-negative numbers, or the largest int64 where it is larger.
inline int64_t saturating_product(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

}  // namespace veil
