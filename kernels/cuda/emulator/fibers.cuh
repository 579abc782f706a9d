// The threads of a block as fibers of one host thread: each runs until it waits for others.
//
// A fiber starts on a stack of its own (makecontext) and from then on changes places with the next
// by the compiler's own setjmp and longjmp, a few instructions: swapcontext asks the system, and
// the C library's longjmp looks for handlers to undo. Whoever waits at a barrier hands on in turn,
// so a barrier costs a switch a thread, and a kernel without barriers costs one a block.
//
// What no kernel has an own version of is in fibers.cu, which is compiled once for all of them.
#pragma once
#include <ucontext.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

// Functions of which the processor takes the version that it has vectors for.
#if defined(__x86_64__)
#define VEIL_BY_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define VEIL_BY_PROCESSOR
#endif

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
         void* state);
  ~Launch();
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

  [[noreturn]] static void fail(const char* what);

  void run();

  void wait_for_block();
  void wait_for_cluster();
  void wait_for_some(int number, unsigned threads);
  void wait_for_warp();

  // Before a lane waits for something else than an aligned barrier (PTX ISA, "barrier"): a warp
  // reaches those as one.
  void require_together();

  void end_phase(PhaseBarrier& barrier);

  // Lets others run, in whose hands it is that the wait comes to an end.
  void pause();

  const Index grid, block;
  std::map<uintptr_t, PhaseBarrier> phases;  // by address

 private:
  static void enter();
  void walk_over_blocks();
  void wait_aligned(Barrier& barrier, unsigned expected);
  void wait(Barrier& barrier, unsigned expected);
  void hand_on();
  Fiber& next();
  [[noreturn]] void resume(Fiber& fiber);
  [[noreturn]] void leave();

  size_t shared_stride() const {
    return (shared_bytes_ + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment +
           kSharedAlignment;
  }

  // Where the threads of one block meet.
  struct BlockBarriers {
    Barrier all, some[16];
  };

  // Found without a call: there is little room for such variables, and this is the only one.
  static constinit thread_local Launch* current_ __attribute__((tls_model("initial-exec")));
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

// What lane `lane` of the warp gave, all lanes giving words at once.
uint64_t exchange_words(uint64_t word, unsigned lane);

template <class T>
T exchange(T value, unsigned lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(T));
  word = exchange_words(word, lane);
  std::memcpy(&value, &word, sizeof(T));
  return value;
}

}  // namespace veil::emulator
