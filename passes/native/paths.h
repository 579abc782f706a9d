// The longest path of a graph whose ops have options: passes/secret/protocols/problem.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/party/native/arrays.h"

namespace veil {

// A path runs from party to party. What party j has of an op's result is done w(i, j) rounds after
// what party i has of its operands, at the latest of them and no earlier than at zero.
class Paths {
 public:
  // Of op i the options are first_option[i] to first_option[i + 1] - 1; `waits` has of each option
  // parties x parties rounds, row i and column j.
  Paths(const Operands& before, size_t parties, std::span<const int64_t> first_option,
        std::span<const int64_t> waits);

  size_t ops() const { return first_option_.size() - 1; }
  int64_t options(size_t op) const { return first_option_[op + 1] - first_option_[op]; }

  // Rounds of the longest path, of each row of options, one an op.
  std::vector<int64_t> rounds(std::span<const int64_t> choices) const;

  // The same of each change of one choice: change i gives ops[first[i]] to ops[first[i + 1] - 1],
  // in ascending order, these options.
  std::vector<int64_t> changed(std::span<const int64_t> choice, std::span<const int64_t> first,
                               std::span<const int32_t> ops,
                               std::span<const int64_t> numbers) const;

 private:
  std::span<const int32_t> before(size_t op) const {
    return {before_.data() + first_before_[op],
            static_cast<size_t>(first_before_[op + 1] - first_before_[op])};
  }
  const int64_t* waits(size_t op, int64_t number) const {
    return waits_.data() + (first_option_[op] + number) * parties_ * parties_;
  }
  void run(size_t op, int64_t number, std::span<int64_t> done) const;
  // What each party has of each op's result.
  std::vector<int64_t> done(std::span<const int64_t> choice) const;
  // When a party has all operands of an op.
  int64_t ready(size_t op, size_t party, std::span<const int64_t> done) const;

  class Around;

  size_t parties_;
  std::vector<int64_t> first_before_;
  std::vector<int32_t> before_;
  std::vector<int64_t> first_option_;
  std::vector<int64_t> waits_;
  std::vector<size_t> last_reader_;  // of each op's result; 0 if none reads it
};

}  // namespace veil
