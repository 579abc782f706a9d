// The flat tables of a plan, as veilgraph.ir.plan.tables lays them out, and their way to kernel
// calls.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/abi.h"

namespace veil {

constexpr uint16_t kRound = 0xffff;  // in place of a kernel's number

struct StepRecord {
  uint16_t kernel;
  uint8_t phase, reserved;
  uint32_t layer, first_buffer, buffer_count;
  uint64_t first_param;
  uint32_t param_count, round;
};
static_assert(sizeof(StepRecord) == 32);

struct BufferRecord {
  uint64_t offset;
  uint32_t region, kind, bits, rank;
  int64_t shape[VEIL_MAX_RANK], strides[VEIL_MAX_RANK];
  uint64_t reserved;
};
static_assert(sizeof(BufferRecord) == 128);

// Memory that buffers lie in.
struct Region {
  uint8_t* data;
  uint64_t bytes;
  bool writable;
};

// The records of a table given as bytes. Throws std::invalid_argument, which names `what`, unless
// the bytes are whole records.
std::vector<StepRecord> read_steps(std::span<const uint8_t> bytes);
std::vector<BufferRecord> read_buffers(std::span<const uint8_t> bytes);
std::vector<int64_t> read_params(std::span<const uint8_t> bytes);

// Every buffer with its pointer, proven to lie inside its region. Throws std::invalid_argument,
// which names the buffer.
std::vector<VeilBuffer> resolve_buffers(std::span<const BufferRecord> records,
                                        std::span<const Region> regions);

}  // namespace veil
