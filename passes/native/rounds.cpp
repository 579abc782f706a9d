#include "passes/native/rounds.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "passes/native/facts.h"

namespace veil {

namespace {

constexpr Position kNever = std::numeric_limits<Position>::max();

// Where the last round of a node's stage is over.
Position end_of(const Steps& steps, const Rounds& rounds, size_t node) {
  const int32_t stage = steps.stages[node];
  return (static_cast<Position>(stage) << kLevelBits) + rounds.rounds[stage];
}

// From the last node to the first: `place` says where one is, of where it is needed first and of
// where it is if it runs as late as it can.
template <typename Place>
void from_the_end(const Steps& steps, Rounds& rounds, Place place) {
  const auto& [facts, stages, operands] = steps;
  std::vector<Position> needed(rounds.at.size(), kNever);  // by the first of those that read a node
  for (size_t i = rounds.at.size(); i-- > 0;) {
    if (!rounds.live[i]) continue;
    Position late = rounds.at[i];
    if (facts[i] & kKept) {
      late = end_of(steps, rounds, i);  // behind all that reads what was kept before
    } else if (!(facts[i] & kEarly) && stages[i] != 0) {
      if (needed[i] == kNever || needed[i] < late) throw std::logic_error("a node runs too late");
      late = needed[i];
    }
    // What is sent is there before.
    const Position own = place(i, needed[i], late) - ((facts[i] & kSend) != 0);
    for (const int32_t arg : operands.of(i)) needed[arg] = std::min(needed[arg], own);
  }
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
  from_the_end(steps, rounds, [&](size_t i, Position needed, Position late) {
    const bool is_held = (facts[i] & kSend) && slow[i] == at[i] - 1;
    return is_held ? at[i] = std::min(needed, end_of(steps, rounds, i)) : late;
  });
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

Rounds early_rounds(const Steps& steps, std::span<const Position> wanted) {
  const auto& [facts, stages, operands] = steps;
  const size_t nodes = facts.size();
  Rounds found{live_nodes(facts, operands), std::vector<Position>(nodes), {0}};
  const std::vector<Position>& at = found.at;
  place_nodes(steps, found.live, wanted, 0, nodes, found.at);
  for (size_t i = 0; i < nodes; ++i) {
    if (!found.live[i]) continue;
    const Position stage = static_cast<Position>(stages[i]) << kLevelBits;
    found.rounds.resize(std::max<size_t>(found.rounds.size(), stages[i] + 1));
    if (facts[i] & kSend) {
      found.rounds[stages[i]] = std::max(found.rounds[stages[i]], at[i] - stage);
    }
  }
  return found;
}

Rounds late_rounds(const Steps& steps, std::span<const int32_t> parties,
                   std::span<const uint8_t> before, Rounds early) {
  const auto& [facts, stages, operands] = steps;
  if (std::ranges::count(before, kMessages)) hold_products(steps, before, early);
  const Sending sending(steps, parties, early);
  from_the_end(steps, early, [&](size_t i, Position needed, Position late) {
    const bool waits = before[i] != kNothing && stages[i] != 0 && needed != kNever;
    if (waits) late = sending.quiet(parties[i], late, std::min(needed, end_of(steps, early, i)));
    return early.at[i] = late;
  });
  return early;
}

Rounds batch_rounds(const Steps& steps, std::span<const int32_t> parties,
                    std::span<const Position> wanted, std::span<const uint8_t> before) {
  return late_rounds(steps, parties, before, early_rounds(steps, wanted));
}

}  // namespace veil
