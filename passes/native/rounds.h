// Which nodes are needed, and when each runs: passes/party/batch_rounds.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/party/native/arrays.h"

namespace veil {

// What goes before a node that takes long.
enum Before : uint8_t {
  kNothing = 0,
  kSends = 1,     // what its party sends meanwhile
  kMessages = 2,  // and messages that are made of it wait, too
};

// A stage in the upper half, the number of its rounds that are over in the lower.
using Position = int64_t;
constexpr int kLevelBits = 32;
constexpr int32_t kMostStages = 1 << 16;

// Of each node, whether a root needs it.
std::vector<uint8_t> live_nodes(std::span<const uint32_t> facts, const Operands& operands);

// A program's nodes, as far as their order goes.
struct Steps {
  std::span<const uint32_t> facts;
  std::span<const int32_t> stages;
  Operands operands;
};

// Puts nodes [begin, end) where they may run at the earliest, behind those that are placed; a send
// is not there before the place that is wanted of it.
void place_nodes(const Steps& steps, std::span<const uint8_t> live,
                 std::span<const Position> wanted, size_t begin, size_t end,
                 std::span<Position> at);

struct Rounds {
  std::vector<uint8_t> live;
  std::vector<Position> at;
  std::vector<int64_t> rounds;  // of each stage
};

// All nodes as early as they can run. `wanted`: of each send the place that it is not at before.
Rounds early_rounds(const Steps& steps, std::span<const Position> wanted);

// From there on what is cheap late, and products as they are to run. `parties`: of each node who
// has it, of a send its receiver; `before`: of each node what goes before it.
Rounds late_rounds(const Steps& steps, std::span<const int32_t> parties,
                   std::span<const uint8_t> before, Rounds early);

// One behind the other.
Rounds batch_rounds(const Steps& steps, std::span<const int32_t> parties,
                    std::span<const Position> wanted, std::span<const uint8_t> before);

}  // namespace veil
