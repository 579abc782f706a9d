// A party's memory and its table of steps, checked once and then run as often as wanted.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/abi.h"
#include "runtime/native/interpreter/memory.h"
#include "runtime/native/interpreter/steps.h"
#include "runtime/native/pool.h"

namespace veil {

// What an interpreter is made from; spans are copied.
struct Program {
  Tables tables;
  std::span<const uint8_t> constants, keys;
  uint64_t arena_bytes, max_arena_bytes;
  uint32_t threads;
};

struct KernelTime {
  uint64_t calls = 0, nanoseconds = 0;
};

// When a step ran, in nanoseconds of clock.h.
struct Span {
  uint64_t step, start, end;
};

class Interpreter {
 public:
  // Throws std::invalid_argument, which names the table, buffer or step, unless every step is
  // proven to stay inside its memory; std::runtime_error where `library` is no kernel library.
  Interpreter(const std::string& library, const Program& program);
  ~Interpreter();  // wipes arena, keys and scratch memory
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Throws std::invalid_argument unless [first, last) are steps, and none of them a round.
  void check_steps(uint64_t first, uint64_t last) const;
  // Runs the kernel steps [first, last) as inference number `run`. Throws as check_steps, and
  // std::runtime_error for a step that fails or while another runs.
  void run(uint64_t first, uint64_t last, uint32_t run);
  // Whether a step's elements can be run in parts.
  bool has_parts(uint64_t step) const;
  // Elements [from, to) of a step that has parts, as VeilKernel::run_part. Throws as run.
  void run_part(uint64_t step, int64_t from, int64_t to, uint32_t run);
  // Draws from here on are under these keys, as many as before. Throws std::invalid_argument for
  // another number of bytes, and std::runtime_error while the interpreter runs.
  void rekey(std::span<const uint8_t> keys);
  void wipe();

  Pages& arena() { return arena_; }
  size_t step_count() const { return steps_.size(); }
  std::span<const VeilKernel> kernels() const { return steps_.kernels(); }
  std::span<const KernelTime> profile() const { return profile_; }
  void reset_profile();

  // From here on keeps when each step ran; `note` adds one that ran elsewhere, such as a round.
  void trace();
  void note(uint64_t step, uint64_t start, uint64_t end);
  std::span<const Span> spans() const { return spans_; }

 private:
  void make_scratch();
  template <class Body>
  void alone(uint32_t run, Body&& body);
  void timed(uint64_t step, const char* failure, uint64_t before);

  Pages arena_, constants_, keys_;
  VeilContext context_;
  Steps steps_;
  std::unique_ptr<Pages> scratch_;
  std::unique_ptr<Pool> pool_;
  std::vector<KernelTime> profile_;
  bool traces_ = false;
  std::vector<Span> spans_;
  std::atomic_flag running_;
};

}  // namespace veil
