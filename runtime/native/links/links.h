// One party's links to all others: rounds of messages, without Python.
//
// Sends never wait for receives: the start of each frame goes out at once, and what the sockets
// don't take yet is sent while frames come in. A round of short messages is one write and one read
// a peer on the calling thread; in large ones each link has a thread. A round may also begin
// before all is there that it sends: its links then work on threads of their own, and what is ready
// is released to them bit by bit.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "runtime/native/links/frames.h"
#include "runtime/native/pool.h"

namespace veil {

// One frame each.
struct Sent {
  uint32_t peer;
  std::vector<Piece> pieces;
};

struct Awaited {
  uint32_t peer;
  std::vector<std::span<uint8_t>> pieces;
};

class Links {
 public:
  // Links work in parallel where a message has `large_bytes`. `interrupted` says whether a signal
  // that came has to end the round.
  Links(std::vector<std::unique_ptr<FramedStream>> links, uint64_t large_bytes,
        bool (*interrupted)());

  // One round; what ended it early, if anything. Throws Interrupted. `patience` is each peer's, and
  // counts from when this party begins to wait for it. At most one frame a peer and direction.
  std::optional<Fault> exchange(std::span<const Sent> sends, std::span<const Awaited> receives,
                                const Patience& patience);
  // The same in three: `begin` and `release` return at once, the latter false if the round has
  // failed. `finish` or `abandon` must follow; patience counts from there on, or from `wait_for`.
  std::optional<Fault> begin(std::span<const Sent> sends, std::span<const Awaited> receives,
                             const Patience& patience);
  bool release(uint32_t due);
  // Until so many bytes of a peer's message have come; false if the round has failed. Throws
  // Interrupted.
  bool wait_for(uint32_t peer, uint64_t bytes);
  std::optional<Fault> finish();
  void abandon();
  // Throws Interrupted if a signal has to end the run; looks every so often.
  void see_to_signals();
  // Ends all links, and says to each peer who was the reason.
  void stop(uint64_t reason);
  void close();

  bool has(uint32_t peer) const { return find(peer) != nullptr; }
  std::span<const std::unique_ptr<FramedStream>> all() const { return links_; }

 private:
  FramedStream* find(uint32_t peer) const;
  size_t put_up(std::span<const Sent> sends, std::span<const Awaited> receives);
  void receive_in_turn(FramedStream& link, const Patience& patience);
  void start(const Patience& patience);
  void work_in_pool(int64_t index);
  void work(FramedStream& link);
  void look_for_signals();
  void tell();
  void rethrow() const;

  std::vector<std::unique_ptr<FramedStream>> links_;
  uint64_t large_bytes_;
  bool (*interrupted_)();
  Pool pool_;  // a thread for each link, and the caller's
  Patience patience_{};
  std::vector<std::exception_ptr> errors_;  // of the links in this round
  std::atomic<bool> failed_{false}, stopped_{false};
  std::atomic<bool> computing_{false};  // the caller's steps still run
  uint64_t looked_ = 0;                 // when signals were last seen to
  std::mutex mutex_;
  std::condition_variable moved_;  // something has come, or a link's part of the round has ended
};

}  // namespace veil
