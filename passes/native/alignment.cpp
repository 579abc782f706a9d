#include "passes/native/alignment.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "passes/native/facts.h"

namespace veil {

namespace {

// Of messages that are alike the largest takes at least so many sixteenths of a round's time, if
// they are to be aligned.
constexpr int64_t kSixteenths[] = {0, 1, 2, 4, 8, 16, 32};
constexpr int64_t kMostBytes = int64_t{1} << 40;  // of a message: sums stay within 63 bits
// What bounds the time that a stranger's plan takes: how often each node is looked at, all in all,
// and the types of a layer whose messages are compared.
constexpr size_t kMostLooks = 256;
constexpr size_t kMostKinds = 16;
constexpr int32_t kAlone = -1;

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
        group_(steps.facts.size(), kAlone),
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
    int64_t before = -1;
    for (const int64_t share : kSixteenths) {
      const int64_t smallest = traffic_.round_bytes * share / 16;
      if (smallest == std::exchange(before, smallest)) continue;
      for (const Layer& layer : layers_) place(layer, smallest);
      const int64_t own = price();
      if (own >= least) continue;
      least = own;
      best = wanted_;
    }
    return best;
  }

 private:
  // In a phase of a run: setup is once.
  bool is_sent(size_t node) const {
    return live_[node] && (steps_.facts[node] & kSend) != 0 && steps_.stages[node] != 0;
  }
  int64_t bytes_of(size_t node) const { return std::min(traffic_.bytes[node], kMostBytes); }

  // Alike are messages of a stage and a type that wait for as many of that type in their layer.
  Layer grouped(size_t begin, size_t end) {
    std::set<int32_t> kinds;
    for (size_t i = begin; i < end; ++i) {
      if (is_sent(i)) kinds.insert(traffic_.kinds[i]);
    }
    if (kinds.size() > kMostKinds) kinds.clear();
    std::vector<int64_t> largest;
    std::map<std::tuple<int32_t, int32_t, int32_t>, int32_t> groups;
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
        const auto next = static_cast<int32_t>(groups.size());
        group_[i] = groups.try_emplace(key, next).first->second;
        largest.resize(groups.size());
        largest[group_[i]] = std::max(largest[group_[i]], bytes_of(i));
      }
    }
    return {begin, end, std::move(largest)};
  }

  // Aligns what has a message of at least so many bytes.
  void place(const Layer& layer, int64_t smallest) {
    const std::vector<int64_t>& largest = layer.largest;
    place_early(layer);
    std::vector<Position> last(largest.size());
    while (looks_ < kMostLooks * at_.size()) {
      for (size_t i = layer.begin; i < layer.end; ++i) {
        if (group_[i] != kAlone) last[group_[i]] = std::max(last[group_[i]], at_[i]);
      }
      bool settled = true;
      for (size_t i = layer.begin; i < layer.end; ++i) {
        if (group_[i] == kAlone || largest[group_[i]] < smallest) continue;
        settled = settled && at_[i] == last[group_[i]];
        wanted_[i] = last[group_[i]];
      }
      if (settled) return;
      looks_ += layer.end - layer.begin;
      place_nodes(steps_, live_, wanted_, layer.begin, layer.end, at_);
    }
    place_early(layer);  // of two groups each waits for the other, as far as can be seen
  }

  void place_early(const Layer& layer) {
    std::fill(wanted_.begin() + layer.begin, wanted_.begin() + layer.end, 0);
    place_nodes(steps_, live_, wanted_, layer.begin, layer.end, at_);
  }

  // Bytes: each round's busiest link, and what a link carries in the rounds' own time.
  int64_t price() const {
    std::vector<std::tuple<Position, int32_t, int32_t, int64_t>> sent;
    for (size_t i = 0; i < at_.size(); ++i) {
      if (!is_sent(i)) continue;
      const int32_t sender = traffic_.parties[steps_.operands.of(i)[0]];
      sent.emplace_back(at_[i], sender, traffic_.parties[i], bytes_of(i));
    }
    std::sort(sent.begin(), sent.end());
    int64_t total = 0, busiest = 0, own = 0;
    std::tuple<Position, int32_t, int32_t> link{-1, 0, 0};
    for (const auto& [place, sender, receiver, bytes] : sent) {
      if (place != std::get<0>(link)) {
        total += traffic_.round_bytes + std::exchange(busiest, 0);
      }
      const std::tuple next(place, sender, receiver);
      if (std::exchange(link, next) != next) own = 0;
      own += bytes;
      busiest = std::max(busiest, own);
    }
    return total + busiest;
  }

  const Steps& steps_;
  const Traffic& traffic_;
  std::vector<uint8_t> live_;
  std::vector<Layer> layers_;
  std::vector<int32_t> group_;    // of each message of those alike in its layer, or kAlone
  std::vector<Position> wanted_;  // of each message: it isn't there before
  std::vector<Position> at_;
  size_t looks_ = 0;  // at nodes, to settle layers
};

}  // namespace

std::vector<Position> align_messages(const Steps& steps, const Traffic& traffic) {
  if (steps.facts.empty()) return {};
  return Alignment(steps, traffic).cheapest();
}

}  // namespace veil
