// Which nodes are needed, and when each runs: passes/party/batch_rounds.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/party/native/arrays.h"

namespace veil {

// A stage in the upper half, the number of its rounds that are over in the lower.
using Position = int64_t;
constexpr int kLevelBits = 32;
constexpr int32_t kMostStages = 1 << 16;

// Of each node, whether a root needs it.
std::vector<uint8_t> live_nodes(std::span<const uint32_t> facts, const Operands& operands);

struct Rounds {
  std::vector<uint8_t> live;
  std::vector<Position> at;
  std::vector<int64_t> rounds;  // of each stage
};

Rounds batch_rounds(std::span<const uint32_t> facts, std::span<const int32_t> stages,
                    const Operands& operands);

}  // namespace veil
