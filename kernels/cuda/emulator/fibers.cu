// The bodies of fibers.cuh.
#include "kernels/cuda/emulator/fibers.cuh"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace veil::emulator {

constinit thread_local Launch* Launch::current_ = nullptr;

Launch::Launch(Index grid, Index block, unsigned cluster, size_t shared_bytes, void (*body)(void*),
               void* state)
    : grid(grid),
      block(block),
      body_(body),
      state_(state),
      cluster_(cluster),
      threads_(block.x * block.y * block.z),
      fibers_(threads_ * cluster),
      shared_bytes_(shared_bytes),
      shared_((cluster + 1) * shared_stride(), kJunk) {
  if (threads_ == 0 || threads_ % kWarp != 0) fail("a block is no whole warps");
  if (cluster == 0 || grid.x % cluster != 0) fail("a grid is no whole clusters");
  warps_.resize(fibers_.size() / kWarp);
  blocks_.resize(cluster);
  const size_t bytes = fibers_.size() * kStackBytes;
  stacks_ = static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (stacks_ == MAP_FAILED) fail("no memory for stacks");
}

Launch::~Launch() { munmap(stacks_, fibers_.size() * kStackBytes); }

void Launch::fail(const char* what) {
  std::fprintf(stderr, "emulator: %s\n", what);
  std::abort();
}

void Launch::run() {
  current_ = this;
  unsigned number = 0;
  for (Fiber& f : fibers_) {
    const unsigned in_block = number % threads_;
    f.number = number++;
    f.thread = {in_block % block.x, in_block / block.x % block.y, in_block / block.x / block.y};
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = stacks_ + f.number * kStackBytes;
    f.context.uc_stack.ss_size = kStackBytes;
    f.context.uc_link = nullptr;
    makecontext(&f.context, &Launch::enter, 0);
  }
  if (__builtin_setjmp(finished_) == 0) resume(fibers_[0]);
  current_ = nullptr;
}

void Launch::wait_for_block() { wait_aligned(blocks_[rank()].all, threads_); }

void Launch::wait_for_cluster() { wait_aligned(cluster_barrier_, threads_ * cluster_); }

void Launch::wait_for_some(int number, unsigned threads) {
  wait_aligned(blocks_[rank()].some[number], threads);
}

void Launch::wait_for_warp() {
  require_together();
  wait(warp().barrier, kWarp);
}

void Launch::require_together() {
  if (warp().reached > 0) fail("lanes of a warp reach a barrier apart");
}

void Launch::end_phase(PhaseBarrier& barrier) {
  barrier.pending = barrier.arrivals;
  barrier.expected = 0;
  barrier.copies.clear();
  ++barrier.phase;
  idle_ = 0;
}

void Launch::pause() {
  if (++idle_ > 2 * fibers_.size()) fail("threads wait at different barriers");
  hand_on();
}

void Launch::enter() {
  Launch& launch = now();
  launch.walk_over_blocks();
  launch.leave();
}

void Launch::walk_over_blocks() {
  const Fiber& me = *fiber_;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; x += cluster_) {
        fibers_[me.number].block = {x + rank(), y, z};
        body_(state_);
        wait(cluster_barrier_, threads_ * cluster_);  // shared memory is the next cluster's
        if (me.number == 0) std::fill(shared_.begin(), shared_.end(), kJunk), phases.clear();
        wait(cluster_barrier_, threads_ * cluster_);
      }
    }
  }
}

void Launch::wait_aligned(Barrier& barrier, unsigned expected) {
  Warp& mine = warp();
  if (mine.reached > 0 && mine.aligned != &barrier) require_together();
  mine.aligned = &barrier;
  mine.reached = (mine.reached + 1) % kWarp;
  wait(barrier, expected);
}

void Launch::wait(Barrier& barrier, unsigned expected) {
  const unsigned generation = barrier.generation;
  if (++barrier.arrived == expected) {
    barrier.arrived = 0;
    ++barrier.generation;
    idle_ = 0;
    return;
  }
  while (barrier.generation == generation) pause();
}

void Launch::hand_on() {
  if (__builtin_setjmp(fiber_->place) == 0) resume(next());
}

Fiber& Launch::next() {
  size_t number = fiber_->number;
  do {
    number = number + 1 == fibers_.size() ? 0 : number + 1;
  } while (fibers_[number].done);
  return fibers_[number];
}

// A function of its own, for the compiler's longjmp and setjmp must not meet in one.
[[gnu::noinline]] void Launch::resume(Fiber& fiber) {
  fiber_ = &fiber;
  if (fiber.started) __builtin_longjmp(fiber.place, 1);
  fiber.started = true;
  setcontext(&fiber.context);
  fail("a fiber does not start");
}

[[gnu::noinline]] void Launch::leave() {
  fiber_->done = true;
  idle_ = 0;
  if (++finished_fibers_ == fibers_.size()) __builtin_longjmp(finished_, 1);
  resume(next());
}

uint64_t exchange_words(uint64_t word, unsigned lane) {
  Launch& launch = Launch::now();
  Fiber& me = launch.fiber();
  uint64_t* slots = launch.warp().slots[me.parity ^= 1];
  slots[me.number % kWarp] = word;
  launch.wait_for_warp();
  return slots[lane % kWarp];
}

}  // namespace veil::emulator
