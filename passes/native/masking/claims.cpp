#include "passes/native/masking/claims.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

namespace veil {

namespace {

constexpr int32_t kNone = -1;

struct Claim {
  int32_t message, value;
  std::vector<int32_t> witnesses;
};

class Collection {
 public:
  Collection(const Sums& sums, const Dependencies& depends, const HiddenDraws& draws,
             const Behind& behind, const Rooted& rooted, std::span<const uint8_t> hides)
      : sums_(sums),
        c_(sums.columns()),
        depends_(depends),
        draws_(draws),
        behind_(behind),
        rooted_(rooted),
        hides_(hides) {}

  Claims of(std::span<const int64_t> messages) {
    for (const int64_t message : messages) carried(static_cast<int32_t>(message));
    for (const auto& [message, source] : parts_) {
      claims_.push_back({message, source, witnesses_of(source, draws_.phases[source])});
    }
    std::ranges::stable_sort(claims_, {}, &Claim::message);
    Claims found;
    for (const Claim& claim : claims_) {
      found.messages.push_back(claim.message);
      found.values.push_back(claim.value);
      auto& rows = found.witnesses.rows;
      rows.insert(rows.end(), claim.witnesses.begin(), claim.witnesses.end());
      found.witnesses.end();
    }
    return found;
  }

 private:
  using Key = std::pair<bool, std::vector<std::pair<int64_t, int64_t>>>;

  // What a message is, and where nothing hides that as a whole, what it is put together of.
  void carried(int32_t message) {
    const int32_t phase = draws_.phases[message];
    std::vector<int32_t> todo{original(message)};
    while (!todo.empty()) {
      const int32_t value = todo.back();
      todo.pop_back();
      // The same thing to hide, of an earlier message.
      if (!met_.insert(value * kPhases + phase).second) continue;
      std::vector<int32_t> witnesses = witnesses_of(value, phase);
      const int32_t source = witnesses.empty() ? masked_source(value) : kNone;
      if (source != kNone) {
        note_part(message, source);
      } else if (witnesses.empty() && is(value, kOfEach)) {
        for (const int32_t arg : c_.operands.of(value)) todo.push_back(original(arg));
      } else if (!depends_.is_empty(value) && told_.insert(value).second) {
        // The same value sent to two members of the coalition is one thing to hide.
        claims_.push_back({message, value, std::move(witnesses)});
      }
    }
  }

  // Bits of a value that is masked: of equal ones the last stands for all.
  void note_part(int32_t message, int32_t source) {
    Sum sum = without_known(sums_.of(source, true));
    std::ranges::sort(sum.terms);
    const auto [found, is_new] =
        known_.try_emplace({sum.by_xor, std::move(sum.terms)}, parts_.size());
    if (is_new) parts_.emplace_back(message, source);
    parts_[found->second].second = source;
  }

  bool is(int32_t row, Hidden asked) const { return (hides_[c_.ops[row]] & asked) != 0; }

  // The node whose value a message is, behind any messages that brought it to the sender. Of a
  // section of words, or of bits of one, the words: they are hidden as one.
  int32_t original(int32_t row) const {
    const int32_t whole = behind_.whole[row];
    return is(whole, kRoots) ? whole : behind_.passed[row];
  }

  std::vector<int32_t> witnesses_of(int32_t value, int32_t phase) const {
    if (!is(value, kRoots)) return witnesses(sums_, depends_, draws_, value, phase);
    const auto found = std::ranges::lower_bound(rooted_.keys, value * kPhases + phase);
    if (found == rooted_.keys.end() || *found != value * kPhases + phase) return {};
    const auto at = static_cast<size_t>(found - rooted_.keys.begin());
    const auto begin = rooted_.draws.begin();
    return {begin + rooted_.first[at], begin + rooted_.first[at + 1]};
  }

  // The value whose bits another is, once what the coalition knows is taken away, if it is masked.
  int32_t masked_source(int32_t value) const {
    const Sum left = without_known(sums_.of(value, true));
    if (left.terms.size() != 1 || left.terms[0].first < 0) return kNone;
    const int32_t source = behind_.masked[left.terms[0].first];
    return witnesses_of(source, draws_.phases[source]).empty() ? kNone : source;
  }

  Sum without_known(Sum sum) const {
    std::erase_if(sum.terms, [&](const auto& term) {
      if (term.first < 0) return !draws_.is_hidden[-1 - term.first];
      return is(static_cast<int32_t>(term.first), kPublic);
    });
    return sum;
  }

  const Sums& sums_;
  const SummedColumns& c_;
  const Dependencies& depends_;
  const HiddenDraws& draws_;
  const Behind& behind_;
  const Rooted& rooted_;
  std::span<const uint8_t> hides_;
  std::unordered_set<int64_t> met_;  // values, each with the phase in which it is sent
  std::unordered_set<int32_t> told_;
  std::map<Key, size_t> known_;
  std::vector<std::pair<int32_t, int32_t>> parts_;  // messages and sources
  std::vector<Claim> claims_;
};

}  // namespace

Claims claims_of(const Sums& sums, const Dependencies& depends, const HiddenDraws& draws,
                 const Behind& behind, const Rooted& rooted, std::span<const uint8_t> hides,
                 std::span<const int64_t> messages) {
  return Collection(sums, depends, draws, behind, rooted, hides).of(messages);
}

}  // namespace veil
