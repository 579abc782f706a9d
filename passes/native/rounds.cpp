#include "passes/native/rounds.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "passes/native/facts.h"

namespace veil {

namespace {

constexpr Position kNever = std::numeric_limits<Position>::max();

}  // namespace

std::vector<uint8_t> live_nodes(std::span<const uint32_t> facts, const Operands& operands) {
  std::vector<uint8_t> live(facts.size());
  for (size_t i = facts.size(); i-- > 0;) {
    live[i] |= (facts[i] & kRoot) != 0;
    if (!live[i]) continue;
    for (const int32_t arg : operands.of(i)) live[arg] = 1;
  }
  return live;
}

void place_nodes(const Steps& steps, std::span<const uint8_t> live,
                 std::span<const Position> wanted, size_t begin, size_t end,
                 std::span<Position> at) {
  for (size_t i = begin; i < end; ++i) {
    if (!live[i]) continue;
    at[i] = static_cast<Position>(steps.stages[i]) << kLevelBits;
    for (const int32_t arg : steps.operands.of(i)) {
      if (steps.stages[arg] == steps.stages[i]) at[i] = std::max(at[i], at[arg]);
    }
    if (steps.facts[i] & kSend) at[i] = std::max(at[i] + 1, wanted[i]);
  }
}

Rounds batch_rounds(const Steps& steps, std::span<const Position> wanted) {
  const auto [facts, stages, operands] = steps;
  const size_t nodes = facts.size();
  Rounds found{live_nodes(facts, operands), std::vector<Position>(nodes), {0}};
  std::vector<Position>& at = found.at;
  place_nodes(steps, found.live, wanted, 0, nodes, at);
  for (size_t i = 0; i < nodes; ++i) {
    if (!found.live[i]) continue;
    const Position stage = static_cast<Position>(stages[i]) << kLevelBits;
    found.rounds.resize(std::max<size_t>(found.rounds.size(), stages[i] + 1));
    if (facts[i] & kSend) {
      found.rounds[stages[i]] = std::max(found.rounds[stages[i]], at[i] - stage);
    }
  }
  std::vector<Position> needed(nodes, kNever);  // by the first of those that read a node
  for (size_t i = nodes; i-- > 0;) {
    if (!found.live[i]) continue;
    if (facts[i] & kKept) {
      // Behind all that reads what was kept before.
      at[i] = (static_cast<Position>(stages[i]) << kLevelBits) + found.rounds[stages[i]];
    } else if (!(facts[i] & kEarly) && stages[i] != 0) {
      if (needed[i] == kNever || needed[i] < at[i]) throw std::logic_error("a node runs too late");
      at[i] = needed[i];
    }
    const Position own = at[i] - ((facts[i] & kSend) != 0);  // what is sent is there before
    for (const int32_t arg : operands.of(i)) needed[arg] = std::min(needed[arg], own);
  }
  return found;
}

}  // namespace veil
