// The nodes of a program that decide where others are: most are where one operand is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "passes/native/facts.h"
#include "passes/native/rounds.h"

namespace veil {

// Messages, and nodes at which several of these meet, by their rows; where they are is that of
// `place_nodes`. All else is where one of them is, or in the first place of its stage, wherever
// messages go: a program has ten times as many nodes, which needn't be looked at again and again.
class Meetings {
 public:
  Meetings(const Steps& steps, std::span<const uint8_t> live);

  size_t size() const { return rows_.size(); }
  size_t node(size_t meeting) const { return static_cast<size_t>(rows_[meeting]); }

  // The meetings of its own stage that one waits for, each once.
  std::span<const int32_t> before(size_t meeting) const {
    return {before_.data() + first_[meeting], before_.data() + first_[meeting + 1]};
  }

  // Places of some meetings, from those of all before them: `place_nodes` of their nodes.
  void place(std::span<const Position> wanted, size_t begin, size_t end,
             std::span<Position> at) const {
    for (size_t i = begin; i < end; ++i) {
      Position own = begins_[i];
      for (const int32_t other : before(i)) own = std::max(own, at[other]);
      at[i] = is_send_[i] ? std::max(own + 1, wanted[i]) : own;
    }
  }

  // The place of any live node, from those of meetings.
  Position at(size_t node, std::span<const Position> of_meetings) const {
    const int32_t own = of_[node];
    return own >= 0 ? of_meetings[own] : static_cast<Position>(stages_[node]) << kLevelBits;
  }

 private:
  std::span<const int32_t> stages_;
  std::vector<int32_t> of_;  // of each node the meeting at which it is, or -1
  std::vector<int32_t> rows_, before_;
  std::vector<size_t> first_{0};
  std::vector<Position> begins_;  // of the stage of each
  std::vector<uint8_t> is_send_;
};

inline Meetings::Meetings(const Steps& steps, std::span<const uint8_t> live)
    : stages_(steps.stages), of_(live.size(), -1) {
  std::vector<size_t> met;  // of each meeting the last node that it was noted for, from 1 on
  for (size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    for (const int32_t arg : steps.operands.of(i)) {
      if (stages_[arg] != stages_[i]) continue;
      const int32_t other = of_[arg];
      if (other < 0 || met[other] == i + 1) continue;
      met[other] = i + 1;
      before_.push_back(other);
    }
    const bool is_send = (steps.facts[i] & kSend) != 0;
    const size_t count = before_.size() - first_.back();
    if (!is_send && count <= 1) {
      if (count == 1) of_[i] = before_.back();
      before_.resize(first_.back());
      continue;
    }
    of_[i] = static_cast<int32_t>(rows_.size());
    rows_.push_back(static_cast<int32_t>(i));
    first_.push_back(before_.size());
    begins_.push_back(static_cast<Position>(stages_[i]) << kLevelBits);
    is_send_.push_back(is_send);
    met.push_back(0);
  }
}

}  // namespace veil
