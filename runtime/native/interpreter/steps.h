// A party's table of steps, every one proven to stay inside memory of known size.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/abi.h"
#include "runtime/native/interpreter/library.h"
#include "runtime/native/interpreter/tables.h"

namespace veil {

// The tables of a program as bytes: STEP, BUFFER and int64 records.
struct Tables {
  std::span<const uint8_t> steps, buffers, params;
};

class Steps {
 public:
  // Uses addresses and sizes of `regions` and the counts in `context`, which must outlive this; no
  // contents. Throws std::invalid_argument, which names the table, buffer or step that is wrong;
  // std::runtime_error where `library` is no kernel library.
  Steps(const std::string& library, const Tables& tables, std::span<const Region> regions,
        const VeilContext* context);
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  size_t size() const { return steps_.size(); }
  bool is_round(size_t index) const { return steps_[index].kernel == kRound; }
  // For steps that are no rounds:
  uint16_t kernel(size_t index) const { return steps_[index].kernel; }
  const VeilCall& call(size_t index) const { return calls_[index]; }

  std::string name(size_t index) const;
  std::span<const VeilKernel> kernels() const { return library_.kernels(); }
  // The most scratch memory that any step wants for a thread.
  int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  void check(size_t index, const VeilContext* context);

  Library library_;
  std::vector<StepRecord> steps_;
  std::vector<int64_t> params_;
  std::vector<VeilBuffer> buffers_;
  std::vector<VeilCall> calls_;  // one a step; empty for rounds
  int64_t scratch_bytes_ = 0;
};

// The proof alone, for a device whose memory is elsewhere: nothing of these sizes is allocated.
// Throws as Steps.
void check_program(const std::string& library, const Tables& tables, uint64_t arena_bytes,
                   uint64_t constants_bytes, uint32_t keys);

}  // namespace veil
