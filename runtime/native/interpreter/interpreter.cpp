#include "runtime/native/interpreter/interpreter.h"

#include <array>
#include <cstring>
#include <stdexcept>

#include "runtime/native/clock.h"

namespace veil {
namespace {

constexpr uint32_t kMaxThreads = 256;

// `bytes` of arena, refused before anything of that size is allocated.
uint64_t checked_arena(const Program& program) {
  if (program.arena_bytes > program.max_arena_bytes) {
    throw std::invalid_argument("arena of " + std::to_string(program.arena_bytes) +
                                " bytes is larger than the " +
                                std::to_string(program.max_arena_bytes) + " allowed");
  }
  return program.arena_bytes;
}

// Keys and threads of a context, refused where they can't be; the rest comes later.
VeilContext checked_context(const Program& program, const uint8_t* keys) {
  if (program.keys.size() % 16 != 0) throw std::invalid_argument("keys are not of 16 bytes each");
  if (program.threads < 1 || program.threads > kMaxThreads) {
    throw std::invalid_argument("threads are not between 1 and " + std::to_string(kMaxThreads));
  }
  VeilContext context{};
  context.keys = keys;
  context.key_count = static_cast<uint32_t>(program.keys.size() / 16);
  context.threads = program.threads;
  return context;
}

std::array<Region, 2> regions_of(const Pages& arena, const Pages& constants) {
  return {Region{arena.data(), arena.size(), true},
          Region{constants.data(), constants.size(), false}};
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

Interpreter::Interpreter(const std::string& library, const Program& program)
    : arena_(checked_arena(program)),
      constants_(program.constants.size()),
      keys_(program.keys.size()),
      context_(checked_context(program, keys_.data())),
      steps_(library, program.tables, regions_of(arena_, constants_), &context_),
      profile_(kernels().size()) {
  copy_into(constants_, program.constants);
  constants_.protect();
  copy_into(keys_, program.keys);
  make_scratch();
  pool_ = std::make_unique<Pool>(program.threads);
  context_.pool = pool_.get();
  context_.parallel_for = pool_parallel_for;
}

Interpreter::~Interpreter() {
  arena_.wipe();
  keys_.wipe();
  scratch_->wipe();
}

void Interpreter::make_scratch() {
  constexpr int64_t kPage = 4096;
  context_.scratch_bytes = (steps_.scratch_bytes() + kPage - 1) / kPage * kPage;
  scratch_ = std::make_unique<Pages>(context_.threads * context_.scratch_bytes);
  context_.scratch = scratch_->data();
}

void Interpreter::check_steps(uint64_t first, uint64_t last) const {
  if (first > last || last > steps_.size()) throw std::invalid_argument("steps out of range");
  for (uint64_t i = first; i < last; ++i) {
    if (steps_.is_round(i)) throw std::invalid_argument(steps_.name(i) + "is a round");
  }
}

// Runs `body` as inference number `run`, while nothing else may.
template <class Body>
void Interpreter::alone(uint32_t run, Body&& body) {
  if (running_.test_and_set(std::memory_order_acquire)) {
    throw std::runtime_error("the interpreter is running already");
  }
  const Release release(running_);
  context_.run = run;
  body();
}

void Interpreter::run(uint64_t first, uint64_t last, uint32_t run) {
  check_steps(first, last);
  alone(run, [&] {
    for (uint64_t i = first; i < last; ++i) {
      const uint64_t before = nanoseconds();
      timed(i, kernels()[steps_.kernel(i)].run(&steps_.call(i)), before);
      ++profile_[steps_.kernel(i)].calls;
    }
  });
}

bool Interpreter::has_parts(uint64_t step) const {
  return !steps_.is_round(step) && kernels()[steps_.kernel(step)].run_part != nullptr;
}

void Interpreter::run_part(uint64_t step, int64_t from, int64_t to, uint32_t run) {
  alone(run, [&] {
    const uint64_t before = nanoseconds();
    timed(step, kernels()[steps_.kernel(step)].run_part(&steps_.call(step), from, to), before);
    if (from == 0) ++profile_[steps_.kernel(step)].calls;
  });
}

// Notes the time of what has run, and throws if it failed.
void Interpreter::timed(uint64_t step, const char* failure, uint64_t before) {
  if (failure) throw std::runtime_error(steps_.name(step) + failure);
  const uint64_t after = nanoseconds();
  profile_[steps_.kernel(step)].nanoseconds += after - before;
  note(step, before, after);
}

void Interpreter::rekey(std::span<const uint8_t> keys) {
  if (keys.size() != keys_.size()) throw std::invalid_argument("other keys than the program's");
  alone(context_.run, [&] { copy_into(keys_, keys); });
}

void Interpreter::wipe() {
  alone(context_.run, [&] {
    arena_.wipe();
    scratch_->wipe();
  });
}

void Interpreter::note(uint64_t step, uint64_t start, uint64_t end) {
  if (traces_) spans_.push_back({step, start, end});
}

void Interpreter::trace() {
  traces_ = true;
  spans_.clear();
}

void Interpreter::reset_profile() { profile_.assign(profile_.size(), KernelTime{}); }

}  // namespace veil
