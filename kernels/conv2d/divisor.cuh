// Divisions by what is known before a launch, as a multiplication and a shift.
#pragma once

#include "kernels/cuda/prelude.cuh"

namespace veil {

// n / d for n below 2^31 (T. Granlund and P. Montgomery, "Division by invariant integers using
// multiplication", theorem 4.2, which asks for 2^shift < multiplier d <= 2^shift + 2^(shift - 31)):
// kernels/conv2d/divisors.py makes them.
struct Divisor {
  uint64_t multiplier, shift;

  __device__ __forceinline__ int quotient(int n) const {
    const uint64_t product = uint64_t{static_cast<uint32_t>(n)} * static_cast<uint32_t>(multiplier);
    return static_cast<int>(product >> shift);
  }
};

}  // namespace veil
