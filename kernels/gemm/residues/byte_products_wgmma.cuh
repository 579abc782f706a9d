// Products of bytes by wgmma (sm_90a): two groups of four warps make 64 x 256 of a tile each, from
// shared memory, where a thread of a ninth warp has the left factor copied in bulk and one of a
// tenth the right one, eight steps ahead, and into the next tile while this one leaves. A step is
// `full` when its bytes are there, and `empty` when all warps have multiplied them.
//
// Where there are rows for it, `Together` = 2 blocks of threads make tiles one below the other.
// They share the right factor: each has half of it copied, to both. That is 16 KiB a step from the
// L2 cache instead of 24, which at the full rate of products would be 11 TB/s.
#pragma once

#include "kernels/cuda/group_products.cuh"
#include "kernels/gemm/residues/byte_products.cuh"

namespace veil {

constexpr int kWgmmaStages = 8, kWgmmaGroups = 2;
constexpr int kWgmmaWarps = kWgmmaGroups * kGroup / kLanes;  // that multiply
constexpr int kWgmmaThreads = (kWgmmaWarps + 2) * kLanes;
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

// The blocks of threads that make tiles together.
template <int Together>
struct ByteCluster {
  static __device__ __forceinline__ int rank() { return static_cast<int>(rank_in_cluster()); }
  static __device__ __forceinline__ void wait() { wait_for_cluster(); }
  // By a whole warp.
  static __device__ __forceinline__ void hand_back(SharedAddress empty) {
    const unsigned lane = threadIdx.x % kLanes;
    if (lane < Together) arrive_in(empty, lane);
    __syncwarp();
  }
  static __device__ __forceinline__ void copy(SharedAddress to, const uint8_t* from, int bytes,
                                              SharedAddress full) {
    copy_in_bulk_to_all<Together>(to, from, bytes, full);
  }
};

template <>
struct ByteCluster<1> {
  static __device__ __forceinline__ int rank() { return 0; }
  static __device__ __forceinline__ void wait() { __syncthreads(); }
  static __device__ __forceinline__ void hand_back(SharedAddress empty) {
    if (threadIdx.x % kLanes == 0) arrive(empty);
    __syncwarp();
  }
  static __device__ __forceinline__ void copy(SharedAddress to, const uint8_t* from, int bytes,
                                              SharedAddress full) {
    copy_in_bulk(to, from, bytes, full);
  }
};

template <int Together>
__device__ __forceinline__ void make_barriers(SharedAddress memory) {
  for (ByteStage stage; stage.number < kWgmmaStages; ++stage.number) {
    make_barrier(stage.full(memory), 1);
    make_barrier(stage.empty(memory), Together * kWgmmaWarps);
  }
  show_barriers();
}

// Calls body(tile) for each of this block's tiles, in order.
template <int Together, class Body>
__device__ __forceinline__ void for_each_tile(const ByteProduct& product, Body body) {
  const int64_t tiles = product.tiles(Together), each = gridDim.x / Together;
  for (int64_t number = blockIdx.x / Together; number < tiles; number += each) {
    body(ByteTile(product, number, Together, ByteCluster<Together>::rank()));
  }
}

// All steps of the left factor, and how many bytes a step is; one thread's work.
template <int Together>
__device__ __forceinline__ void copy_left(SharedAddress memory, const ByteProduct& product) {
  ByteStage stage;
  for_each_tile<Together>(product, [&](const ByteTile& tile) {
    const uint8_t* from = tile.left(product);
#pragma unroll 1
    for (int step = 0; step < product.steps(); ++step, ++stage.number, from += kByteBlock) {
      wait_for_phase(stage.empty(memory), stage.parity() ^ 1);
      arrive_and_expect(stage.full(memory), kByteStage);
      copy_in_bulk(memory + stage.place(), from, kByteBlock, stage.full(memory));
    }
  });
}

// All steps of the right factor; another thread's.
template <int Together, class Product>
__device__ __forceinline__ void copy_right(SharedAddress memory, const Product& product) {
  using Right = typename Product::Right;
  constexpr int kEach = Right::kRuns / Together;
  static_assert(kEach * Together == Right::kRuns);
  const int first = ByteCluster<Together>::rank() * kEach;
  ByteStage stage;
  for_each_tile<Together>(product, [&](const ByteTile& tile) {
    Right right(product, tile, first);
#pragma unroll 1
    for (int step = 0; step < product.steps(); ++step, ++stage.number) {
      wait_for_phase(stage.empty(memory), stage.parity() ^ 1);
      const SharedAddress to = memory + stage.place() + kByteBlock + first * Right::kRunBytes;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        ByteCluster<Together>::copy(to + i * Right::kRunBytes, right.run(i), Right::kRunBytes,
                                    stage.full(memory));
      }
      right.advance();
    }
  });
}

// The descriptor of half of a step's depths of the right factor: swizzled blocks, or a run a piece
// of 16 depths.
template <class Right>
__device__ __forceinline__ uint64_t right_matrix(SharedAddress step, int half) {
  if constexpr (Right::kIsSwizzled) return matrix_at(step + 32 * half);
  return core_matrices_at(step + 2 * half * Right::kRunBytes, Right::kRunBytes, 8 * 16);
}

// Adds all steps of a tile. Of the stages, a step's is handed back when the next step is under way.
template <int Together, class Right>
__device__ __forceinline__ void add_steps(int32_t (&sums)[kGroupSums], SharedAddress memory,
                                          int group, int steps, ByteStage& stage) {
  using Cluster = ByteCluster<Together>;
#pragma unroll 1
  for (int step = 0; step < steps; ++step, ++stage.number) {
    wait_for_phase(stage.full(memory), stage.parity());
    const SharedAddress left = memory + stage.place() + group * kGroupRows * kByteStep;
    const SharedAddress right = memory + stage.place() + kByteBlock;
    begin_products();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      multiply_bytes(sums, matrix_at(left + 32 * half), right_matrix<Right>(right, half));
    }
    end_products();
    wait_for_products<1>();
    if (step > 0) Cluster::hand_back(ByteStage{stage.number - 1}.empty(memory));
  }
  wait_for_products<0>();
  take_sums(sums);
  if (steps > 0) Cluster::hand_back(ByteStage{stage.number - 1}.empty(memory));
}

__device__ __forceinline__ void put_residues(uint8_t* tile, const int32_t (&sums)[kGroupSums],
                                             int thread, const Scale& scale) {
  const int row = thread / kLanes * 16 + thread % kLanes / 4, column = thread % 4 * 2;
#pragma unroll
  for (int i = 0; i < kGroupSums; i += 2) {
    put_residues(tile, row + i / 2 % 2 * 8, column + i / 4 * 8, sums[i], sums[i + 1], scale);
  }
}

template <int Count, int Together, class Product>
__device__ __forceinline__ void multiply_tiles(uint8_t* memory, const Product& product,
                                               const Scale* scales) {
  const int group = static_cast<int>(threadIdx.x) / kGroup;
  const int thread = static_cast<int>(threadIdx.x) % kGroup;
  uint8_t* out = memory + kWgmmaOut + group * kGroupRows * kByteOutPitch;
  ByteStage stage;
  for_each_tile<Together>(product, [&](const ByteTile& tile) {
    const Scale& scale = scales[tile.plane % Count];
    int32_t sums[kGroupSums];
    const uint32_t begin = scale.begin;
#pragma unroll
    for (int i = 0; i < kGroupSums; ++i) sums[i] = static_cast<int32_t>(begin);
    add_steps<Together, typename Product::Right>(sums, shared_address(memory), group,
                                                 product.steps(), stage);
    wait_for_group(1 + group);  // the last tile has left
    put_residues(out, sums, thread, scale);
    wait_for_group(1 + group);
    store_residues<kGroupRows, kGroup>(out, product, tile, group * kGroupRows, thread);
  });
}

template <int Count, int Together, class Product>
__device__ __forceinline__ void multiply_by_wgmma(const Product& product, const Scale* scales) {
  uint8_t* memory = dynamic_shared();
  if (threadIdx.x == 0) make_barriers<Together>(shared_address(memory));
  ByteCluster<Together>::wait();
  if (threadIdx.x < kWgmmaWarps * kLanes) {
    multiply_tiles<Count, Together>(memory, product, scales);
  } else if (threadIdx.x == kWgmmaWarps * kLanes) {
    copy_left<Together>(shared_address(memory), product);
  } else if (threadIdx.x == (kWgmmaWarps + 1) * kLanes) {
    copy_right<Together>(shared_address(memory), product);
  }
  __syncwarp();  // one lane of a warp has copied, and the others have waited for nothing
  ByteCluster<Together>::wait();  // others may still arrive here
}

}  // namespace veil

#define VEIL_BYTE_PRODUCTS(entry, type, shared_bytes, count, together, scales)    \
  extern "C" __global__ void __cluster_dims__(together, 1, 1) __launch_bounds__(  \
      veil::kWgmmaThreads, 1) entry(const __grid_constant__ veil::type product) { \
    static_assert(veil::kWgmmaSharedBytes == shared_bytes);                       \
    veil::multiply_by_wgmma<count, together>(product, scales);                    \
  }
