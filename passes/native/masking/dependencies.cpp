#include "passes/native/masking/dependencies.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace veil {

namespace {

constexpr size_t kMostWaiting = 64;
constexpr size_t kMostSeen = 8;  // times what is made

}  // namespace

Dependencies::Dependencies(std::span<const int32_t> source, int32_t size, const Operands& operands,
                           size_t most_words)
    : size_(size), most_words_(most_words), set_(source.size()) {
  for (size_t i = 0; i < source.size() && is_whole_; ++i) {
    uint32_t found = 0;
    if (source[i] >= 0) {
      const auto word = static_cast<size_t>(source[i] / 64);
      sets_.push_back({word, {uint64_t{1} << (source[i] % 64)}});
      found = static_cast<uint32_t>(sets_.size() - 1);
    }
    for (const int32_t arg : operands.of(i)) {
      found = united(found, set_[arg]);
      if (!is_whole_) return;
    }
    set_[i] = found;
  }
}

bool Dependencies::has(int32_t node, int32_t source) const {
  const Set& set = sets_[set_[node]];
  const auto word = static_cast<size_t>(source / 64);
  return word >= set.first && word < set.end() &&
         (set.words[word - set.first] >> (source % 64) & 1);
}

std::vector<uint64_t> Dependencies::words(int32_t node) const {
  std::vector<uint64_t> found(static_cast<size_t>(size_ + 63) / 64);
  const Set& set = sets_[set_[node]];
  std::copy(set.words.begin(), set.words.end(), found.begin() + static_cast<int64_t>(set.first));
  return found;
}

// The first of these nodes that has each source; their number if none has.
std::vector<size_t> Dependencies::first_with(std::span<const int32_t> nodes) const {
  std::vector<size_t> found(static_cast<size_t>(size_), nodes.size());
  std::vector<uint64_t> before(static_cast<size_t>(size_ + 63) / 64);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Set& set = sets_[set_[nodes[i]]];
    for (size_t k = 0; k < set.words.size(); ++k) {
      uint64_t& seen = before[set.first + k];
      for (uint64_t fresh = set.words[k] & ~seen; fresh != 0; fresh &= fresh - 1) {
        found[64 * (set.first + k) + static_cast<size_t>(std::countr_zero(fresh))] = i;
      }
      seen |= set.words[k];
    }
  }
  return found;
}

// From the last node on each is taken away, put last in the order, once a witness of it is in no
// other that is left. Nodes that wait are few, for what hides a message is mostly drawn for it.
bool Dependencies::have_order(std::span<const int32_t> nodes, std::span<const int64_t> first,
                              std::span<const int32_t> witnesses) const {
  const std::vector<size_t> first_with = this->first_with(nodes);
  std::vector<size_t> waiting;
  size_t left = nodes.size();
  const auto is_last = [&](size_t i) {
    for (int64_t k = first[i]; k < first[i + 1]; ++k) {
      const int32_t witness = witnesses[k];
      if (first_with[witness] < left || !has(nodes[i], witness)) continue;
      const bool elsewhere = std::any_of(waiting.begin(), waiting.end(), [&](size_t other) {
        return other != i && has(nodes[other], witness);
      });
      if (!elsewhere) return true;
    }
    return false;
  };
  while (left > 0) {
    waiting.push_back(--left);
    for (size_t k = waiting.size(); k-- > 0;) {
      if (!is_last(waiting[k])) continue;
      waiting.erase(waiting.begin() + static_cast<int64_t>(k));
      k = waiting.size();  // others may be last now
    }
    if (waiting.size() > kMostWaiting) return false;
  }
  return waiting.empty();
}

bool Dependencies::holds(const Set& all, const Set& some) const {
  if (some.first < all.first || some.end() > all.end()) return false;
  const uint64_t* words = all.words.data() + (some.first - all.first);
  for (size_t k = 0; k < some.words.size(); ++k) {
    if (some.words[k] & ~words[k]) return false;
  }
  return true;
}

// The set of all that either has; one of both where it is that. A node may have a million operands:
// words are counted before they are taken.
uint32_t Dependencies::united(uint32_t a, uint32_t b) {
  if (a == b || b == 0) return a;
  if (a == 0) return b;
  const Set &one = sets_[a], &other = sets_[b];
  seen_ += std::min(one.words.size(), other.words.size());
  is_whole_ = seen_ <= kMostSeen * most_words_;
  if (holds(one, other)) return a;
  if (holds(other, one)) return b;
  Set both{std::min(one.first, other.first), {}};
  const size_t count = std::max(one.end(), other.end()) - both.first;
  made_ += count;
  is_whole_ = is_whole_ && made_ <= most_words_;
  if (!is_whole_) return a;
  both.words.resize(count);
  for (const Set* set : {&one, &other}) {
    for (size_t k = 0; k < set->words.size(); ++k) {
      both.words[set->first - both.first + k] |= set->words[k];
    }
  }
  sets_.push_back(std::move(both));
  return static_cast<uint32_t>(sets_.size() - 1);
}

std::vector<uint8_t> reached(std::span<const uint8_t> start, std::span<const uint8_t> closed,
                             const Operands& operands) {
  std::vector<uint8_t> found(start.begin(), start.end());
  for (size_t i = 0; i < found.size(); ++i) {
    for (const int32_t arg : operands.of(i)) found[i] |= found[arg];
    if (closed[i]) found[i] = 0;
  }
  return found;
}

}  // namespace veil
