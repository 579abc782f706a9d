// One phase of a party: ranges of kernel steps, a round after each, without Python in between.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/native/interpreter/interpreter.h"
#include "runtime/native/links/links.h"

namespace veil {

// A piece of a message, in the arena. One to send is there when `step` has done its first
// `elements` elements, or all if 0; one to receive may be put there from `step` on.
struct Place {
  uint32_t peer;
  uint64_t offset, bytes;
  uint64_t step;
  int64_t elements;
};

class Phase {
 public:
  // What a run came to: the fault that ended it, and in which range.
  struct End {
    std::optional<Fault> fault;
    uint64_t range = 0, rounds = 0, network_nanoseconds = 0;
  };

  // Both must outlive this.
  Phase(Interpreter& interpreter, Links& links) : interpreter_(interpreter), links_(links) {}

  // Kernel steps [first, last), then a round if there are messages, which begins as early as its
  // pieces say. Throws std::invalid_argument for steps, parts of them or messages that this
  // interpreter or these links don't have.
  void add(uint64_t first, uint64_t last, std::span<const Place> sends,
           std::span<const Place> receives);
  // Runs all ranges in order as inference number `run`. Throws as Interpreter::run, and
  // Interrupted.
  End run(uint32_t run, const Patience& patience);

 private:
  // Steps [first, last), or of the one step there elements [from, to).
  struct RoundStep {
    uint64_t first, last;
    int64_t from, to;
  };
  struct StepRange {
    uint64_t first, last;
    std::vector<Sent> sends;
    std::vector<Awaited> receives;
    std::vector<RoundStep> round_steps;  // none if the round begins after all steps; else pieces
                                         // are due after one of these, counted from 1
  };
  std::span<uint8_t> memory(const Place& place) const;
  void cut(StepRange& range, std::span<const Place> sends, std::span<const Place> receives) const;
  void exchange(const StepRange& range, const Patience& patience, End& end);
  void overlap(const StepRange& range, uint32_t run, const Patience& patience, End& end);
  void note(const StepRange& range, uint64_t began, uint64_t waited, End& end);

  Interpreter& interpreter_;
  Links& links_;
  std::vector<StepRange> ranges_;
};

}  // namespace veil
