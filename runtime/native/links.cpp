#include "runtime/native/links.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "runtime/native/clock.h"

namespace veil {
namespace {

constexpr size_t kThreadedBytes = size_t{1} << 20;  // from here on a round's links work in parallel
constexpr int kPollMilliseconds = 100;              // how soon a thread sees another link fail
constexpr uint64_t kSignalNanoseconds = 100'000'000;

}  // namespace

Links::Links(std::vector<std::unique_ptr<FramedStream>> links, bool (*interrupted)())
    : links_(std::move(links)),
      interrupted_(interrupted),
      pool_(static_cast<uint32_t>(std::max<size_t>(1, links_.size()))) {}

FramedStream* Links::find(uint32_t peer) const {
  for (const auto& link : links_) {
    if (link->peer() == peer) return link.get();
  }
  return nullptr;
}

std::optional<Fault> Links::exchange(std::span<const Sent> sends, std::span<const Awaited> receives,
                                     double patience) {
  failed_.store(false, std::memory_order_relaxed);
  try {
    size_t longest_bytes = 0;
    for (const Awaited& message : receives) {
      find(message.peer)->expect_frame(message.payload);
      longest_bytes = std::max(longest_bytes, message.payload.size());
    }
    for (const Sent& message : sends) find(message.peer)->send_frame(message.payload);
    move_all(longest_bytes, patience);
  } catch (const Fault& fault) {
    return fault;
  }
  return std::nullopt;
}

// Works on all links until the round is complete.
void Links::move_all(size_t longest_bytes, double patience) {
  const bool sent =
      std::none_of(links_.begin(), links_.end(), [](const auto& link) { return link->sending(); });
  if (sent && longest_bytes < kThreadedBytes) {
    for (const auto& link : links_) receive_in_turn(*link, patience);
    return;
  }
  struct Round {
    Links& links;
    double patience;
    std::vector<std::exception_ptr> errors;
    std::atomic<bool> interrupted{false};
  } round{*this, patience, std::vector<std::exception_ptr>(links_.size())};
  pool_.run(
      static_cast<int64_t>(links_.size()),
      [](void* state, int64_t index, uint32_t) {
        Round& shared = *static_cast<Round*>(state);
        try {
          shared.links.work(*shared.links.links_[index], shared.patience);
        } catch (const Interrupted&) {
          shared.links.failed_.store(true, std::memory_order_relaxed);
          shared.interrupted = true;
        } catch (...) {
          shared.links.failed_.store(true, std::memory_order_relaxed);
          shared.errors[index] = std::current_exception();
        }
      },
      &round,
      [](void* state) {  // signals are the calling thread's to see, whichever link is silent
        Round& shared = *static_cast<Round*>(state);
        if (shared.interrupted || !shared.links.interrupted_()) return;
        shared.interrupted = true;
        shared.links.failed_.store(true, std::memory_order_relaxed);
      });
  // A signal comes first: Python's exception is set already.
  if (round.interrupted) throw Interrupted{};
  for (const std::exception_ptr& error : round.errors) {
    if (error) std::rethrow_exception(error);
  }
}

void Links::receive_in_turn(FramedStream& link, double patience) {
  while (link.receiving()) {
    try {
      link.receive_within(patience);
    } catch (const Interrupted&) {
      if (interrupted_()) throw;
    }
  }
}

// Sends and receives on one link until its part of the round is complete.
void Links::work(FramedStream& link, double patience) {
  const auto most = static_cast<uint64_t>(patience * 1e9);
  uint64_t last = nanoseconds(), looked = last;
  while ((link.sending() || link.receiving()) && !failed_.load(std::memory_order_relaxed)) {
    const bool received = link.receive_some(), sent = link.send_some();
    if (received || sent) {
      last = nanoseconds();
    } else {
      const bool ready = link.wait(kPollMilliseconds);
      const uint64_t now = nanoseconds();
      if (now - last > most) throw link.silent();
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
