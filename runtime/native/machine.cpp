#include "runtime/native/machine.h"

#include <cstring>
#include <stdexcept>

#include "runtime/native/clock.h"

namespace veil {
namespace {

constexpr uint32_t kMaxThreads = 256;
constexpr int64_t kMaxScratch = int64_t{64} << 20;  // far above what any kernel asks for a thread

// `bytes` of arena, refused before anything of that size is allocated.
uint64_t checked_arena(const Program& program) {
  if (program.arena_bytes > program.max_arena_bytes) {
    throw std::invalid_argument("arena of " + std::to_string(program.arena_bytes) +
                                " bytes is larger than the " +
                                std::to_string(program.max_arena_bytes) + " allowed");
  }
  return program.arena_bytes;
}

void pool_parallel_for(void* pool, int64_t count, Pool::Body body, void* state) {
  static_cast<Pool*>(pool)->run(count, body, state);
}

// Clears a flag when a block is left, however it is left.
class Release {
 public:
  explicit Release(std::atomic_flag& flag) : flag_(flag) {}
  ~Release() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag& flag_;
};

void copy_into(const Pages& pages, std::span<const uint8_t> bytes) {
  if (!bytes.empty()) std::memcpy(pages.data(), bytes.data(), bytes.size());
}

}  // namespace

Machine::Machine(const std::string& library, const Program& program)
    : library_(library),
      arena_(checked_arena(program)),
      constants_(program.constants.size()),
      keys_(program.keys.size()),
      steps_(read_steps(program.steps)),
      params_(read_params(program.params)),
      profile_(library_.kernels().size()) {
  if (program.keys.size() % 16 != 0) throw std::invalid_argument("keys are not of 16 bytes each");
  if (program.threads < 1 || program.threads > kMaxThreads) {
    throw std::invalid_argument("threads are not between 1 and " + std::to_string(kMaxThreads));
  }
  copy_into(constants_, program.constants);
  constants_.protect();
  copy_into(keys_, program.keys);
  const Region regions[] = {{arena_.data(), arena_.size(), true},
                            {constants_.data(), constants_.size(), false}};
  buffers_ = resolve_buffers(read_buffers(program.buffers), regions);
  context_.keys = keys_.data();
  context_.key_count = static_cast<uint32_t>(program.keys.size() / 16);
  context_.threads = program.threads;
  calls_.resize(steps_.size());
  for (size_t i = 0; i < steps_.size(); ++i) check_step(i);
  make_scratch();
  pool_ = std::make_unique<Pool>(program.threads);
  context_.pool = pool_.get();
  context_.parallel_for = pool_parallel_for;
}

Machine::~Machine() {
  arena_.wipe();
  keys_.wipe();
  scratch_->wipe();
}

std::string Machine::step_name(size_t index) const {
  const uint16_t kernel = steps_[index].kernel;
  std::string name = "step " + std::to_string(index);
  if (kernel < kernels().size()) name += std::string(" (") + kernels()[kernel].name + ")";
  return name + ": ";
}

void Machine::check_step(size_t index) {
  const StepRecord& step = steps_[index];
  if (step.kernel == kRound) return;
  if (step.kernel >= kernels().size()) {
    throw std::invalid_argument(step_name(index) + "unknown kernel " + std::to_string(step.kernel));
  }
  if (step.first_buffer > buffers_.size() ||
      step.buffer_count > buffers_.size() - step.first_buffer) {
    throw std::invalid_argument(step_name(index) + "buffers out of range");
  }
  if (step.first_param > params_.size() || step.param_count > params_.size() - step.first_param) {
    throw std::invalid_argument(step_name(index) + "parameters out of range");
  }
  VeilCall& call = calls_[index];
  call = {buffers_.data() + step.first_buffer, step.buffer_count, step.param_count,
          params_.data() + step.first_param, &context_};
  int64_t at = -1;
  if (const char* reason = kernels()[step.kernel].check(&call, &at)) {
    const std::string where = at < 0 ? "" : " (at " + std::to_string(at) + ")";
    throw std::invalid_argument(step_name(index) + reason + where);
  }
}

void Machine::make_scratch() {
  int64_t bytes = 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].kernel == kRound) continue;
    const int64_t wanted = kernels()[steps_[i].kernel].scratch_bytes(&calls_[i]);
    if (wanted > kMaxScratch) throw std::invalid_argument(step_name(i) + "too much scratch memory");
    bytes = std::max(bytes, wanted);
  }
  constexpr int64_t kPage = 4096;
  context_.scratch_bytes = (bytes + kPage - 1) / kPage * kPage;
  scratch_ = std::make_unique<Pages>(context_.threads * context_.scratch_bytes);
  context_.scratch = scratch_->data();
}

void Machine::check_steps(uint64_t first, uint64_t last) const {
  if (first > last || last > steps_.size()) throw std::invalid_argument("steps out of range");
  for (uint64_t i = first; i < last; ++i) {
    if (steps_[i].kernel == kRound) throw std::invalid_argument(step_name(i) + "is a round");
  }
}

// Runs `body` as inference number `run`, while nothing else may.
template <class Body>
void Machine::alone(uint32_t run, Body&& body) {
  if (running_.test_and_set(std::memory_order_acquire)) {
    throw std::runtime_error("the machine is running already");
  }
  const Release release(running_);
  context_.run = run;
  body();
}

void Machine::run(uint64_t first, uint64_t last, uint32_t run) {
  check_steps(first, last);
  alone(run, [&] {
    for (uint64_t i = first; i < last; ++i) {
      const uint64_t before = nanoseconds();
      timed(i, kernels()[steps_[i].kernel].run(&calls_[i]), before);
      ++profile_[steps_[i].kernel].calls;
    }
  });
}

bool Machine::has_parts(uint64_t step) const {
  const uint16_t kernel = steps_[step].kernel;
  return kernel != kRound && kernels()[kernel].run_part != nullptr;
}

void Machine::run_part(uint64_t step, int64_t from, int64_t to, uint32_t run) {
  alone(run, [&] {
    const uint64_t before = nanoseconds();
    timed(step, kernels()[steps_[step].kernel].run_part(&calls_[step], from, to), before);
    if (from == 0) ++profile_[steps_[step].kernel].calls;
  });
}

// Notes the time of what has run, and throws if it failed.
void Machine::timed(uint64_t step, const char* failure, uint64_t before) {
  if (failure) throw std::runtime_error(step_name(step) + failure);
  const uint64_t after = nanoseconds();
  profile_[steps_[step].kernel].nanoseconds += after - before;
  note(step, before, after);
}

void Machine::wipe() {
  alone(context_.run, [&] {
    arena_.wipe();
    scratch_->wipe();
  });
}

void Machine::note(uint64_t step, uint64_t start, uint64_t end) {
  if (traces_) spans_.push_back({step, start, end});
}

void Machine::trace() {
  traces_ = true;
  spans_.clear();
}

void Machine::reset_profile() { profile_.assign(profile_.size(), KernelTime{}); }

}  // namespace veil
