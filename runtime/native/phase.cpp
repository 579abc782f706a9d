#include "runtime/native/phase.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "runtime/native/clock.h"

namespace veil {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

// When a piece is there: a step, and how many of its elements.
using Moment = std::pair<uint64_t, int64_t>;

Moment moment_of(const Place& place) {
  return {place.step, place.elements == 0 ? kAll : place.elements};
}

// What there is for a peer in a list of frames; a new one if there is none.
template <class Frame>
Frame& frame_of(std::vector<Frame>& frames, uint32_t peer) {
  for (Frame& frame : frames) {
    if (frame.peer == peer) return frame;
  }
  frames.push_back({peer, {}});
  return frames.back();
}

// Ends a round that has begun, however a block is left.
class Begun {
 public:
  explicit Begun(Links& links) : links_(links) {}
  ~Begun() {
    if (open_) links_.abandon();
  }
  std::optional<Fault> finish() {
    open_ = false;
    return links_.finish();
  }

 private:
  Links& links_;
  bool open_ = true;
};

}  // namespace

void Phase::add(uint64_t first, uint64_t last, std::span<const Place> sends,
                std::span<const Place> receives) {
  machine_.check_steps(first, last);
  StepRange stretch{first, last, {}, {}, {}};
  const auto is_early = [&](const Place& place) { return place.step < last; };
  if (std::any_of(sends.begin(), sends.end(), is_early) ||
      std::any_of(receives.begin(), receives.end(), is_early)) {
    cut(stretch, sends, receives);
  }
  const std::vector<RoundStep>& turns = stretch.turns;
  for (const Place& place : sends) {
    const auto is_earlier = [&](const RoundStep& turn) {
      return Moment{turn.last - 1, turn.to} < moment_of(place);
    };
    const auto before = std::count_if(turns.begin(), turns.end(), is_earlier);
    const size_t due = std::min(static_cast<size_t>(before) + 1, turns.size());
    const Piece piece{memory(place), static_cast<uint32_t>(due)};
    frame_of(stretch.sends, place.peer).pieces.push_back(piece);
  }
  for (const Place& place : receives) {
    frame_of(stretch.receives, place.peer).pieces.push_back(memory(place));
  }
  stretches_.push_back(std::move(stretch));
}

std::span<uint8_t> Phase::memory(const Place& place) const {
  Pages& arena = machine_.arena();
  if (!links_.has(place.peer)) {
    throw std::invalid_argument("a message of party " + std::to_string(place.peer) +
                                ", to whom there is no link");
  }
  if (place.offset > arena.size() || place.bytes > arena.size() - place.offset) {
    throw std::invalid_argument("a message beyond the arena");
  }
  return {arena.data() + place.offset, place.bytes};
}

// Has a round begin before its stretch runs, which is cut where something may be sent.
void Phase::cut(StepRange& stretch, std::span<const Place> sends,
                std::span<const Place> receives) const {
  for (const Place& place : receives) {
    if (place.step > stretch.first) {
      throw std::invalid_argument("what is received has no place yet when its round begins");
    }
  }
  std::vector<Moment> moments;
  for (const Place& place : sends) moments.push_back(moment_of(place));
  std::sort(moments.begin(), moments.end());
  moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
  if (stretch.last == stretch.first) return;
  uint64_t step = stretch.first;  // the first that is not done, and how much of it is
  int64_t done = 0;
  const auto finish_steps = [&](uint64_t end) {
    if (done > 0) stretch.turns.push_back({step, ++step, done, kAll});
    if (step < end) stretch.turns.push_back({step, end, 0, kAll});
    step = std::max(step, end);
    done = 0;
  };
  for (const auto& [until, elements] : moments) {
    if (until < step || until > stretch.last) {
      throw std::invalid_argument("a piece of a message is not made by the steps before it");
    }
    if (until > step) finish_steps(until);
    if (until == stretch.last) break;
    if (elements == kAll) {
      finish_steps(until + 1);
      continue;
    }
    if (!machine_.has_parts(until) || elements % VEIL_PART_ELEMENTS != 0 || elements < 0) {
      throw std::invalid_argument("a piece of a message is no part of its step");
    }
    stretch.turns.push_back({step, step + 1, done, elements});
    done = elements;
  }
  finish_steps(stretch.last);
}

Phase::End Phase::run(uint32_t run, const Patience& patience) {
  End end;
  for (const StepRange& stretch : stretches_) {
    if (!stretch.turns.empty()) {
      overlap(stretch, run, patience, end);
    } else {
      if (stretch.last > stretch.first) machine_.run(stretch.first, stretch.last, run);
      if (!stretch.sends.empty() || !stretch.receives.empty()) exchange(stretch, patience, end);
    }
    if (end.fault) return end;
    links_.see_to_signals();
    ++end.stretch;
  }
  return end;
}

void Phase::exchange(const StepRange& stretch, const Patience& patience, End& end) {
  const uint64_t start = nanoseconds();
  end.fault = links_.exchange(stretch.sends, stretch.receives, patience);
  note(stretch, start, start, end);
}

// Runs the steps while the round is under way.
void Phase::overlap(const StepRange& stretch, uint32_t run, const Patience& patience, End& end) {
  const uint64_t start = nanoseconds();
  end.fault = links_.begin(stretch.sends, stretch.receives, patience);
  if (end.fault) return;
  Begun begun(links_);
  uint32_t due = 0;
  for (const RoundStep& turn : stretch.turns) {
    if (turn.from == 0 && turn.to == kAll) {
      machine_.run(turn.first, turn.last, run);
    } else {
      machine_.run_part(turn.first, turn.from, turn.to, run);
    }
    if (!links_.release(++due)) break;
  }
  const uint64_t computed = nanoseconds();
  end.fault = begun.finish();
  note(stretch, start, computed, end);
}

// Counts a round that began at one time and was waited for from another.
void Phase::note(const StepRange& stretch, uint64_t began, uint64_t waited, End& end) {
  const uint64_t now = nanoseconds();
  machine_.note(stretch.last, began, now);
  end.network_nanoseconds += now - waited;
  ++end.rounds;
}

}  // namespace veil
