// The threads of a block as fibers of one host thread: each runs until it waits for others.
//
// A fiber starts on a stack of its own (makecontext) and from then on changes places with the next
// by the compiler's own setjmp and longjmp, a few instructions: swapcontext asks the system, and
// the C library's longjmp looks for handlers to undo. Whoever waits at a barrier hands on in turn,
// so a barrier costs a switch a thread, and a kernel without barriers costs one a block.
#pragma once
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

namespace veil::emulator {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

using Place = void* [5];  // of __builtin_setjmp

struct Barrier {
  unsigned arrived = 0;
  unsigned generation = 0;
};

constexpr unsigned kWarp = 32;
// Not a power of two: the tops of all stacks would be kept in the same few lines of a cache.
constexpr size_t kStackBytes = (256 << 10) + 5 * 64;
constexpr size_t kSharedAlignment = 1024;
constexpr uint8_t kJunk = 0xa5;  // what dynamic shared memory holds when a block begins

// Threads of a warp meet here. Slots alternate, so that a lane may write the next value while
// another has yet to read this one.
struct Warp {
  Barrier barrier;
  const Barrier* aligned = nullptr;  // what some lanes have reached, and others have not
  unsigned reached = 0;
  uint64_t slots[2][kWarp] = {};
  int16_t factors[2][(16 + 8) * 32] = {};  // bytes, as wide as processors multiply them
};

// An asynchronous copy that has not been made yet.
struct Copy {
  uint8_t* to;
  const uint8_t* from;
  int bytes, valid;
};

// A barrier in shared memory: its phase ends when all have arrived, and the bytes are there that
// they announced, by copies that have not been made yet.
struct PhaseBarrier {
  unsigned arrivals = 0, pending = 0, phase = 0;
  int expected = 0;
  std::vector<Copy> copies = {};
};

// A product of matrices that has not been made yet: `count` sums of a thread, the left matrix in
// shared memory, or the thread's part of it in registers.
struct LateProduct {
  int32_t* sums;
  unsigned count;
  uint64_t a, b;
  const uint32_t* held = nullptr;
};

struct Fiber {
  Index thread, block;
  unsigned number = 0;
  unsigned parity = 0;
  bool started = false, done = false;
  std::vector<Copy> copies;    // in the order they were asked for
  std::vector<size_t> groups;  // how many copies there were when each group ended
  bool may_multiply = false;
  std::vector<LateProduct> products;  // as copies
  std::vector<size_t> bundles;        // as groups
  ucontext_t context;
  Place place;
};

// A launch under way: the fibers of a cluster of blocks, which all run one cluster after another.
class Launch {
 public:
  Launch(Index grid, Index block, unsigned cluster, size_t shared_bytes, void (*body)(void*),
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

  ~Launch() { munmap(stacks_, fibers_.size() * kStackBytes); }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  static Launch& now() { return *current_; }
  Fiber& fiber() { return *fiber_; }
  Warp& warp() { return warps_[fiber_->number / kWarp]; }
  unsigned rank() const { return fiber_->number / threads_; }
  size_t shared_bytes() const { return shared_bytes_; }
  uint8_t* dynamic_shared() { return dynamic_shared(rank()); }
  uint8_t* dynamic_shared(unsigned rank) {
    const auto start = reinterpret_cast<uintptr_t>(shared_.data());
    const size_t first = (kSharedAlignment - start % kSharedAlignment) % kSharedAlignment;
    return shared_.data() + first + rank * shared_stride();
  }

  [[noreturn]] static void fail(const char* what) {
    std::fprintf(stderr, "emulator: %s\n", what);
    std::abort();
  }

  void run() {
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

  void wait_for_block() { wait_aligned(blocks_[rank()].all, threads_); }
  void wait_for_cluster() { wait_aligned(cluster_barrier_, threads_ * cluster_); }
  void wait_for_some(int number, unsigned threads) {
    wait_aligned(blocks_[rank()].some[number], threads);
  }
  void wait_for_warp() {
    require_together();
    wait(warp().barrier, kWarp);
  }

  // Before a lane waits for something else than an aligned barrier (PTX ISA, "barrier"): a warp
  // reaches those as one.
  void require_together() {
    if (warp().reached > 0) fail("lanes of a warp reach a barrier apart");
  }

  void end_phase(PhaseBarrier& barrier) {
    barrier.pending = barrier.arrivals;
    barrier.expected = 0;
    barrier.copies.clear();
    ++barrier.phase;
    idle_ = 0;
  }

  // Lets others run, in whose hands it is that the wait comes to an end.
  void pause() {
    if (++idle_ > 2 * fibers_.size()) fail("threads wait at different barriers");
    hand_on();
  }

  const Index grid, block;
  std::map<uintptr_t, PhaseBarrier> phases;  // by address

 private:
  static void enter() {
    Launch& launch = now();
    launch.walk_over_blocks();
    launch.leave();
  }

  void walk_over_blocks() {
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

  void wait_aligned(Barrier& barrier, unsigned expected) {
    Warp& mine = warp();
    if (mine.reached > 0 && mine.aligned != &barrier) require_together();
    mine.aligned = &barrier;
    mine.reached = (mine.reached + 1) % kWarp;
    wait(barrier, expected);
  }

  void wait(Barrier& barrier, unsigned expected) {
    const unsigned generation = barrier.generation;
    if (++barrier.arrived == expected) {
      barrier.arrived = 0;
      ++barrier.generation;
      idle_ = 0;
      return;
    }
    while (barrier.generation == generation) pause();
  }

  void hand_on() {
    if (__builtin_setjmp(fiber_->place) == 0) resume(next());
  }

  Fiber& next() {
    size_t number = fiber_->number;
    do {
      number = number + 1 == fibers_.size() ? 0 : number + 1;
    } while (fibers_[number].done);
    return fibers_[number];
  }

  // A function of its own, for the compiler's longjmp and setjmp must not meet in one.
  [[noreturn, gnu::noinline]] void resume(Fiber& fiber) {
    fiber_ = &fiber;
    if (fiber.started) __builtin_longjmp(fiber.place, 1);
    fiber.started = true;
    setcontext(&fiber.context);
    fail("a fiber does not start");
  }

  [[noreturn, gnu::noinline]] void leave() {
    fiber_->done = true;
    idle_ = 0;
    if (++finished_fibers_ == fibers_.size()) __builtin_longjmp(finished_, 1);
    resume(next());
  }

  size_t shared_stride() const {
    return (shared_bytes_ + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment +
           kSharedAlignment;
  }

  // Where the threads of one block meet.
  struct BlockBarriers {
    Barrier all, some[16];
  };

  static inline thread_local Launch* current_ = nullptr;
  void (*body_)(void*);
  void* state_;
  const unsigned cluster_, threads_;  // blocks of a cluster, threads of a block
  std::vector<Fiber> fibers_;
  const size_t shared_bytes_;
  std::vector<uint8_t> shared_;
  std::vector<Warp> warps_;
  std::vector<BlockBarriers> blocks_;
  Barrier cluster_barrier_;
  Fiber* fiber_ = nullptr;
  size_t idle_ = 0, finished_fibers_ = 0;
  uint8_t* stacks_ = nullptr;
  Place finished_;
};

// What lane `lane` of the warp gave, all lanes giving a value at once.
template <class T>
T exchange(T value, unsigned lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  Launch& launch = Launch::now();
  Fiber& me = launch.fiber();
  uint64_t* slots = launch.warp().slots[me.parity ^= 1];
  std::memcpy(&slots[me.number % kWarp], &value, sizeof(T));
  launch.wait_for_warp();
  T out;
  std::memcpy(&out, &slots[lane % kWarp], sizeof(T));
  return out;
}

}  // namespace veil::emulator
