// What each value of a program depends on, as sets: passes/party/verify_masking.py.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "ir/party/native/arrays.h"
#include "passes/native/fusion.h"

namespace veil {

// Of each node the set of sources that it is computed from. Nodes with equal sets share one where
// one operand has all that the others have.
class Dependencies {
 public:
  // `source` is the number of what a node is itself, less than `size`, or -1. Sets are made up to
  // `most_words` words of 64 sources together, and looked through up to so many times a few: a
  // stranger's program may have a million nodes that depend on as many sources each.
  Dependencies(std::span<const int32_t> source, int32_t size, const Operands& operands,
               size_t most_words);

  // Whether that was enough; nothing else may be asked where it was not.
  bool is_whole() const { return is_whole_; }

  bool has(int32_t node, int32_t source) const;
  bool is_empty(int32_t node) const { return sets_[set_[node]].words.empty(); }
  std::vector<uint64_t> words(int32_t node) const;  // bit i of word j: source 64 j + i

  // Whether these nodes have an order in which each has a witness, one of its sources, that is in
  // none before it. False too where that would take long to find out.
  bool have_order(std::span<const int32_t> nodes, std::span<const int64_t> first,
                  std::span<const int32_t> witnesses) const;

  size_t nodes() const { return set_.size(); }
  int32_t size() const { return size_; }

 private:
  // Words from `first` on; all others are zero.
  struct Set {
    size_t first = 0;
    std::vector<uint64_t> words;
    size_t end() const { return first + words.size(); }
  };

  std::vector<size_t> first_with(std::span<const int32_t> nodes) const;
  bool holds(const Set& all, const Set& some) const;
  uint32_t united(uint32_t a, uint32_t b);

  int32_t size_;
  size_t most_words_;
  bool is_whole_ = true;
  size_t made_ = 0, seen_ = 0;  // words
  std::deque<Set> sets_{1};     // the first is empty
  std::vector<uint32_t> set_;
};

// The nodes that are computed from those which `start` marks, these too, without going through
// those that `closed` marks.
std::vector<uint8_t> reached(std::span<const uint8_t> start, std::span<const uint8_t> closed,
                             const Operands& operands);

}  // namespace veil
