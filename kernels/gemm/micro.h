// The innermost product of a blocked matrix product, for this instruction set, and which to take.
//
// A micro-kernel computes a tile of kRows x kColumns outputs from two packed panels: at each step
// of the depth, kRows elements on the left and kColumns on the right, in the form that pack_a and
// pack_b give them. `run` writes or adds to rows of the output that are `stride` words apart.
#pragma once
#include <cstdint>

#if defined(__AVX512IFMA__) && defined(__AVX512VNNI__)
#include "kernels/gemm/micro_avx512.h"
#elif defined(__AVX2__)
#include "kernels/gemm/micro_avx2.h"
#else
#include "kernels/gemm/micro_portable.h"
#endif

namespace veil {

// Calls body.template operator()<Micro>() with the micro-kernel for words of type T and a ring of
// `bits`.
template <class T, class Body>
auto with_micro(int64_t bits, Body&& body) {
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
  static_cast<void>(bits);
  if constexpr (sizeof(T) == 8) return body.template operator()<Micro64>();
  if constexpr (sizeof(T) == 4) return body.template operator()<Micro32>();
#else
  static_cast<void>(bits);
  return body.template operator()<MicroScalar<T>>();
#endif
}

}  // namespace veil
