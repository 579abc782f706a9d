#include "passes/native/paths.h"

#include <algorithm>

namespace veil {

Paths::Paths(const Operands& before, size_t parties, std::span<const int64_t> first_option,
             std::span<const int64_t> waits)
    : parties_(parties),
      first_before_{0},
      first_option_(first_option.begin(), first_option.end()),
      waits_(waits.begin(), waits.end()) {
  for (size_t op = 0; op < ops(); ++op) {
    const auto read = before.of(op);
    before_.insert(before_.end(), read.begin(), read.end());
    first_before_.push_back(static_cast<int64_t>(before_.size()));
  }
}

// What each party has of an op's result, behind that of the ops before it.
void Paths::run(size_t op, int64_t number, std::span<int64_t> done) const {
  int64_t* own = done.data() + op * parties_;
  const int64_t* waits = waits_.data() + (first_option_[op] + number) * parties_ * parties_;
  std::fill(own, own + parties_, 0);
  for (size_t i = 0; i < parties_; ++i) {
    int64_t ready = 0;
    for (const int32_t read : before(op)) ready = std::max(ready, done[read * parties_ + i]);
    for (size_t j = 0; j < parties_; ++j) {
      own[j] = std::max(own[j], ready + waits[i * parties_ + j]);
    }
  }
}

std::vector<int64_t> Paths::rounds(std::span<const int64_t> choices) const {
  std::vector<int64_t> found, done(ops() * parties_);
  for (size_t row = 0; row < choices.size(); row += ops()) {
    for (size_t op = 0; op < ops(); ++op) run(op, choices[row + op], done);
    found.push_back(done.empty() ? 0 : *std::max_element(done.begin(), done.end()));
  }
  return found;
}

// Only what comes after a changed op is done again, as far as it differs.
std::vector<int64_t> Paths::changed(std::span<const int64_t> choice, std::span<const int64_t> first,
                                    std::span<const int32_t> changes,
                                    std::span<const int64_t> numbers) const {
  std::vector<int64_t> kept(ops() * parties_), latest(ops() + 1);
  for (size_t op = 0; op < ops(); ++op) {
    run(op, choice[op], kept);
    const auto own = kept.begin() + static_cast<int64_t>(op * parties_);
    latest[op + 1] = std::max(latest[op], *std::max_element(own, own + parties_));
  }
  std::vector<int64_t> found, done = kept;
  std::vector<uint8_t> differs(ops());
  for (size_t i = 0; i + 1 < first.size(); ++i) {
    int64_t next = first[i];
    const size_t start = changes[next];
    int64_t longest = latest[start];
    for (size_t op = start; op < ops(); ++op) {
      const bool is_changed = next < first[i + 1] && changes[next] == static_cast<int32_t>(op);
      const auto read = before(op);
      const auto own = done.begin() + static_cast<int64_t>(op * parties_);
      const auto old = kept.begin() + static_cast<int64_t>(op * parties_);
      if (is_changed ||
          std::any_of(read.begin(), read.end(), [&](int32_t b) { return differs[b] != 0; })) {
        run(op, is_changed ? numbers[next] : choice[op], done);
        differs[op] = !std::equal(own, own + parties_, old);
      }
      next += is_changed;
      longest = std::max(longest, *std::max_element(own, own + parties_));
    }
    found.push_back(longest);
    std::copy(kept.begin() + start * parties_, kept.end(), done.begin() + start * parties_);
    std::fill(differs.begin() + start, differs.end(), 0);
  }
  return found;
}

}  // namespace veil
