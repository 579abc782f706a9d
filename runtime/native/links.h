// One party's links to all others: rounds of messages, without Python.
//
// Sends never wait for receives: the start of each frame goes out at once, and what the sockets
// don't take yet is sent while frames come in. A round of short messages is one write and one read
// a peer on the calling thread; in longer ones each link has a thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/native/frames.h"
#include "runtime/native/pool.h"

namespace veil {

struct Sent {
  uint32_t peer;
  std::span<const uint8_t> payload;
};

struct Awaited {
  uint32_t peer;
  std::span<uint8_t> payload;
};

class Links {
 public:
  // `interrupted` says whether a signal that came has to end the round.
  Links(std::vector<std::unique_ptr<FramedStream>> links, bool (*interrupted)());

  // One round; what ended it early, if anything. Throws Interrupted. `patience` is how many seconds
  // a peer may be silent. At most one frame a peer and direction.
  std::optional<Fault> exchange(std::span<const Sent> sends, std::span<const Awaited> receives,
                                double patience);
  // Throws Interrupted if a signal has to end the run; looks every so often.
  void see_to_signals();
  // Ends all links, and says to each peer who was the reason.
  void stop(uint64_t reason);
  void close();

  bool has(uint32_t peer) const { return find(peer) != nullptr; }
  std::span<const std::unique_ptr<FramedStream>> all() const { return links_; }

 private:
  FramedStream* find(uint32_t peer) const;
  void move_all(size_t longest_bytes, double patience);
  void receive_in_turn(FramedStream& link, double patience);
  void work(FramedStream& link, double patience);

  std::vector<std::unique_ptr<FramedStream>> links_;
  bool (*interrupted_)();
  Pool pool_;
  std::atomic<bool> failed_{false};
  uint64_t looked_ = 0;  // when signals were last seen to
};

}  // namespace veil
