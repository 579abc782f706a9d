// Registers of a fused program: which are in use, and runs of them that have one step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace veil {

// Where a value is: one word register, or one bit register a plane.
struct Held {
  std::vector<int32_t> registers;
  bool is_word = true;
  bool is_clean = false;  // words: nothing is above the ring's width

  int32_t first() const {
    if (registers.empty()) throw std::invalid_argument("a value has no planes");
    return registers[0];
  }
};

// One register file: who uses each register, and how many there ever were, at most `most`.
class Registers {
 public:
  explicit Registers(int64_t most) : most_(static_cast<size_t>(most)) {}

  // `count` neighbouring free registers, the first there are. The text of a stranger's plan may
  // ask for more than a kernel has.
  std::vector<int32_t> take(size_t count) {
    size_t first = 0, length = 0;
    for (size_t i = 0; i < used_.size() && length < count; ++i) {
      if (used_[i] != 0) {
        first = i + 1;
        length = 0;
      } else {
        ++length;
      }
    }
    if (first + count > most_) {
      throw std::invalid_argument("a fused program takes more than " + std::to_string(most_) +
                                  " registers");
    }
    used_.resize(std::max(used_.size(), first + count));
    std::vector<int32_t> found(count);
    for (size_t i = 0; i < count; ++i) found[i] = static_cast<int32_t>(first + i);
    return found;
  }

  void count(const std::vector<int32_t>& registers, int32_t uses) {
    for (const int32_t each : registers) used_[each] += uses;
  }

  void clear() { used_.clear(); }
  int64_t size() const { return static_cast<int64_t>(used_.size()); }

 private:
  size_t most_;
  std::vector<int32_t> used_;
};

// Places from `start` on, `count` of them, where each list of registers has a step of its own.
struct Run {
  size_t start = 0, count = 0;
  std::vector<int16_t> steps;
};

// The runs of lists of one length, one after another.
inline std::vector<Run> common_runs(std::span<const std::vector<int32_t>* const> lists) {
  const size_t length = lists[0]->size();
  for (const auto* each : lists) {
    if (each->size() != length) throw std::invalid_argument("values have other numbers of planes");
  }
  std::vector<Run> found;
  for (size_t start = 0, end = 0; start < length; start = end) {
    Run run{start, 1, {}};
    end = start + 1;
    for (const auto* each : lists) {
      const int32_t step = end < length ? (*each)[end] - (*each)[start] : 1;
      run.steps.push_back(static_cast<int16_t>(step));
    }
    const auto goes_on = [&](size_t i) { return (*lists[i])[end] - (*lists[i])[end - 1]; };
    for (bool is_run = true; is_run && end < length;) {
      for (size_t i = 0; i < lists.size(); ++i) is_run = is_run && goes_on(i) == run.steps[i];
      end += is_run;
    }
    run.count = end - start;
    found.push_back(std::move(run));
  }
  return found;
}

}  // namespace veil
