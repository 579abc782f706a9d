// Products of bytes by wgmma (sm_90a): two groups of four warps make 64 x 256 of a tile each, from
// shared memory, where one thread of a ninth warp has whole blocks copied in bulk, eight steps
// ahead, and into the next tile while this one leaves. A step is `full` when its bytes are there,
// and `empty` when all eight warps have multiplied them.
#pragma once

#include "kernels/cuda/hopper.cuh"
#include "kernels/gemm/byte_products.cuh"

namespace veil {

constexpr int kWgmmaStages = 8, kWgmmaGroups = 2;
constexpr int kWgmmaWarps = kWgmmaGroups * kGroup / kLanes;  // that multiply
constexpr int kWgmmaThreads = (kWgmmaWarps + 1) * kLanes;
constexpr int kGroupRows = kByteRows / kWgmmaGroups;
constexpr int kWgmmaOut = kWgmmaStages * kByteStage;  // where a tile leaves from
constexpr int kWgmmaBarriers = kWgmmaOut + kByteRows * kByteOutPitch;
constexpr int kWgmmaSharedBytes = kWgmmaBarriers + kWgmmaStages * 16;

// Where a step is in shared memory, and how often others have been there before.
struct ByteStage {
  unsigned number = 0;

  __device__ __forceinline__ int place() const {
    return static_cast<int>(number % kWgmmaStages) * kByteStage;
  }
  __device__ __forceinline__ unsigned parity() const { return number / kWgmmaStages & 1; }
  __device__ __forceinline__ SharedAddress full(SharedAddress memory) const {
    return memory + kWgmmaBarriers + number % kWgmmaStages * 16;
  }
  __device__ __forceinline__ SharedAddress empty(SharedAddress memory) const {
    return full(memory) + 8;
  }
};

__device__ __forceinline__ void make_barriers(SharedAddress memory) {
  for (ByteStage stage; stage.number < kWgmmaStages; ++stage.number) {
    make_barrier(stage.full(memory), 1);
    make_barrier(stage.empty(memory), kWgmmaWarps);
  }
  show_barriers();
}

// All steps of all of this block's tiles, in order; one thread's work.
__device__ __forceinline__ void copy_steps(SharedAddress memory, const ByteProduct& product) {
  ByteStage stage;
  for (int64_t number = blockIdx.x; number < product.tiles(); number += gridDim.x) {
    const ByteTile tile(product, number);
    const uint8_t* from[3] = {tile.left(product), tile.right(product, 0), tile.right(product, 1)};
#pragma unroll 1
    for (int step = 0; step < product.steps(); ++step, ++stage.number) {
      wait_for_phase(stage.empty(memory), stage.parity() ^ 1);
      arrive_and_expect(stage.full(memory), kByteStage);
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        copy_in_bulk(memory + stage.place() + i * kByteBlock, from[i], kByteBlock,
                     stage.full(memory));
        from[i] += kByteBlock;
      }
    }
  }
}

// Adds all steps of a tile. Of the stages, a step's is handed back when the next step is under way.
__device__ __forceinline__ void add_steps(int32_t (&sums)[kGroupSums], SharedAddress memory,
                                          int group, int steps, ByteStage& stage) {
  const bool tells = threadIdx.x % kLanes == 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step, ++stage.number) {
    wait_for_phase(stage.full(memory), stage.parity());
    const SharedAddress left = memory + stage.place() + group * kGroupRows * kByteStep;
    const SharedAddress right = memory + stage.place() + kByteBlock;
    begin_products();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      multiply_bytes(sums, matrix_at(left + 32 * half), matrix_at(right + 32 * half));
    }
    end_products();
    wait_for_products<1>();
    if (tells && step > 0) arrive(ByteStage{stage.number - 1}.empty(memory));
  }
  wait_for_products<0>();
  if (tells && steps > 0) arrive(ByteStage{stage.number - 1}.empty(memory));
}

__device__ __forceinline__ void put_residues(uint8_t* tile, const int32_t (&sums)[kGroupSums],
                                             int thread, const Scale& scale) {
  const int row = thread / kLanes * 16 + thread % kLanes / 4, column = thread % 4 * 2;
#pragma unroll
  for (int i = 0; i < kGroupSums; i += 2) {
    put_residues(tile, row + i / 2 % 2 * 8, column + i / 4 * 8, sums[i], sums[i + 1], scale);
  }
}

template <int Count>
__device__ __forceinline__ void multiply_tiles(uint8_t* memory, const ByteProduct& product,
                                               const Scale* scales) {
  const int group = static_cast<int>(threadIdx.x) / kGroup;
  const int thread = static_cast<int>(threadIdx.x) % kGroup;
  uint8_t* out = memory + kWgmmaOut + group * kGroupRows * kByteOutPitch;
  ByteStage stage;
  for (int64_t number = blockIdx.x; number < product.tiles(); number += gridDim.x) {
    const ByteTile tile(product, number);
    const Scale& scale = scales[tile.plane % Count];
    int32_t sums[kGroupSums];
    const uint32_t begin = scale.begin;
#pragma unroll
    for (int i = 0; i < kGroupSums; ++i) sums[i] = static_cast<int32_t>(begin);
    add_steps(sums, shared_address(memory), group, product.steps(), stage);
    wait_for_group(1 + group);  // the last tile has left
    put_residues(out, sums, thread, scale);
    wait_for_group(1 + group);
    store_residues<kGroupRows, kGroup>(out, product, tile, group * kGroupRows, thread);
  }
}

template <int Count>
__device__ __forceinline__ void multiply_by_wgmma(const ByteProduct& product, const Scale* scales) {
  uint8_t* memory = dynamic_shared();
  if (threadIdx.x == 0) make_barriers(shared_address(memory));
  __syncthreads();
  if (threadIdx.x < kWgmmaWarps * kLanes) {
    multiply_tiles<Count>(memory, product, scales);
  } else if (threadIdx.x == kWgmmaWarps * kLanes) {
    copy_steps(shared_address(memory), product);
  }
}

}  // namespace veil

#define VEIL_BYTE_PRODUCTS(entry, shared_bytes, count, scales)         \
  extern "C" __global__ void __launch_bounds__(veil::kWgmmaThreads, 1) \
      entry(const __grid_constant__ veil::ByteProduct product) {       \
    static_assert(veil::kWgmmaSharedBytes == shared_bytes);            \
    veil::multiply_by_wgmma<count>(product, scales);                   \
  }
