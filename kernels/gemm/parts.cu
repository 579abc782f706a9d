// The parts of a product whose depth is cut, added up to its output.
#include "kernels/gemm/added.cuh"

#define VEIL_ADD_PARTS(bits)                                                                  \
  extern "C" __global__ void __launch_bounds__(256) veil_add_parts##bits(                     \
      uint8_t* out, int64_t elements, const uint8_t* parts, uint64_t count, uint64_t pitch) { \
    const int64_t stride = veil::tile_stride();                                               \
    for (veil::Tile tile = veil::first_tile(elements); tile.first < elements;                 \
         tile.first += stride) {                                                              \
      veil::store(tile, out, veil::added<uint##bits##_t>(tile, parts, count, pitch));         \
    }                                                                                         \
  }

VEIL_ADD_PARTS(32)
VEIL_ADD_PARTS(64)
