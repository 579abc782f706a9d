#include "passes/native/alignment.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "passes/native/facts.h"

namespace veil {

namespace {

// Of messages that are alike the largest takes at least so many sixteenths of a round's time, if
// they are to be aligned.
constexpr int64_t kSixteenths[] = {0, 1, 2, 4, 8, 16, 32};
constexpr size_t kMostTurns = 64;  // until the messages of a layer have settled
constexpr int64_t kMostBytes = int64_t{1} << 40;  // of a message: sums stay within 63 bits

// Consecutive nodes of one layer.
struct Layer {
  size_t begin;
  size_t end;
  std::vector<int64_t> largest;  // bytes of a message, of each group of those that are alike
};

class Alignment {
 public:
  Alignment(const Steps& steps, const Traffic& traffic)
      : steps_(steps),
        traffic_(traffic),
        live_(live_nodes(steps.facts, steps.operands)),
        group_(steps.facts.size(), 0),
        wanted_(steps.facts.size(), 0),
        at_(steps.facts.size(), 0) {
    const auto layers = traffic.layers;
    for (size_t begin = 0, end; begin < layers.size(); begin = end) {
      end = begin;
      while (end < layers.size() && layers[end] == layers[begin]) ++end;
      layers_.push_back(grouped(begin, end));
    }
  }

  std::vector<Position> cheapest() {
    place_nodes(steps_, live_, wanted_, 0, at_.size(), at_);
    std::vector<Position> best = wanted_;
    int64_t least = price();
    for (const int64_t share : kSixteenths) {
      for (const Layer& layer : layers_) place(layer, traffic_.round_bytes * share / 16);
      const int64_t own = price();
      if (own >= least) continue;
      least = own;
      best = wanted_;
    }
    return best;
  }

 private:
  bool is_sent(size_t node) const { return live_[node] && (steps_.facts[node] & kSend) != 0; }
  int64_t bytes_of(size_t node) const { return std::min(traffic_.bytes[node], kMostBytes); }

  // Alike are messages of a stage and a type that wait for as many of that type in their layer.
  Layer grouped(size_t begin, size_t end) {
    std::set<int32_t> kinds;
    for (size_t i = begin; i < end; ++i) {
      if (is_sent(i)) kinds.insert(traffic_.kinds[i]);
    }
    std::vector<int64_t> largest;
    std::map<std::tuple<int32_t, int32_t, int32_t>, size_t> groups;
    std::vector<int32_t> waits(end - begin);
    for (const int32_t kind : kinds) {
      for (size_t i = begin; i < end; ++i) {
        int32_t& own = waits[i - begin] = 0;
        for (const int32_t arg : steps_.operands.of(i)) {
          const size_t before = static_cast<size_t>(arg);
          if (before < begin || steps_.stages[before] != steps_.stages[i]) continue;
          own = std::max(own, waits[before - begin]);
        }
        if (!is_sent(i) || traffic_.kinds[i] != kind) continue;
        const std::tuple key(steps_.stages[i], kind, own++);
        group_[i] = groups.try_emplace(key, groups.size()).first->second;
        largest.resize(groups.size());
        largest[group_[i]] = std::max(largest[group_[i]], bytes_of(i));
      }
    }
    return {begin, end, std::move(largest)};
  }

  // Aligns what has a message of at least so many bytes.
  void place(const Layer& layer, int64_t least) {
    const std::vector<int64_t>& largest = layer.largest;
    std::fill(wanted_.begin() + layer.begin, wanted_.begin() + layer.end, 0);
    place_nodes(steps_, live_, wanted_, layer.begin, layer.end, at_);
    std::vector<Position> last(largest.size());
    for (size_t turn = 0; turn < kMostTurns; ++turn) {
      for (size_t i = layer.begin; i < layer.end; ++i) {
        if (is_sent(i)) last[group_[i]] = std::max(last[group_[i]], at_[i]);
      }
      bool settled = true;
      for (size_t i = layer.begin; i < layer.end; ++i) {
        if (!is_sent(i) || largest[group_[i]] < least) continue;
        settled = settled && at_[i] == last[group_[i]];
        wanted_[i] = last[group_[i]];
      }
      if (settled) return;
      place_nodes(steps_, live_, wanted_, layer.begin, layer.end, at_);
    }
    // Of two groups each waits for the other, as far as can be seen: all go as early as they can.
    std::fill(wanted_.begin() + layer.begin, wanted_.begin() + layer.end, 0);
    place_nodes(steps_, live_, wanted_, layer.begin, layer.end, at_);
  }

  // Bytes: each round's busiest link, and what a link carries in the rounds' own time.
  int64_t price() const {
    std::map<Position, std::vector<int64_t>> rounds;
    const int32_t parties = 1 + *std::max_element(traffic_.parties.begin(), traffic_.parties.end());
    for (size_t i = 0; i < at_.size(); ++i) {
      if (!is_sent(i) || steps_.stages[i] == 0) continue;
      std::vector<int64_t>& links = rounds[at_[i]];
      links.resize(static_cast<size_t>(parties) * parties);
      const int32_t sender = traffic_.parties[steps_.operands.of(i)[0]];
      links[sender * parties + traffic_.parties[i]] += bytes_of(i);
    }
    int64_t total = 0;
    for (const auto& [round, links] : rounds) {
      total += traffic_.round_bytes + *std::max_element(links.begin(), links.end());
    }
    return total;
  }

  const Steps& steps_;
  const Traffic& traffic_;
  std::vector<uint8_t> live_;
  std::vector<Layer> layers_;
  std::vector<size_t> group_;     // of each message that it is alike with, in its layer
  std::vector<Position> wanted_;  // of each message: it isn't there before
  std::vector<Position> at_;
};

}  // namespace

std::vector<Position> align_messages(const Steps& steps, const Traffic& traffic) {
  if (steps.facts.empty()) return {};
  return Alignment(steps, traffic).cheapest();
}

}  // namespace veil
