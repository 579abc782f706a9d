// The innermost product of a blocked matrix product, for this instruction set, and which to take.
//
// A micro-kernel computes a tile of kRows x kColumns outputs from two packed panels of so many
// lanes, which its pack_left and pack_right make from a source of elements; `run` writes or adds to
// rows of the output that are `stride` words apart. A panel's depth is rounded up to kDepthStep;
// the kBlock constants say how much is packed at a time. While a product runs, a Scope lives.
#pragma once
#include <cstdint>

#include "kernels/gemm/cpu/stepwise.h"

#if defined(__AVX512IFMA__) && defined(__AVX512VNNI__)
#include "kernels/gemm/cpu/micro_avx512.h"
#elif defined(__AVX2__)
#include "kernels/gemm/cpu/micro_avx2.h"
#else
#include "kernels/gemm/cpu/micro_portable.h"
#endif
#if defined(__AMX_INT8__)
#include "kernels/gemm/cpu/micro_amx.h"
#endif

namespace veil {

// A product in a ring of `bits`: of [rows, depth] and [depth, columns].
struct Product {
  int64_t bits, rows, columns, depth;
};

// Calls body.template operator()<Micro>() with the micro-kernel for words of type T that computes
// one element after the other.
template <class T, class Body>
auto with_lanes([[maybe_unused]] int64_t bits, Body&& body) {
#if defined(__AVX512IFMA__) && defined(__AVX512VNNI__)
  if constexpr (sizeof(T) == 8) {
#if defined(VEIL_QUICK_VPMULLQ)
    if (bits > 52) return body.template operator()<MicroLanes<T, MultiplyAdd64>>();
#else
    if (bits > 52) return body.template operator()<Micro64>();
#endif
  }
  return body.template operator()<MicroLanes<T, MultiplyAdd52>>();
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 8) return body.template operator()<Micro64>();
  if constexpr (sizeof(T) == 4) return body.template operator()<Micro32>();
#else
  return body.template operator()<MicroScalar<T>>();
#endif
}

// The same with the quickest micro-kernel for such a product.
template <class T, class Body>
auto with_micro(const Product& p, Body&& body) {
#if defined(__AMX_INT8__)
  if (amx_pays(p.bits, p.rows, p.columns, p.depth)) return with_limbs<T>(p.bits, body);
#endif
  return with_lanes<T>(p.bits, body);
}

}  // namespace veil
