#include "passes/native/meetings.h"

#include "passes/native/facts.h"

namespace veil {

Meetings::Meetings(const Steps& steps, std::span<const uint8_t> live)
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
