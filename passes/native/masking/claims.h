// What is to be hidden from a coalition, and the draws that hide it:
// passes/party/verify_masking.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "passes/native/fusion.h"
#include "passes/native/masking/dependencies.h"
#include "passes/native/masking/sums.h"

namespace veil {

// Of an operation: its result is words of trees, is public, or is hidden operand by operand.
enum Hidden : uint8_t { kRoots = 1, kPublic = 2, kOfEach = 4 };

// Where chains of operands lead, of each node: behind what passes a value on, behind sections and
// bits too, and behind bits and what passes a value on.
struct Behind {
  std::span<const int32_t> passed, whole, masked;
};

// Words of trees as they are asked for, row by row and phase, in order, and the roots that hide
// them.
struct Rooted {
  std::span<const int64_t> keys;  // kPhases times the row, and the phase
  std::span<const int64_t> first;
  std::span<const int32_t> draws;
};

constexpr int64_t kPhases = 4;

// The first message that carries something, the row whose value that is, and the draws that hide
// it, in the order of the messages.
struct Claims {
  std::vector<int32_t> messages, values;
  Rows witnesses;
};

// What these messages to a coalition carry, each thing once. `hides` are facts of operations.
Claims claims_of(const Sums& sums, const Dependencies& depends, const HiddenDraws& draws,
                 const Behind& behind, const Rooted& rooted, std::span<const uint8_t> hides,
                 std::span<const int64_t> messages);

}  // namespace veil
