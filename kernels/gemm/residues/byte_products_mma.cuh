// Products of bytes by mma.sync (sm_80 and later): each of eight warps makes 64 x 64 of a tile, and
// four steps are in shared memory.
#pragma once

#include "kernels/gemm/residues/byte_products.cuh"

namespace veil {

constexpr int kMmaStages = 4, kMmaThreads = 256;
constexpr int kMmaDown = 4, kMmaAcross = 8;  // of mma's 16 x 8, a warp
constexpr int kMmaSharedBytes = kMmaStages * kByteStage;
static_assert(kByteRows * kByteOutPitch <= kMmaSharedBytes);

// Copies a run of memory that lies as shared memory has it.
template <int Bytes>
__device__ __forceinline__ void copy_run(uint8_t* to, const uint8_t* from) {
  const int thread = made_anew(static_cast<int>(threadIdx.x));
#pragma unroll
  for (int at = 0; at < Bytes; at += 16 * kMmaThreads) {
    copy_async<16>(shared_address(to + at + 16 * thread), from + at + 16 * thread);
  }
}

struct ByteSums {
  int32_t of[kMmaDown][kMmaAcross][4];
};

template <class Right>
__device__ __forceinline__ void add_bytes(ByteSums& sums, const uint8_t* stage, int row,
                                          int column) {
  const int lane = made_anew(static_cast<int>(threadIdx.x) % kLanes);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t a[kMmaDown][4], b[kMmaAcross][2];
#pragma unroll
    for (int m = 0; m < kMmaDown; ++m) {
      const int place = place_in_block(row + 16 * m + lane % 16, 2 * half + lane / 16);
      load_matrices(a[m], shared_address(stage + place));
    }
#pragma unroll
    for (int n = 0; n < kMmaAcross; n += 2) {
      const int line = column + 8 * n + lane % 8 + lane / 16 * 8;
      const int place = kByteBlock + Right::place(line, 2 * half + lane / 8 % 2);
      uint32_t both[4];
      load_matrices(both, shared_address(stage + place));
      b[n][0] = both[0], b[n][1] = both[1], b[n + 1][0] = both[2], b[n + 1][1] = both[3];
    }
#pragma unroll
    for (int m = 0; m < kMmaDown; ++m) {
#pragma unroll
      for (int n = 0; n < kMmaAcross; ++n) multiply_bytes(sums.of[m][n], a[m], b[n]);
    }
  }
}

__device__ __forceinline__ void begin_at(ByteSums& sums, uint32_t value) {
#pragma unroll
  for (int m = 0; m < kMmaDown; ++m) {
#pragma unroll
    for (int n = 0; n < kMmaAcross; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums.of[m][n][e] = static_cast<int32_t>(value);
    }
  }
}

__device__ __forceinline__ void put_residues(uint8_t* tile, const ByteSums& sums, int row,
                                             int column, const Scale& scale) {
  const int lane = made_anew(static_cast<int>(threadIdx.x) % kLanes);
#pragma unroll
  for (int m = 0; m < kMmaDown; ++m) {
#pragma unroll
    for (int n = 0; n < kMmaAcross; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int32_t (&of)[4] = sums.of[m][n];
        put_residues(tile, row + 16 * m + lane / 4 + 8 * half, column + 8 * n + lane % 4 * 2,
                     of[2 * half], of[2 * half + 1], scale);
      }
    }
  }
}

template <int Count, class Product>
__device__ __forceinline__ void multiply_by_mma(const Product& product, const Scale* scales) {
  using Right = typename Product::Right;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int row = warp / 4 * 16 * kMmaDown, column = warp % 4 * 8 * kMmaAcross;
  const int steps = product.steps();
  uint8_t* stages = dynamic_shared();
  for (int64_t number = blockIdx.x; number < product.tiles(1); number += gridDim.x) {
    const ByteTile tile(product, number, 1, 0);
    const uint8_t* left = tile.left(product);
    Right right(product, tile, 0);
    const auto copy = [&](int step) {
      if (step < steps) {
        uint8_t* to = stages + step % kMmaStages * kByteStage;
        copy_run<kByteBlock>(to, left + int64_t{step} * kByteBlock);
#pragma unroll
        for (int i = 0; i < Right::kRuns; ++i) {
          copy_run<Right::kRunBytes>(to + kByteBlock + i * Right::kRunBytes, right.run(i));
        }
        right.advance();
      }
      end_copies();
    };
    const Scale& scale = scales[tile.plane % Count];
    ByteSums sums;
    begin_at(sums, scale.begin);
    for (int step = 0; step < kMmaStages - 1; ++step) copy(step);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      wait_for_copies<kMmaStages - 2>();
      __syncthreads();
      copy(step + kMmaStages - 1);
      add_bytes<Right>(sums, stages + step % kMmaStages * kByteStage, row, column);
    }
    __syncthreads();
    put_residues(stages, sums, row, column, scale);
    __syncthreads();
    store_residues<kByteRows, kMmaThreads>(stages, product, tile, 0, static_cast<int>(threadIdx.x));
    __syncthreads();
  }
}

}  // namespace veil

#define VEIL_BYTE_PRODUCTS(entry, type, shared_bytes, count, together, scales) \
  extern "C" __global__ void __launch_bounds__(veil::kMmaThreads, 1)           \
      entry(const __grid_constant__ veil::type product) {                      \
    static_assert(veil::kMmaSharedBytes == shared_bytes && together == 1);     \
    veil::multiply_by_mma<count>(product, scales);                             \
  }
