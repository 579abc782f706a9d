#include "passes/native/paths.h"

#include <algorithm>
#include <numeric>

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
  const int64_t* waits = this->waits(op, number);
  std::fill(own, own + parties_, 0);
  for (size_t i = 0; i < parties_; ++i) {
    const int64_t begin = ready(op, i, done);
    for (size_t j = 0; j < parties_; ++j) {
      own[j] = std::max(own[j], begin + waits[i * parties_ + j]);
    }
  }
}

int64_t Paths::ready(size_t op, size_t party, std::span<const int64_t> done) const {
  int64_t found = 0;
  for (const int32_t read : before(op)) found = std::max(found, done[read * parties_ + party]);
  return found;
}

std::vector<int64_t> Paths::done(std::span<const int64_t> choice) const {
  std::vector<int64_t> found(ops() * parties_);
  for (size_t op = 0; op < ops(); ++op) run(op, choice[op], found);
  return found;
}

std::vector<int64_t> Paths::rounds(std::span<const int64_t> choices) const {
  std::vector<int64_t> found, done(ops() * parties_);
  for (size_t row = 0; row < choices.size(); row += ops()) {
    for (size_t op = 0; op < ops(); ++op) run(op, choices[row + op], done);
    found.push_back(done.empty() ? 0 : *std::max_element(done.begin(), done.end()));
  }
  return found;
}

namespace {

// A path of some length that passes by the ops from `first` to before `end`.
struct Leap {
  int64_t length;
  size_t first, end;
};

// Gives each op the longest that passes it by: the longest leap first, so that each gets one.
void pass_by(std::vector<Leap> leaps, std::vector<int64_t>& longest) {
  std::sort(leaps.begin(), leaps.end(),
            [](const Leap& a, const Leap& b) { return a.length > b.length; });
  std::vector<size_t> open(longest.size() + 1);  // the first op from here on that has none yet
  std::iota(open.begin(), open.end(), size_t{0});
  const auto next = [&](size_t op) {
    while (open[op] != op) op = open[op] = open[open[op]];
    return op;
  };
  for (const Leap& leap : leaps) {
    for (size_t op = next(leap.first); op < leap.end; op = next(op)) {
      longest[op] = std::max(longest[op], leap.length);
      open[op] = op + 1;
    }
  }
}

}  // namespace

// What tells the longest path after a change of one op, and follows none: a path waits at the op,
// or it does not, and then it ends before it, begins behind it, or passes it by.
class Paths::Around {
 public:
  Around(const Paths& paths, std::span<const int64_t> choice, const std::vector<int64_t>& done)
      : paths_(paths), done_(done), ahead_(done.size()), without_(paths.ops()) {
    std::vector<Leap> leaps;
    int64_t begun = 0;  // the longest that begins behind the op
    for (size_t op = paths.ops(); op-- > 0;) {
      without_[op] = begun;
      const int64_t from_result = *std::max_element(of(ahead_, op), of(ahead_, op + 1));
      without_[op] = std::max(without_[op], from_result);
      begun = std::max(without_[op], add_readers(op, choice[op], leaps));
    }
    pass_by(std::move(leaps), without_);
    int64_t latest = 0;
    for (size_t op = 0; op < paths.ops(); ++op) {
      without_[op] = std::max(without_[op], latest);
      latest = std::max(latest, *std::max_element(of(done_, op), of(done_, op + 1)));
    }
  }

  int64_t changed(size_t op, int64_t number) const {
    const size_t parties = paths_.parties_;
    const int64_t* waits = paths_.waits(op, number);
    int64_t longest = without_[op];
    for (size_t i = 0; i < parties; ++i) {
      const int64_t ready = paths_.ready(op, i, done_);
      for (size_t j = 0; j < parties; ++j) {
        longest = std::max(longest, ready + waits[i * parties + j] + of(ahead_, op)[j]);
      }
    }
    return longest;
  }

 private:
  std::vector<int64_t>::const_iterator of(const std::vector<int64_t>& all, size_t op) const {
    return all.begin() + static_cast<int64_t>(op * paths_.parties_);
  }

  // Tells the ops that one reads what is ahead of their results. Returns the longest path that
  // begins with its operands.
  int64_t add_readers(size_t op, int64_t number, std::vector<Leap>& leaps) {
    const size_t parties = paths_.parties_;
    const int64_t* waits = paths_.waits(op, number);
    std::vector<int64_t> behind(parties);  // what party i has of the operands
    for (size_t i = 0; i < parties; ++i) {
      behind[i] = waits[i * parties] + of(ahead_, op)[0];
      for (size_t j = 1; j < parties; ++j) {
        behind[i] = std::max(behind[i], waits[i * parties + j] + of(ahead_, op)[j]);
      }
    }
    for (const int32_t read : paths_.before(op)) {
      int64_t length = 0;
      for (size_t i = 0; i < parties; ++i) {
        int64_t& ahead = ahead_[read * parties + i];
        ahead = std::max(ahead, behind[i]);
        length = std::max(length, of(done_, read)[i] + behind[i]);
      }
      leaps.push_back({length, static_cast<size_t>(read) + 1, op});
    }
    return *std::max_element(behind.begin(), behind.end());
  }

  const Paths& paths_;
  const std::vector<int64_t>& done_;
  std::vector<int64_t> ahead_;    // the longest path from what a party has of a result on
  std::vector<int64_t> without_;  // the longest path that does not wait at an op
};

// Only what comes after a changed op is done again, as far as it differs.
std::vector<int64_t> Paths::changed(std::span<const int64_t> choice, std::span<const int64_t> first,
                                    std::span<const int32_t> changes,
                                    std::span<const int64_t> numbers) const {
  const std::vector<int64_t> kept = this->done(choice);
  const Around around(*this, choice, kept);
  const auto latest = [&](const std::vector<int64_t>& all, size_t op) {
    const auto own = all.begin() + static_cast<int64_t>(op * parties_);
    return *std::max_element(own, own + static_cast<int64_t>(parties_));
  };
  std::vector<int64_t> until(ops() + 1), from(ops() + 1);  // the latest before an op, from it on
  for (size_t op = 0; op < ops(); ++op) until[op + 1] = std::max(until[op], latest(kept, op));
  for (size_t op = ops(); op-- > 0;) from[op] = std::max(from[op + 1], latest(kept, op));
  std::vector<int64_t> done = kept, found;
  std::vector<uint8_t> differs(ops());
  for (size_t i = 0; i + 1 < first.size(); ++i) {
    int64_t next = first[i];
    if (next + 1 == first[i + 1]) {
      found.push_back(around.changed(static_cast<size_t>(changes[next]), numbers[next]));
      continue;
    }
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
