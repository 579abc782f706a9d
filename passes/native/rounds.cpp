#include "passes/native/rounds.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "passes/native/facts.h"

namespace veil {

namespace {

constexpr Position kNever = std::numeric_limits<Position>::max();

// A node at a place: what it reads is there before.
void read_at(const Steps& steps, size_t node, Position at, std::span<Position> needed) {
  if (steps.facts[node] & kSend) --at;
  for (const int32_t arg : steps.operands.of(node)) needed[arg] = std::min(needed[arg], at);
}

// Lets messages that wait for a slow node go in the last round that does for who reads them: in the
// round before, all else that their party sends would wait for that node, too.
void hold_products(const Steps& steps, std::span<const uint8_t> before, Rounds& rounds) {
  const auto& [facts, stages, operands] = steps;
  std::vector<Position>& at = rounds.at;
  std::vector<Position> slow(at.size(), -1);  // the last slow node that a node waits for is there
  for (size_t i = 0; i < at.size(); ++i) {
    if (!rounds.live[i]) continue;
    if (before[i] == kMessages) slow[i] = at[i];
    for (const int32_t arg : operands.of(i)) {
      if (!(facts[arg] & kSend)) slow[i] = std::max(slow[i], slow[arg]);
    }
  }
  std::vector<Position> needed(at.size(), kNever);
  for (size_t i = at.size(); i-- > 0;) {
    if (!rounds.live[i]) continue;
    const Position stage = static_cast<Position>(stages[i]) << kLevelBits;
    const Position end = stage + rounds.rounds[stages[i]];
    Position place = at[i];
    if ((facts[i] & kSend) && slow[i] == at[i] - 1) {
      place = at[i] = std::min(needed[i], end);
    } else if (facts[i] & kKept) {
      place = end;
    } else if (!(facts[i] & kEarly) && stages[i] != 0) {
      place = needed[i];
    }
    read_at(steps, i, place, needed);
  }
}

// When each party sends: the places before the rounds in which something of it is sent.
class Sending {
 public:
  Sending(const Steps& steps, std::span<const int32_t> parties, const Rounds& rounds) {
    for (size_t i = 0; i < rounds.at.size(); ++i) {
      if (!rounds.live[i] || !(steps.facts[i] & kSend)) continue;
      const size_t sender = parties[steps.operands.of(i)[0]];
      places_.resize(std::max(places_.size(), sender + 1));
      places_[sender].push_back(rounds.at[i] - 1);
    }
    quiet_.resize(places_.size());
    for (size_t party = 0; party < places_.size(); ++party) {
      std::vector<Position>& own = places_[party];
      std::ranges::sort(own);
      own.erase(std::unique(own.begin(), own.end()), own.end());
      quiet_[party].resize(own.size());
      for (size_t i = own.size(); i-- > 0;) {
        const bool goes_on = i + 1 < own.size() && own[i + 1] == own[i] + 1;
        quiet_[party][i] = goes_on ? quiet_[party][i + 1] : own[i] + 1;
      }
    }
  }

  // The first place from `earliest` on at which a party sends nothing, but no later than `latest`.
  Position quiet(size_t party, Position earliest, Position latest) const {
    if (party >= places_.size()) return earliest;
    const std::vector<Position>& own = places_[party];
    const auto next = std::ranges::lower_bound(own, earliest);
    if (next == own.end() || *next != earliest) return earliest;
    return std::min(latest, quiet_[party][next - own.begin()]);
  }

 private:
  std::vector<std::vector<Position>> places_;  // each party's, in order, each once
  std::vector<std::vector<Position>> quiet_;   // the first behind each at which it sends nothing
};

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

Rounds batch_rounds(const Steps& steps, std::span<const int32_t> parties,
                    std::span<const Position> wanted, std::span<const uint8_t> before) {
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
  hold_products(steps, before, found);
  const Sending sending(steps, parties, found);
  std::vector<Position> needed(nodes, kNever);  // by the first of those that read a node
  for (size_t i = nodes; i-- > 0;) {
    if (!found.live[i]) continue;
    const Position end = (static_cast<Position>(stages[i]) << kLevelBits) + found.rounds[stages[i]];
    if (facts[i] & kKept) {
      at[i] = end;  // behind all that reads what was kept before
    } else if (!(facts[i] & kEarly) && stages[i] != 0) {
      if (needed[i] == kNever || needed[i] < at[i]) throw std::logic_error("a node runs too late");
      at[i] = needed[i];
    } else if (before[i] != kNothing && stages[i] != 0 && needed[i] != kNever) {
      at[i] = sending.quiet(parties[i], at[i], std::min(needed[i], end));
    }
    read_at(steps, i, at[i], needed);
  }
  return found;
}

}  // namespace veil
