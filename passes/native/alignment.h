// Which messages wait for others, so that rounds take less: passes/party/align_messages.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/party/native/arrays.h"
#include "passes/native/rounds.h"

namespace veil {

// What a program's messages are to its links.
struct Traffic {
  std::span<const int32_t> layers;
  std::span<const int32_t> kinds;    // equal numbers: nodes of one type
  std::span<const int32_t> parties;  // that receives, of a send
  std::span<const int64_t> bytes;    // of each node as a message
  int64_t round_bytes;               // that a link carries in the time of a round, not 0
  std::span<const int64_t> work;     // of each product, bytes that a link carries meanwhile
  std::span<const uint8_t> before;   // what may go before each product
};

struct Aligned {
  std::vector<Position> wanted;  // of each send the place that it isn't at before
  std::vector<uint8_t> before;   // what goes before each node
};

// So that rounds, busiest links and products take least.
Aligned align_messages(const Steps& steps, const Traffic& traffic);

}  // namespace veil
