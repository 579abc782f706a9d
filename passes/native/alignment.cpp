#include "passes/native/alignment.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "passes/native/facts.h"
#include "passes/native/meetings.h"

namespace veil {

namespace {

// Of messages that are alike the largest takes at least so many sixteenths of a round's time, if
// they are to be aligned.
constexpr int64_t kSixteenths[] = {0, 1, 2, 4, 8, 16, 32};
constexpr int64_t kMostCounted = int64_t{1} << 40;  // of a message or product: sums stay in 63 bits
constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
// What bounds the time that a stranger's plan takes: how often each node is looked at, all in all,
// and the types of a layer whose messages are compared.
constexpr size_t kMostLooks = 256;
constexpr size_t kMostKinds = 16;
constexpr int64_t kWorth = 16;  // part of a round that it has to save if a product waits
constexpr int32_t kAlone = -1;
constexpr Position kNever = -1;

// Consecutive nodes of one layer, and what meets in them.
struct Layer {
  size_t begin;
  size_t end;
  size_t first;
  size_t last;
  std::vector<int64_t> largest;  // bytes of a message, of each group of those that are alike
};

// A message of a phase of a run: its node, what it is as a meeting, and the number of its link.
struct Sent {
  size_t node;
  size_t meeting;
  int32_t link;
  int64_t bytes;
};

// What happens between two rounds, and in the second one.
struct Round {
  std::map<int32_t, int64_t> work;                      // by party
  std::map<std::pair<int32_t, int32_t>, int64_t> sent;  // bytes by sender and receiver
};

// Parties whose messages slow nodes wait for, and those who have these nodes, a bit each.
struct Waits {
  uint64_t awaited = 0;
  uint64_t waiting = 0;
};

uint64_t bit(int32_t party) { return uint64_t{1} << party; }

class Alignment {
 public:
  Alignment(const Steps& steps, const Traffic& traffic)
      : steps_(steps),
        traffic_(traffic),
        live_(live_nodes(steps.facts, steps.operands)),
        meetings_(steps, live_),
        group_(meetings_.size(), kAlone),
        wanted_(meetings_.size(), 0),
        at_(meetings_.size(), 0),
        slow_(steps.facts.size(), kNever),
        senders_(steps.facts.size(), 0) {
    note_sends();
    const auto layers = traffic.layers;
    for (size_t begin = 0, end, first = 0, last = 0; begin < layers.size(); begin = end) {
      end = begin;
      while (end < layers.size() && layers[end] == layers[begin]) ++end;
      while (last < meetings_.size() && meetings_.node(last) < end) ++last;
      layers_.push_back({begin, end, first, last, grouped(first, last)});
      first = last;
    }
  }

  Aligned cheapest() {
    meetings_.place(wanted_, 0, at_.size(), at_);
    const auto nodes = live_.size();
    Aligned best{std::vector<Position>(nodes), std::vector<uint8_t>(nodes)};
    int64_t least = price(), chosen = kNone, before = -1;
    for (const int64_t share : kSixteenths) {
      const int64_t smallest = traffic_.round_bytes * share / 16;
      if (smallest == std::exchange(before, smallest)) continue;
      for (const Layer& layer : layers_) place(layer, smallest);
      const int64_t own = price();
      if (own >= least) continue;
      least = own;
      chosen = smallest;
      best.wanted = wanted_by_nodes();
    }
    const std::vector<uint8_t> all(traffic_.before.begin(), traffic_.before.end());
    if (std::ranges::count(all, kNothing) == std::ssize(all)) return best;
    std::vector<Aligned> others{best, {best.wanted, all}};
    std::ranges::transform(all, others[0].before.begin(),
                           [](uint8_t each) { return std::min<uint8_t>(each, kSends); });
    if (std::ranges::count(all, kMessages)) {
      for (const Layer& layer : layers_) {
        place(layer, chosen);
        hold(layer, chosen);
      }
      others.push_back({wanted_by_nodes(), all});
    }
    const std::vector<Position> wanted = best.wanted;
    const Rounds early = early_rounds(steps_, wanted);
    least = time(best.before, early);
    for (Aligned& other : others) {
      const bool is_same = other.wanted == wanted;
      const int64_t own = time(other.before, is_same ? early : early_rounds(steps_, other.wanted));
      if (own >= least - traffic_.round_bytes / kWorth) continue;
      least = own;
      best = std::move(other);
    }
    return best;
  }

 private:
  // In a phase of a run: setup is once.
  bool is_sent(size_t node) const {
    return live_[node] && (steps_.facts[node] & kSend) != 0 && steps_.stages[node] != 0;
  }
  int64_t bytes_of(size_t node) const { return std::min(traffic_.bytes[node], kMostCounted); }

  bool is_slow(size_t node) const {
    return live_[node] && steps_.stages[node] != 0 && traffic_.before[node] == kMessages;
  }
  int32_t sender_of(size_t send) const { return traffic_.parties[steps_.operands.of(send)[0]]; }
  Position at(size_t node) const { return meetings_.at(node, at_); }

  std::vector<Position> wanted_by_nodes() const {
    std::vector<Position> found(live_.size());
    for (size_t i = 0; i < wanted_.size(); ++i) found[meetings_.node(i)] = wanted_[i];
    return found;
  }

  // Alike are messages of a stage and a type that wait for as many of that type in their layer;
  // of each group the bytes of its largest.
  std::vector<int64_t> grouped(size_t first, size_t last) {
    std::set<int32_t> kinds;
    for (size_t i = first; i < last; ++i) {
      if (is_sent(meetings_.node(i))) kinds.insert(traffic_.kinds[meetings_.node(i)]);
    }
    if (kinds.size() > kMostKinds) kinds.clear();
    std::vector<int64_t> largest;
    std::map<std::tuple<int32_t, int32_t, int32_t>, int32_t> groups;
    std::vector<int32_t> waits(last - first);
    for (const int32_t kind : kinds) {
      for (size_t i = first; i < last; ++i) {
        int32_t& own = waits[i - first] = 0;
        for (const int32_t before : meetings_.before(i)) {
          if (static_cast<size_t>(before) >= first) own = std::max(own, waits[before - first]);
        }
        const size_t node = meetings_.node(i);
        if (!is_sent(node) || traffic_.kinds[node] != kind) continue;
        const std::tuple key(steps_.stages[node], kind, own++);
        const auto next = static_cast<int32_t>(groups.size());
        group_[i] = groups.try_emplace(key, next).first->second;
        largest.resize(groups.size());
        largest[group_[i]] = std::max(largest[group_[i]], bytes_of(node));
      }
    }
    return largest;
  }

  // Aligns what has a message of at least so many bytes.
  void place(const Layer& layer, int64_t smallest) {
    place_early(layer);
    // Else of two groups each waits for the other, as far as can be seen.
    if (!settle(layer, smallest)) place_early(layer);
  }

  bool settle(const Layer& layer, int64_t smallest) {
    const std::vector<int64_t>& largest = layer.largest;
    std::vector<Position> last(largest.size());
    while (looks_ < kMostLooks * live_.size()) {
      for (size_t i = layer.first; i < layer.last; ++i) {
        if (group_[i] != kAlone) last[group_[i]] = std::max(last[group_[i]], at_[i]);
      }
      bool settled = true;
      for (size_t i = layer.first; i < layer.last; ++i) {
        if (group_[i] == kAlone || largest[group_[i]] < smallest) continue;
        settled = settled && at_[i] == last[group_[i]];
        wanted_[i] = last[group_[i]];
      }
      if (settled) return true;
      looks_ += layer.end - layer.begin;
      meetings_.place(wanted_, layer.first, layer.last, at_);
    }
    return false;
  }

  // A message that is made of a slow node of its round goes a round later, if with it its party
  // sends, or its receiver receives, what another slow node waits for: that one would wait for
  // both.
  void hold(const Layer& layer, int64_t smallest) {
    note_all(layer);
    bool held = false;
    for (size_t i = layer.begin, next = layer.first; i < layer.end; ++i) {
      if (!live_[i]) continue;
      const size_t own = next;
      if (own < layer.last && meetings_.node(own) == i) meetings_.place(wanted_, own, ++next, at_);
      note(i);
      if (!is_sent(i) || slow_[steps_.operands.of(i)[0]] != at_[own] - 1) continue;
      const auto other = others_.find(at_[own]);
      if (other == others_.end()) continue;
      const auto& [awaited, waiting] = other->second;
      if (!(awaited & bit(sender_of(i))) && !(waiting & bit(traffic_.parties[i]))) continue;
      wanted_[own] = ++at_[own];
      held = true;
    }
    if (!held) return;
    settle(layer, smallest);
    note_all(layer);
  }

  void note_all(const Layer& layer) {
    for (size_t i = layer.begin; i < layer.end; ++i) {
      if (live_[i]) note(i);
    }
  }

  // What a node waits for at its party: slow nodes, and messages of the round before.
  void note(size_t node) {
    const Position own_place = at(node);
    slow_[node] = is_slow(node) ? own_place : kNever;
    senders_[node] = 0;
    for (const int32_t arg : steps_.operands.of(node)) {
      const bool is_message = (steps_.facts[arg] & kSend) != 0;
      if (!is_message) slow_[node] = std::max(slow_[node], slow_[arg]);
      if (at(arg) != own_place) continue;
      senders_[node] |= is_message ? bit(sender_of(arg)) : senders_[arg];
    }
    if (!is_slow(node) || !senders_[node]) return;
    Waits& own = others_[own_place];
    own.awaited |= senders_[node];
    own.waiting |= bit(traffic_.parties[node]);
  }

  void place_early(const Layer& layer) {
    std::fill(wanted_.begin() + layer.first, wanted_.begin() + layer.last, 0);
    meetings_.place(wanted_, layer.first, layer.last, at_);
  }

  void note_sends() {
    std::map<std::pair<int32_t, int32_t>, int32_t> links;
    for (size_t i = 0; i < meetings_.size(); ++i) {
      const size_t node = meetings_.node(i);
      if (!is_sent(node)) continue;
      const std::pair ends(sender_of(node), traffic_.parties[node]);
      const auto next = static_cast<int32_t>(links.size());
      sends_.push_back({node, i, links.try_emplace(ends, next).first->second, bytes_of(node)});
    }
    links_ = links.size();
  }

  // Bytes: each round's busiest link, and what a link carries in the rounds' own time.
  int64_t price() {
    sort_sends();
    std::vector<int64_t> carried(links_);  // in the round that is looked at
    int64_t total = 0;
    for (size_t round = 0, begin = 0; round < ends_.size(); begin = ends_[round++]) {
      if (begin == ends_[round]) continue;
      const std::span own(in_order_.begin() + begin, in_order_.begin() + ends_[round]);
      int64_t busiest = 0;
      for (const Sent* each : own) {
        busiest = std::max(busiest, carried[each->link] += each->bytes);
      }
      for (const Sent* each : own) carried[each->link] = 0;
      total += traffic_.round_bytes + busiest;
    }
    return total;
  }

  // Messages by rounds, those of a stage behind all of the one before; where each round's end.
  void sort_sends() {
    std::vector<Position> begins;  // of stages; at first how many rounds they have
    for (const Sent& each : sends_) {
      const auto stage = static_cast<size_t>(steps_.stages[each.node]);
      begins.resize(std::max(begins.size(), stage + 1));
      begins[stage] = std::max(begins[stage], level(at_[each.meeting]) + 1);
    }
    Position rounds = 0;
    for (Position& begin : begins) begin = std::exchange(rounds, rounds + begin);
    const auto round_of = [&](const Sent& each) {
      return static_cast<size_t>(begins[steps_.stages[each.node]] + level(at_[each.meeting]));
    };
    ends_.assign(static_cast<size_t>(rounds), 0);
    for (const Sent& each : sends_) ++ends_[round_of(each)];
    size_t before = 0;
    for (size_t& end : ends_) end = std::exchange(before, before + end);
    in_order_.resize(sends_.size());
    for (const Sent& each : sends_) in_order_[ends_[round_of(each)]++] = &each;
  }

  static Position level(Position at) { return at & ((Position{1} << kLevelBits) - 1); }

  // Until the last party is done, all phases together, as bytes that a link carries meanwhile: in
  // each round a party multiplies, sends, and goes on when what is sent to it is there.
  int64_t time(std::span<const uint8_t> before, const Rounds& early) const {
    const Rounds rounds = late_rounds(steps_, traffic_.parties, before, early);
    std::map<Position, Round> events;
    for (size_t i = 0; i < rounds.at.size(); ++i) {
      if (is_sent(i)) {
        events[rounds.at[i] - 1].sent[{sender_of(i), traffic_.parties[i]}] += bytes_of(i);
      } else if (live_[i] && steps_.stages[i] != 0 && traffic_.work[i] > 0) {
        const int64_t own = std::min(traffic_.work[i], kMostCounted);
        events[rounds.at[i]].work[traffic_.parties[i]] += own;
      }
    }
    int64_t total = 0;
    Position stage = 0;
    std::map<int32_t, int64_t> done;
    const auto end_stage = [&] {
      int64_t last = 0;
      for (const auto& [party, own] : done) last = std::max(last, own);
      total += last;
      done.clear();
    };
    for (const auto& [place, round] : events) {
      if (std::exchange(stage, place >> kLevelBits) != place >> kLevelBits) end_stage();
      for (const auto& [party, own] : round.work) done[party] += own;
      const std::map<int32_t, int64_t> begun = done;
      for (const auto& [link, bytes] : round.sent) {
        const auto sender = begun.find(link.first);
        const int64_t sent = sender == begun.end() ? 0 : sender->second;
        int64_t& receiver = done[link.second];
        receiver = std::max(receiver, sent + bytes + traffic_.round_bytes);
      }
    }
    end_stage();
    return total;
  }

  const Steps& steps_;
  const Traffic& traffic_;
  std::vector<uint8_t> live_;
  Meetings meetings_;
  std::vector<Layer> layers_;
  std::vector<Sent> sends_;
  size_t links_ = 0;
  std::vector<const Sent*> in_order_;  // by rounds
  std::vector<size_t> ends_;
  // Of meetings: the group of a message among those alike in its layer, or kAlone; the place that a
  // message isn't at before; and where they are.
  std::vector<int32_t> group_;
  std::vector<Position> wanted_, at_;
  std::vector<Position> slow_;     // the last slow node that a node waits for is there, or kNever
  std::vector<uint64_t> senders_;  // of messages there with a node that it waits for, a bit each
  std::map<Position, Waits> others_;  // of slow nodes, by their places
  size_t looks_ = 0;                  // at nodes, to settle layers
};

}  // namespace

Aligned align_messages(const Steps& steps, const Traffic& traffic) {
  if (steps.facts.empty()) return {};
  return Alignment(steps, traffic).cheapest();
}

}  // namespace veil
