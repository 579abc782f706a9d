// The frames on the connection to one peer.
//
// A message is one frame: its number on the link (64 bits, counted from 0 in each direction) and
// its length in bytes (64 bits), little endian, then the payload. Peers, lengths and order are the
// plan's, so a frame's head is only compared with what is due. A head with the number 2^64 - 1 says
// that the peer stopped, and its length is the index of the party that was the reason. The head and
// the start of the payload fill one TLS record; runtime/links/frames.py has the same in Python.
//
// A payload is one or more pieces of memory, in the order of the wire. Those that are sent may be
// still under way when their frame is put up: each goes once it is released.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/native/links/patience.h"
#include "runtime/native/links/stream.h"

namespace veil {

// Why a round came to no end.
struct Fault {
  enum class Kind : uint8_t { kSilent, kLate, kClosed, kBroken, kChanged, kStopped, kUnexpected };
  Kind kind;
  uint32_t peer;    // on whose link it showed
  uint64_t blamed;  // the party that was the reason
  std::string reason;
  uint64_t number = 0, bytes = 0;          // of the frame that came
  uint64_t due_number = 0, due_bytes = 0;  // of the one that is due
};

// A signal has come that Python has to see to.
struct Interrupted {};

// Bytes to send, once `release` has been called with `due` or more.
struct Piece {
  std::span<const uint8_t> bytes;
  uint32_t due = 0;
};

class FramedStream {
 public:
  FramedStream(uint32_t peer, uint32_t parties, std::shared_ptr<Stream> stream);

  // What is under way; all of these are for one thread at a time, and throw Fault or Interrupted.
  bool sending() const { return head_due_ || !staged_.empty() || !unsent_.empty(); }
  bool receiving() const { return receiving_; }
  // Before a round's frames are put up and awaited.
  void begin_round() { frame_bytes_ = due_bytes_ = 0; }
  // Puts a frame up, and sends of it what the socket takes at once, at most about a megabyte. The
  // pieces stay the caller's, until they are sent. Nothing is released but what is due at 0.
  void send_frame(std::span<const Piece> pieces);
  // Awaits the next frame, of exactly these pieces' length, which is returned; the list stays the
  // caller's too.
  uint64_t expect_frame(std::span<const std::span<uint8_t>> pieces);
  // From any thread: what is due at `due` may go.
  void release(uint32_t due);
  // From any thread: bytes of the awaited payload that have come, in the order of the wire.
  uint64_t arrived() const { return arrived_.load(std::memory_order_acquire); }
  // Move at most about a chunk; false if there was nothing to do or the socket was not ready.
  bool send_some();
  bool receive_some();
  // Receives the whole frame. The peer may be silent for so many seconds, and must be done by the
  // deadline, to a sixteenth of those seconds.
  void receive_by(uint64_t deadline, double seconds);
  // Until there may be something to do; false if the time ran out first.
  bool wait(int milliseconds) {
    return stream_->wait(receiving_, !next_to_send().empty(), milliseconds, &wake_up_);
  }
  Fault silent();
  Fault late();
  // Nanoseconds that this link's part of the round may take.
  uint64_t allowed(const Patience& patience) const {
    return patience.allowed(std::max(frame_bytes_, due_bytes_));
  }

  // Ends the link; a peer that is not in the middle of a frame is told who was the reason.
  void stop(uint64_t reason);
  void close() { stream_->close(); }

  uint32_t peer() const { return peer_; }
  Stream& stream() { return *stream_; }
  uint64_t sent_bytes = 0, received_bytes = 0;  // payload; to be read and reset by the owner

 private:
  static constexpr size_t kHead = 16;
  bool released(const Piece& piece) const;
  void stage();
  std::span<const uint8_t> next_to_send();
  void note_sent(size_t bytes);
  size_t receive_piece(Stream::Wait wait);
  void next_missing();
  void check_head();
  [[noreturn]] void fail(Stream::Status status);

  uint32_t peer_, parties_;
  std::shared_ptr<Stream> stream_;
  uint64_t sent_frames_ = 0, received_frames_ = 0;
  std::unique_ptr<uint8_t[]> record_;  // the first record of the frame that is sent
  uint64_t frame_bytes_ = 0;           // of the payload that is sent in this round
  bool head_due_ = false;              // the first record is still to be filled
  std::span<const uint8_t> staged_;    // what is unsent of it
  std::span<const Piece> unsent_;      // from the piece that is under way on
  size_t begun_ = 0;                   // bytes of that one that are sent, or in the first record
  std::atomic<uint32_t> released_{0};
  WakeUp wake_up_;
  std::array<uint8_t, kHead> head_{};
  size_t head_bytes_ = 0;   // of the head that is awaited, those that have come
  uint64_t due_bytes_ = 0;  // of the payload that is awaited in this round
  std::atomic<uint64_t> arrived_{0};
  std::span<const std::span<uint8_t>> awaited_;  // the pieces after the one that is under way
  std::span<uint8_t> missing_;                   // of that one
  bool receiving_ = false, failed_ = false;
  bool hurried_ = false;  // the deadline is nearer than the peer's silence may last
};

}  // namespace veil
