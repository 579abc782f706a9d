#include "passes/native/fusion.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "passes/native/facts.h"

namespace veil {

namespace {

constexpr int64_t kLast = 1LL << 60;  // the depth of what writes over a state that others may read
constexpr int32_t kNone = -1;
constexpr int32_t kMostCounted = 64;  // parties whose positions are counted

class Fusion {
 public:
  explicit Fusion(const Scheduled& program)
      : p_(program),
        near_(program.facts.size()),
        base_(program.facts.size()),
        segment_(program.facts.size(), kNone),
        root_(program.facts.size(), kNone),
        depth_(program.facts.size()),
        action_(program.facts.size(), kNone),
        inside_(program.facts.size(), kNone),
        read_(program.facts.size(), kNone) {}

  Fused run() {
    look_through();
    place();
    size_t start = 0;
    for (size_t end = 0; end <= places_.size(); ++end) {
      if (end == places_.size() || !same_segment(places_[start], places_[end])) {
        if (end > start) segment({places_.data() + start, end - start});
        start = end;
      }
    }
    collect(stored_, found_.stored);
    collect(as_words_, found_.as_words);
    return std::move(found_);
  }

 private:
  struct Place {
    int32_t party;
    Position at;
    int32_t row;
    auto operator<=>(const Place&) const = default;
  };

  static bool same_segment(const Place& a, const Place& b) {
    return a.party == b.party && a.at == b.at;
  }

  bool is(int32_t row, uint32_t facts) const { return (p_.facts[row] & facts) != 0; }

  // Behind reshapes, and behind all views.
  void look_through() {
    for (size_t i = 0; i < p_.facts.size(); ++i) {
      const int32_t row = static_cast<int32_t>(i);
      near_[i] = is(row, kReshape) ? near_[p_.operands.of(i)[0]] : row;
      base_[i] = is(row, kView) ? base_[p_.operands.of(i)[0]] : row;
    }
  }

  // A send is placed at its sender, where it is packed.
  void place() {
    for (size_t i = 0; i < p_.facts.size(); ++i) {
      const int32_t row = static_cast<int32_t>(i);
      if (!p_.live[i] || is(row, kView | kLoaded)) continue;
      if (is(row, kSend)) {
        places_.push_back({p_.parties[p_.operands.of(i)[0]], p_.at[i] - 1, row});
      } else {
        places_.push_back({p_.parties[i], p_.at[i], row});
      }
    }
    sort_places();
    stored_.assign(p_.facts.size(), 0);
    as_words_.assign(p_.facts.size(), 0);
  }

  // By party and position; rows are in order already.
  void sort_places() {
    if (!count_places()) std::sort(places_.begin(), places_.end());
  }

  // As `sort_places`, by counting, where positions and parties are not more than there may be.
  bool count_places() {
    std::vector<int64_t> begins;  // of stages: at first how many positions they have
    int32_t parties = 0;
    for (const Place& place : places_) {
      const auto [stage, level] = split(place.at);
      if (stage < 0 || stage > kMostStages) return false;
      if (place.party < 0 || place.party >= kMostCounted) return false;
      begins.resize(std::max(begins.size(), static_cast<size_t>(stage) + 1));
      begins[stage] = std::max(begins[stage], level + 1);
      parties = std::max(parties, place.party + 1);
    }
    int64_t positions = 0;
    for (int64_t& begin : begins) begin = std::exchange(positions, positions + begin);
    if (positions > std::ssize(places_)) return false;
    std::vector<size_t> ends(static_cast<size_t>(positions * parties));
    const auto at = [&](const Place& place) -> size_t& {
      const auto [stage, level] = split(place.at);
      return ends[static_cast<size_t>(positions * place.party + begins[stage] + level)];
    };
    for (const Place& place : places_) ++at(place);
    size_t before = 0;
    for (size_t& end : ends) end = std::exchange(before, before + end);
    std::vector<Place> sorted(places_.size());
    for (const Place& place : places_) sorted[at(place)++] = place;
    places_ = std::move(sorted);
    return true;
  }

  static std::pair<int64_t, int64_t> split(Position at) {
    return {at >> kLevelBits, at & ((Position{1} << kLevelBits) - 1)};
  }

  void segment(std::span<const Place> places) {
    const int32_t number = segments_++;
    for (const Place& place : places) segment_[place.row] = number;
    for (const Place& place : places) visit(place.row, place.at, number);
    std::vector<std::tuple<int64_t, int32_t, bool>> order;
    std::vector<std::vector<int32_t>> members;
    for (const Place& place : places) {
      if (root_[place.row] == kNone) {
        if (!is(place.row, kRemade)) order.emplace_back(depth_[place.row], place.row, false);
        continue;
      }
      const int32_t root = root_of(place.row);
      if (action_[root] == kNone) {
        action_[root] = static_cast<int32_t>(members.size());
        members.emplace_back();
        order.emplace_back(depth_[root], root, true);
      }
      members[action_[root]].push_back(place.row);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [depth, row, fused] : order) {
      const std::vector<int32_t> alone{row};
      act(places[0], fused ? members[action_[row]] : alone, fused);
    }
  }

  // Depth counts the memory barriers before a node.
  void visit(int32_t row, Position at, int32_t number) {
    if (is(row, kRemade)) return;
    if (is(row, kKept)) {
      depth_[row] = kLast;
      return;
    }
    const bool fusible = is(row, kFusible);
    joined_.clear();
    for (const int32_t arg : p_.operands.of(row)) {
      const int32_t near = near_[arg];
      if (is_inline(near, row, at)) continue;
      const int32_t base = base_[near];
      if (segment_[base] != number || is(base, kSend)) continue;
      const bool direct =
          fusible && is(near, kElementwise) && p_.elements[near] == p_.elements[row];
      depth_[row] = std::max(depth_[row], depth_[base] + !direct);
      if (direct) joined_.push_back(near);
    }
    if (!fusible) return;
    root_[row] = row;
    for (const int32_t other : joined_) {
      if (root_[other] != kNone && depth_[other] == depth_[row]) join(other, row);
    }
  }

  // Whether a node makes a constant or a draw itself, rather than read it from memory. A draw of
  // setup has the session's counter: later phases can't make it again.
  bool is_inline(int32_t near, int32_t user, Position at) const {
    if (!is(user, kFusible)) return false;
    if (is(near, kConst)) return true;
    if (!is(near, kDraw) || p_.elements[near] != p_.elements[user]) return false;
    return (p_.stages[near] == 0) == (at >> kLevelBits == 0);
  }

  int32_t root_of(int32_t row) {
    while (root_[row] != row) row = root_[row] = root_[root_[row]];
    return row;
  }

  void join(int32_t a, int32_t b) {
    a = root_of(a), b = root_of(b);
    root_[std::max(a, b)] = std::min(a, b);
  }

  void act(const Place& place, const std::vector<int32_t>& nodes, bool fused) {
    const int32_t number = static_cast<int32_t>(found_.party.size());
    found_.party.push_back(place.party);
    found_.at.push_back(place.at);
    found_.fused.push_back(fused);
    found_.nodes.rows.insert(found_.nodes.rows.end(), nodes.begin(), nodes.end());
    found_.nodes.end();
    if (fused) {
      for (const int32_t row : nodes) inside_[row] = number;
    }
    for (const int32_t row : nodes) {
      for (const int32_t arg : p_.operands.of(row)) read(row, arg, place.at, number, fused);
    }
    found_.reads.end();
  }

  void read(int32_t row, int32_t arg, Position at, int32_t number, bool fused) {
    const int32_t near = near_[arg];
    if ((inside_[near] == number && !is(near, kSend)) || is_inline(near, row, at)) return;
    const int32_t base = base_[near];
    if (read_[base] != number) found_.reads.rows.push_back(base);
    read_[base] = number;
    stored_[base] = 1;
    if (!fused || near != base || p_.elements[near] != p_.elements[row]) as_words_[base] = 1;
  }

  static void collect(const std::vector<uint8_t>& chosen, std::vector<int32_t>& rows) {
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (chosen[i]) rows.push_back(static_cast<int32_t>(i));
    }
  }

  const Scheduled& p_;
  std::vector<int32_t> near_, base_, segment_, root_;
  std::vector<int64_t> depth_;
  std::vector<int32_t> action_;         // of a group's root, the group's place in its segment
  std::vector<int32_t> inside_, read_;  // the last action that has a node, or reads it
  std::vector<int32_t> joined_;
  std::vector<uint8_t> stored_, as_words_;
  std::vector<Place> places_;
  int32_t segments_ = 0;
  Fused found_;
};

}  // namespace

Fused fuse_local(const Scheduled& program) { return Fusion(program).run(); }

}  // namespace veil
