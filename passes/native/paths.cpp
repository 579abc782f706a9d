#include "passes/native/paths.h"

#include <algorithm>

namespace veil {

Paths::Paths(const Operands& before, size_t parties, std::span<const int64_t> first_option,
             std::span<const int64_t> waits)
    : parties_(parties),
      first_before_{0},
      first_option_(first_option.begin(), first_option.end()),
      waits_(waits.begin(), waits.end()),
      last_reader_(ops()) {
  for (size_t op = 0; op < ops(); ++op) {
    const auto read = before.of(op);
    before_.insert(before_.end(), read.begin(), read.end());
    for (const int32_t b : read) last_reader_[b] = op;
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
  std::vector<int64_t> kept(ops() * parties_), done;
  for (size_t op = 0; op < ops(); ++op) run(op, choice[op], kept);
  const auto latest = [&](const std::vector<int64_t>& all, size_t op) {
    const auto own = all.begin() + static_cast<int64_t>(op * parties_);
    return *std::max_element(own, own + static_cast<int64_t>(parties_));
  };
  std::vector<int64_t> until(ops() + 1), from(ops() + 1);  // the latest before an op, from it on
  for (size_t op = 0; op < ops(); ++op) until[op + 1] = std::max(until[op], latest(kept, op));
  for (size_t op = ops(); op-- > 0;) from[op] = std::max(from[op + 1], latest(kept, op));
  done = kept;
  std::vector<int64_t> found;
  std::vector<uint8_t> differs(ops());
  for (size_t i = 0; i + 1 < first.size(); ++i) {
    int64_t next = first[i];
    const auto start = static_cast<size_t>(changes[next]);
    auto last = static_cast<size_t>(changes[first[i + 1] - 1]);  // that may differ, so far
    int64_t longest = until[start];
    size_t op = start;
    for (; op <= last; ++op) {
      const bool is_changed = next < first[i + 1] && changes[next] == static_cast<int32_t>(op);
      const auto read = before(op);
      if (is_changed ||
          std::any_of(read.begin(), read.end(), [&](int32_t b) { return differs[b] != 0; })) {
        run(op, is_changed ? numbers[next] : choice[op], done);
        const auto own = done.begin() + static_cast<int64_t>(op * parties_);
        const auto old = kept.begin() + static_cast<int64_t>(op * parties_);
        differs[op] = !std::equal(own, own + static_cast<int64_t>(parties_), old);
        if (differs[op]) last = std::max(last, last_reader_[op]);
      }
      next += is_changed;
      longest = std::max(longest, latest(done, op));
    }
    found.push_back(std::max(longest, from[op]));
    const auto begin = static_cast<int64_t>(start * parties_);
    std::copy(kept.begin() + begin, kept.begin() + static_cast<int64_t>(op * parties_),
              done.begin() + begin);
    std::fill(differs.begin() + static_cast<int64_t>(start),
              differs.begin() + static_cast<int64_t>(op), 0);
  }
  return found;
}

}  // namespace veil
