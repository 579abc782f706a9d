// The fused programs of actions: passes/plan/fused_code.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/party/native/arrays.h"
#include "passes/native/rounds.h"

namespace veil {

// What an operation becomes: opcodes of instructions, 0 where there is none.
struct Opcodes {
  int64_t on_words, with_constant, on_bits;
};

// The attributes that instructions have, 0 where a node has none.
struct Attributes {
  int64_t value, bits, low, start, step;
};

// Of a tensor's type.
struct TensorType {
  int64_t is_planes, bits, stored_bits, word_bits, per_element;
};

// How a tensor is read as another one, element by element: as LOAD has it.
struct Repeated {
  int64_t source, target, inner, period;
};

// Columns of a program as its fused programs read them. `keys`: of nodes that draw the numbers of
// their keys at their parties. `repeats`: of each two tensors that broadcasts meet, in their order.
struct FusedColumns {
  std::span<const uint32_t> facts;
  std::span<const int32_t> parties, stages;
  std::span<const int64_t> elements;
  std::span<const uint8_t> ops;
  std::span<const int32_t> tensors, attributes;
  std::span<const int64_t> numbers;
  std::span<const int32_t> keys;
  std::span<const uint8_t> stored, unpacked;
  const Operands& operands;
  std::span<const Opcodes> opcodes;        // by operation
  std::span<const TensorType> types;       // by tensor
  std::span<const Attributes> attributed;  // by attributes
  std::span<const Repeated> repeats;

  bool is(int32_t row, uint32_t asked) const { return (facts[row] & asked) != 0; }
  const TensorType& type(int32_t row) const { return types[tensors[row]]; }
  const Opcodes& opcodes_of(int32_t row) const { return opcodes[ops[row]]; }
  const Attributes& attributes_of(int32_t row) const { return attributed[attributes[row]]; }
  uint16_t width(int32_t row) const { return static_cast<uint16_t>(type(row).word_bits); }
};

struct FusedAction {
  int32_t party;
  Position at;
  std::span<const int32_t> nodes;
};

// One fused program: parameters of its kernel, and of its streams the nodes, and whether they are
// messages. `draws` are the instructions that draw, `drawn` the nodes that they make.
struct FusedCode {
  std::vector<int64_t> params;
  std::vector<int32_t> streams;
  std::vector<uint8_t> messages;
  std::vector<int64_t> draws;
  std::vector<int32_t> drawn;
};

// Throws std::invalid_argument for what no instruction does, and for too many registers.
std::vector<FusedCode> fused_code(const FusedColumns& columns,
                                  std::span<const FusedAction> actions);

}  // namespace veil
