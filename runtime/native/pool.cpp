#include "runtime/native/pool.h"

#include <chrono>

namespace veil {
namespace {

constexpr std::chrono::milliseconds kTick{100};

}  // namespace

Pool::Pool(uint32_t threads) {
  for (uint32_t t = 1; t < threads; ++t) workers_.emplace_back([this, t] { work(t); });
}

Pool::~Pool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Pool::run(int64_t count, Body body, void* state, Tick tick) {
  start(count, body, state);
  take_all(0);
  finish(state, tick);
}

void Pool::start(int64_t count, Body body, void* state) {
  {
    const std::lock_guard lock(mutex_);
    count_ = count;
    body_ = body;
    state_ = state;
    next_.store(0, std::memory_order_relaxed);
    running_ = static_cast<uint32_t>(workers_.size());
    ++loop_;
  }
  start_.notify_all();
}

void Pool::finish(void* state, Tick tick) {
  std::unique_lock lock(mutex_);
  while (!done_.wait_for(lock, kTick, [this] { return running_ == 0; })) {
    if (tick == nullptr) continue;
    lock.unlock();
    tick(state);
    lock.lock();
  }
}

void Pool::take_all(uint32_t thread) {
  for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) {
    body_(state_, i, thread);
  }
}

void Pool::work(uint32_t thread) {
  for (uint64_t seen = 0;;) {
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stop_ || loop_ != seen; });
      if (stop_) return;
      seen = loop_;
    }
    take_all(thread);
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) done_.notify_one();
  }
}

}  // namespace veil
