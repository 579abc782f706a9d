// Threads that share out the iterations of one loop at a time.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace veil {

class Pool {
 public:
  using Body = void (*)(void* state, int64_t index, uint32_t thread);
  using Tick = void (*)(void* state);

  // `threads` counts the one that calls run, so one less is started; none for 1.
  explicit Pool(uint32_t threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Calls body(state, i, thread) for i in [0, count) and returns when all are done. From one
  // thread, which calls tick(state) ten times a second while it waits for the others.
  void run(int64_t count, Body body, void* state, Tick tick = nullptr);

  // The same on the other threads alone: `start` returns at once, `finish` when all are done.
  void start(int64_t count, Body body, void* state);
  void finish(void* state, Tick tick = nullptr);

 private:
  void work(uint32_t thread);
  void take_all(uint32_t thread);

  std::mutex mutex_;
  std::condition_variable start_, done_;
  uint64_t loop_ = 0;     // number of the current loop; guarded by mutex_, as are the next two
  uint32_t running_ = 0;  // workers that have not finished it
  bool stop_ = false;
  int64_t count_ = 0;
  Body body_ = nullptr;
  void* state_ = nullptr;
  std::atomic<int64_t> next_{0};
  std::vector<std::thread> workers_;
};

}  // namespace veil
