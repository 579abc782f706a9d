// The one symbol of a kernel library: its kernels in the order of KERNELS in kernels/__init__.py.
#include <iterator>

#include "kernels/cpu/abi.h"

#define VEIL_DECLARE(name) extern const VeilKernel veil_##name;
#define VEIL_ENTRY(name) veil_##name,

VEIL_FOR_EACH_KERNEL(VEIL_DECLARE)

extern "C" __attribute__((visibility("default"))) const VeilKernel* veil_kernels(uint32_t* count) {
  static const VeilKernel kernels[] = {VEIL_FOR_EACH_KERNEL(VEIL_ENTRY)};
  *count = std::size(kernels);
  return kernels;
}
