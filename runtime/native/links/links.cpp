#include "runtime/native/links/links.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "runtime/native/clock.h"

namespace veil {
namespace {

constexpr int kPollMilliseconds = 100;  // how soon a thread sees another link fail
constexpr uint64_t kSignalNanoseconds = 100'000'000;

}  // namespace

Links::Links(std::vector<std::unique_ptr<FramedStream>> links, uint64_t large_bytes,
             bool (*interrupted)())
    : links_(std::move(links)),
      large_bytes_(large_bytes),
      interrupted_(interrupted),
      pool_(static_cast<uint32_t>(links_.size() + 1)),
      errors_(links_.size()) {}

FramedStream* Links::find(uint32_t peer) const {
  for (const auto& link : links_) {
    if (link->peer() == peer) return link.get();
  }
  return nullptr;
}

std::optional<Fault> Links::exchange(std::span<const Sent> sends, std::span<const Awaited> receives,
                                     const Patience& patience) {
  try {
    const size_t longest_bytes = put_up(sends, receives);
    const bool sent = std::none_of(links_.begin(), links_.end(),
                                   [](const auto& link) { return link->sending(); });
    if (sent && longest_bytes < large_bytes_) {
      for (const auto& link : links_) receive_in_turn(*link, patience);
      return std::nullopt;
    }
  } catch (const Fault& fault) {
    return fault;
  }
  start(patience);
  return finish();
}

// The longest frame's bytes that are awaited.
size_t Links::put_up(std::span<const Sent> sends, std::span<const Awaited> receives) {
  size_t longest_bytes = 0;
  for (const auto& link : links_) link->begin_round();
  for (const Awaited& message : receives) {
    const uint64_t bytes = find(message.peer)->expect_frame(message.pieces);
    longest_bytes = std::max<size_t>(longest_bytes, bytes);
  }
  for (const Sent& message : sends) find(message.peer)->send_frame(message.pieces);
  return longest_bytes;
}

std::optional<Fault> Links::begin(std::span<const Sent> sends, std::span<const Awaited> receives,
                                  const Patience& patience) {
  try {
    put_up(sends, receives);
  } catch (const Fault& fault) {
    return fault;
  }
  start(patience);
  return std::nullopt;
}

bool Links::release(uint32_t due) {
  for (const auto& link : links_) link->release(due);
  return !failed_.load(std::memory_order_relaxed);
}

bool Links::wait_for(uint32_t peer, uint64_t bytes) {
  const FramedStream& link = *find(peer);
  const auto over = [&] { return link.arrived() >= bytes || failed_.load(); };
  computing_ = false;
  std::unique_lock lock(mutex_);
  while (!moved_.wait_for(lock, std::chrono::milliseconds(kPollMilliseconds), over)) {
    lock.unlock();
    if (interrupted_()) {
      failed_ = stopped_ = true;
      throw Interrupted{};
    }
    lock.lock();
  }
  return !failed_;
}

// Wakes whoever waits for bytes.
void Links::tell() {
  {
    const std::scoped_lock lock(mutex_);
  }
  moved_.notify_one();
}

std::optional<Fault> Links::finish() {
  computing_ = false;
  pool_.finish(this, [](void* self) { static_cast<Links*>(self)->look_for_signals(); });
  try {
    rethrow();
  } catch (const Fault& fault) {
    return fault;
  }
  return std::nullopt;
}

void Links::abandon() {
  failed_ = true;
  computing_ = false;
  pool_.finish(this);
}

// Each link works on a thread of its own from here on, until `finish` or `abandon`.
void Links::start(const Patience& patience) {
  patience_ = patience;
  failed_ = stopped_ = false;
  std::fill(errors_.begin(), errors_.end(), nullptr);
  computing_ = true;
  pool_.start(
      static_cast<int64_t>(links_.size()),
      [](void* self, int64_t index, uint32_t) { static_cast<Links*>(self)->work_in_pool(index); },
      this);
}

void Links::work_in_pool(int64_t index) {
  try {
    work(*links_[index]);
  } catch (const Interrupted&) {
    failed_ = stopped_ = true;
  } catch (...) {
    failed_ = true;
    errors_[index] = std::current_exception();
  }
  tell();
}

// Signals are the calling thread's to see, whichever link is silent.
void Links::look_for_signals() {
  if (!stopped_ && interrupted_()) failed_ = stopped_ = true;
}

// A signal comes first: Python's exception is set already.
void Links::rethrow() const {
  if (stopped_) throw Interrupted{};
  for (const std::exception_ptr& error : errors_) {
    if (error) std::rethrow_exception(error);
  }
}

void Links::receive_in_turn(FramedStream& link, const Patience& patience) {
  if (!link.receiving()) return;
  const uint64_t deadline = nanoseconds() + link.allowed(patience);
  while (link.receiving()) {
    try {
      link.receive_by(deadline, patience.seconds);
    } catch (const Interrupted&) {
      if (interrupted_()) throw;
    }
  }
}

// Sends and receives on one link until its part of the round is complete.
void Links::work(FramedStream& link) {
  const auto most = static_cast<uint64_t>(patience_.seconds * 1e9);
  const uint64_t allowed = link.allowed(patience_);
  uint64_t last = nanoseconds(), began = last, looked = last;
  while ((link.sending() || link.receiving()) && !failed_.load(std::memory_order_relaxed)) {
    const bool received = link.receive_some(), sent = link.send_some();
    if (received) tell();
    if (received || sent) {
      last = nanoseconds();
    } else {
      const bool ready = link.wait(kPollMilliseconds);
      const uint64_t now = nanoseconds();
      if (computing_.load(std::memory_order_relaxed)) last = began = now;
      if (now - last > most) throw link.silent();
      if (now - began > allowed) throw link.late();
      if (!ready || now - looked > kSignalNanoseconds) {
        looked = now;
        if (interrupted_()) throw Interrupted{};
      }
    }
  }
}

void Links::see_to_signals() {
  const uint64_t now = nanoseconds();
  if (now - looked_ < kSignalNanoseconds) return;
  looked_ = now;
  if (interrupted_()) throw Interrupted{};
}

void Links::stop(uint64_t reason) {
  for (const auto& link : links_) link->stop(reason);
}

void Links::close() {
  for (const auto& link : links_) link->close();
}

}  // namespace veil
