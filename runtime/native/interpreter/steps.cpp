#include "runtime/native/interpreter/steps.h"

#include <algorithm>
#include <stdexcept>

#include "runtime/native/interpreter/memory.h"

namespace veil {
namespace {

constexpr int64_t kMaxScratch = int64_t{64} << 20;  // far above what any kernel asks for a thread

}  // namespace

Steps::Steps(const std::string& library, const Tables& tables, std::span<const Region> regions,
             const VeilContext* context)
    : library_(library),
      steps_(read_steps(tables.steps)),
      params_(read_params(tables.params)),
      buffers_(resolve_buffers(read_buffers(tables.buffers), regions)),
      calls_(steps_.size()) {
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (!is_round(i)) check(i, context);
  }
}

std::string Steps::name(size_t index) const {
  const uint16_t kernel = steps_[index].kernel;
  std::string name = "step " + std::to_string(index);
  if (kernel < kernels().size()) name += std::string(" (") + kernels()[kernel].name + ")";
  return name + ": ";
}

void Steps::check(size_t index, const VeilContext* context) {
  const StepRecord& step = steps_[index];
  if (step.kernel >= kernels().size()) {
    throw std::invalid_argument(name(index) + "unknown kernel " + std::to_string(step.kernel));
  }
  if (step.first_buffer > buffers_.size() ||
      step.buffer_count > buffers_.size() - step.first_buffer) {
    throw std::invalid_argument(name(index) + "buffers out of range");
  }
  if (step.first_param > params_.size() || step.param_count > params_.size() - step.first_param) {
    throw std::invalid_argument(name(index) + "parameters out of range");
  }
  VeilCall& call = calls_[index];
  call = {buffers_.data() + step.first_buffer, step.buffer_count, step.param_count,
          params_.data() + step.first_param, context};
  int64_t at = -1;
  if (const char* reason = kernels()[step.kernel].check(&call, &at)) {
    const std::string where = at < 0 ? "" : " (at " + std::to_string(at) + ")";
    throw std::invalid_argument(name(index) + reason + where);
  }
  const int64_t wanted = kernels()[step.kernel].scratch_bytes(&call);
  if (wanted > kMaxScratch) throw std::invalid_argument(name(index) + "too much scratch memory");
  scratch_bytes_ = std::max(scratch_bytes_, wanted);
}

void check_program(const std::string& library, const Tables& tables, uint64_t arena_bytes,
                   uint64_t constants_bytes, uint32_t keys) {
  const Addresses arena(arena_bytes), constants(constants_bytes);
  const Region regions[] = {{arena.data(), arena_bytes, true},
                            {constants.data(), constants_bytes, false}};
  VeilContext context{};
  context.key_count = keys;
  context.threads = 1;
  const Steps proven(library, tables, regions, &context);
}

}  // namespace veil
