// One phase of a party: stretches of kernel steps, a round after each, without Python in between.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/native/links.h"
#include "runtime/native/machine.h"

namespace veil {

// A message's place in the arena.
struct Place {
  uint32_t peer;
  uint64_t offset, bytes;
};

class Phase {
 public:
  // What a run came to: the fault that ended it, and in which stretch.
  struct End {
    std::optional<Fault> fault;
    uint64_t stretch = 0, rounds = 0, network_nanoseconds = 0;
  };

  // Both must outlive this.
  Phase(Machine& machine, Links& links) : machine_(machine), links_(links) {}

  // Kernel steps [first, last), then a round if there are messages. Throws std::invalid_argument
  // for steps or messages that this machine or these links don't have.
  void add(uint64_t first, uint64_t last, std::span<const Place> sends,
           std::span<const Place> receives);
  // Runs all stretches in order as inference number `run`. Throws as Machine::run, and Interrupted.
  End run(uint32_t run, double patience);

 private:
  struct Stretch {
    uint64_t first, last;
    std::vector<Sent> sends;
    std::vector<Awaited> receives;
  };
  std::span<uint8_t> memory(const Place& place) const;

  Machine& machine_;
  Links& links_;
  std::vector<Stretch> stretches_;
};

}  // namespace veil
