// The nodes of a party-level program as text, a line a node: ir/party/text.py says how it looks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/party/native/arrays.h"

namespace veil {

// Columns, a row a node, and what their numbers stand for.
struct Printed {
  std::span<const uint8_t> op;
  std::span<const int32_t> tensor, attributes, place, layer;
  std::span<const int64_t> number;  // that is counted; below 0 where there is none
  Operands operands;
  std::vector<std::string> operations, tensors, places;
  // What stands before the number that is counted, and behind it.
  std::vector<std::pair<std::string, std::string>> described;
};

// Characters of all lines.
size_t printed_size(const Printed& nodes);

// Writes them where there is room for `printed_size` characters.
void print_lines(const Printed& nodes, std::span<char> to);

}  // namespace veil
