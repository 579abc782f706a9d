#include "runtime/native/phase.h"

#include <stdexcept>
#include <string>

#include "runtime/native/clock.h"

namespace veil {

void Phase::add(uint64_t first, uint64_t last, std::span<const Place> sends,
                std::span<const Place> receives) {
  machine_.check_steps(first, last);
  Stretch stretch{first, last, {}, {}};
  for (const Place& place : sends) stretch.sends.push_back({place.peer, memory(place)});
  for (const Place& place : receives) stretch.receives.push_back({place.peer, memory(place)});
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

Phase::End Phase::run(uint32_t run, double patience) {
  End end;
  for (const Stretch& stretch : stretches_) {
    if (stretch.last > stretch.first) machine_.run(stretch.first, stretch.last, run);
    if (!stretch.sends.empty() || !stretch.receives.empty()) {
      const uint64_t start = nanoseconds();
      end.fault = links_.exchange(stretch.sends, stretch.receives, patience);
      const uint64_t done = nanoseconds();
      machine_.note(stretch.last, start, done);
      end.network_nanoseconds += done - start;
      ++end.rounds;
      if (end.fault) return end;
    }
    links_.see_to_signals();
    ++end.stretch;
  }
  return end;
}

}  // namespace veil
