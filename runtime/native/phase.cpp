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
  interpreter_.check_steps(first, last);
  StepRange range{first, last, {}, {}, {}};
  const auto is_early = [&](const Place& place) { return place.step < last; };
  if (std::any_of(sends.begin(), sends.end(), is_early) ||
      std::any_of(receives.begin(), receives.end(), is_early)) {
    cut(range, sends, receives);
  }
  const std::vector<RoundStep>& round_steps = range.round_steps;
  for (const Place& place : sends) {
    const auto is_earlier = [&](const RoundStep& round_step) {
      return Moment{round_step.last - 1, round_step.to} < moment_of(place);
    };
    const auto before = std::count_if(round_steps.begin(), round_steps.end(), is_earlier);
    const size_t due = std::min(static_cast<size_t>(before) + 1, round_steps.size());
    const Piece piece{memory(place), static_cast<uint32_t>(due)};
    frame_of(range.sends, place.peer).pieces.push_back(piece);
  }
  for (const Place& place : receives) {
    frame_of(range.receives, place.peer).pieces.push_back(memory(place));
  }
  ranges_.push_back(std::move(range));
}

std::span<uint8_t> Phase::memory(const Place& place) const {
  Pages& arena = interpreter_.arena();
  if (!links_.has(place.peer)) {
    throw std::invalid_argument("a message of party " + std::to_string(place.peer) +
                                ", to whom there is no link");
  }
  if (place.offset > arena.size() || place.bytes > arena.size() - place.offset) {
    throw std::invalid_argument("a message beyond the arena");
  }
  return {arena.data() + place.offset, place.bytes};
}

// Has a round begin before its range runs, which is cut where something may be sent.
void Phase::cut(StepRange& range, std::span<const Place> sends,
                std::span<const Place> receives) const {
  for (const Place& place : receives) {
    if (place.step > range.first) {
      throw std::invalid_argument("what is received has no place yet when its round begins");
    }
  }
  std::vector<Moment> moments;
  for (const Place& place : sends) moments.push_back(moment_of(place));
  std::sort(moments.begin(), moments.end());
  moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
  if (range.last == range.first) return;
  uint64_t step = range.first;  // the first that is not done, and how much of it is
  int64_t done = 0;
  const auto finish_steps = [&](uint64_t end) {
    if (done > 0) range.round_steps.push_back({step, ++step, done, kAll});
    if (step < end) range.round_steps.push_back({step, end, 0, kAll});
    step = std::max(step, end);
    done = 0;
  };
  for (const auto& [until, elements] : moments) {
    if (until < step || until > range.last) {
      throw std::invalid_argument("a piece of a message is not made by the steps before it");
    }
    if (until > step) finish_steps(until);
    if (until == range.last) break;
    if (elements == kAll) {
      finish_steps(until + 1);
      continue;
    }
    if (!interpreter_.has_parts(until) || elements % VEIL_PART_ELEMENTS != 0 || elements < 0) {
      throw std::invalid_argument("a piece of a message is no part of its step");
    }
    range.round_steps.push_back({step, step + 1, done, elements});
    done = elements;
  }
  finish_steps(range.last);
}

Phase::End Phase::run(uint32_t run, const Patience& patience) {
  End end;
  for (const StepRange& range : ranges_) {
    if (!range.round_steps.empty()) {
      overlap(range, run, patience, end);
    } else {
      if (range.last > range.first) interpreter_.run(range.first, range.last, run);
      if (!range.sends.empty() || !range.receives.empty()) exchange(range, patience, end);
    }
    if (end.fault) return end;
    links_.see_to_signals();
    ++end.range;
  }
  return end;
}

void Phase::exchange(const StepRange& range, const Patience& patience, End& end) {
  const uint64_t start = nanoseconds();
  end.fault = links_.exchange(range.sends, range.receives, patience);
  note(range, start, start, end);
}

// Runs the steps while the round is under way.
void Phase::overlap(const StepRange& range, uint32_t run, const Patience& patience, End& end) {
  const uint64_t start = nanoseconds();
  end.fault = links_.begin(range.sends, range.receives, patience);
  if (end.fault) return;
  Begun begun(links_);
  uint32_t due = 0;
  for (const RoundStep& round_step : range.round_steps) {
    if (round_step.from == 0 && round_step.to == kAll) {
      interpreter_.run(round_step.first, round_step.last, run);
    } else {
      interpreter_.run_part(round_step.first, round_step.from, round_step.to, run);
    }
    if (!links_.release(++due)) break;
  }
  const uint64_t computed = nanoseconds();
  end.fault = begun.finish();
  note(range, start, computed, end);
}

// Counts a round that began at one time and was waited for from another.
void Phase::note(const StepRange& range, uint64_t began, uint64_t waited, End& end) {
  const uint64_t now = nanoseconds();
  interpreter_.note(range.last, began, now);
  end.network_nanoseconds += now - waited;
  ++end.rounds;
}

}  // namespace veil
