// Which actions have one fused program but for names: passes/plan/fused_templates.py.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/party/native/arrays.h"
#include "passes/native/fusion.h"

namespace veil {

// Columns of a program as forms read them, and its fused actions.
struct FusedActions {
  std::span<const uint32_t> facts;
  std::span<const int32_t> parties, stages;
  std::span<const int64_t> elements;
  std::span<const int32_t> ops, kinds, attributes, tensors;
  std::span<const uint8_t> stored, unpacked;
  const Operands& operands;
  std::span<const int32_t> party;  // of each action, as are the next three
  std::span<const Position> at;
  std::span<const int64_t> first;
  std::span<const int32_t> nodes;
};

// Of each action its form, counted in the order in which they are met, and its nodes in the order
// in which the form meets them. Of each form all that it says.
struct Forms {
  std::vector<int32_t> form;
  Rows numbered;
  std::vector<std::u32string> said;
};

Forms forms_of(const FusedActions& actions);

}  // namespace veil
