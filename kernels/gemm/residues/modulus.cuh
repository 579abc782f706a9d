// Residues of a sum put together: kernels/gemm/residues/residues.py has the formulas, and prints
// the constants.
#pragma once

#include "kernels/cuda/prelude.cuh"

namespace veil {

struct Modulus {
  float m, inverse;    // 1 / m, rounded
  uint32_t low, high;  // 256^j mod m, j = 0 .. 7, as signed bytes
  uint64_t weight;     // M / m modulo 2^64
  uint64_t fraction;   // 2^56 / m
};

constexpr int kFractionBits = 56;

// The sum of t_i M / m_i less its multiple of M, modulo 2^64.
struct ModularSum {
  uint64_t sum = 0, fraction = 0;

  __device__ __forceinline__ void add(uint64_t t, const Modulus& modulus) {
    sum += t * modulus.weight;
    fraction += t * modulus.fraction;
  }

  __device__ __forceinline__ uint64_t value(uint64_t product) const {
    const uint64_t q = fraction + (uint64_t{1} << (kFractionBits - 1)) >> kFractionBits;
    return sum - q * product;
  }
};

}  // namespace veil
