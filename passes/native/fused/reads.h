// What nodes read in a fused program: behind reshapes, repeated, or as an instruction's constant.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/fused/program.h"
#include "passes/native/facts.h"
#include "passes/native/fused/code.h"

namespace veil {

// A node, and the repetition and period with which LOAD reads it.
struct Key {
  int32_t node;
  int64_t inner = 0, period = 0;
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    const uint64_t mixed =
        static_cast<uint64_t>(key.inner) * 31 + static_cast<uint64_t>(key.period);
    return (mixed * 0x9E3779B97F4A7C15 + static_cast<uint64_t>(key.node)) * 0x9E3779B97F4A7C15 >>
           16;
  }
};

// What a node reads: the node behind reshapes, what it is held under, and the number that it is
// where an instruction has it as its own constant.
struct Read {
  int32_t near;
  size_t value;  // its place among the values of the program under way
  Key key;
  std::optional<int64_t> immediate;
};

// Operands of a program's nodes, as their fused programs read them.
class FusedReads {
 public:
  explicit FusedReads(const FusedColumns& columns) : c_(columns), near_(columns.facts.size()) {
    for (size_t i = 0; i < near_.size(); ++i) {
      const int32_t row = static_cast<int32_t>(i);
      near_[i] = c_.is(row, kReshape) ? near_[c_.operands.of(i)[0]] : row;
    }
  }

  // The node behind reshapes; for a broadcast the view itself, and how it is repeated.
  Read read(int32_t row, size_t position, int32_t arg) const {
    const int32_t near = near_[arg];
    if (c_.is(near, kConst)) {
      return {near, 0, {near}, position == 1 ? immediate(row, near) : std::nullopt};
    }
    if (c_.elements[near] == c_.elements[row]) return {near, 0, {near}, std::nullopt};
    const Repeated& repeated = repeats(c_.tensors[arg], c_.tensors[row]);
    return {near, 0, {arg, repeated.inner, repeated.period}, std::nullopt};
  }

 private:
  const Repeated& repeats(int64_t source, int64_t target) const {
    const auto before = [](const Repeated& each, const std::pair<int64_t, int64_t>& key) {
      return std::pair(each.source, each.target) < key;
    };
    const auto found =
        std::lower_bound(c_.repeats.begin(), c_.repeats.end(), std::pair(source, target), before);
    if (found == c_.repeats.end() || found->source != source || found->target != target) {
      throw std::invalid_argument("a broadcast that LOAD cannot express was not made explicit");
    }
    return *found;
  }

  // A second operand as an instruction's constant, where there is a form with one. A difference
  // with a constant is a sum with its negative.
  std::optional<int64_t> immediate(int32_t row, int32_t near) const {
    const bool is_words = !c_.type(row).is_planes && c_.type(row).per_element == 1;
    if (!is_words || c_.opcodes_of(row).with_constant == 0) return std::nullopt;
    const auto value = static_cast<uint64_t>(c_.attributes_of(near).value);
    return static_cast<int64_t>(c_.opcodes_of(row).on_words == SUB ? -value : value);
  }

  const FusedColumns& c_;
  std::vector<int32_t> near_;
};

}  // namespace veil
