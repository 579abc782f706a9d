// The one symbol of a kernel library: its kernels in the order of KERNELS in kernels/__init__.py.
#include <iterator>

#include "kernels/abi.h"

extern const VeilKernel veil_fused, veil_matmul, veil_conv2d, veil_pool_sum, veil_reduce_sum,
    veil_copy, veil_fill;

extern "C" __attribute__((visibility("default"))) const VeilKernel* veil_kernels(uint32_t* count) {
  static const VeilKernel kernels[] = {veil_fused,      veil_matmul, veil_conv2d, veil_pool_sum,
                                       veil_reduce_sum, veil_copy,   veil_fill};
  *count = std::size(kernels);
  return kernels;
}
