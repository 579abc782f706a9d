#include "runtime/native/links/frames.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/native/clock.h"

namespace veil {
namespace {

static_assert(std::endian::native == std::endian::little, "heads are little endian");

constexpr uint64_t kStopped = ~uint64_t{0};
constexpr size_t kRecord = size_t{1} << 14;  // the most that one TLS record holds
constexpr size_t kChunk = size_t{1} << 17;   // moved in one direction before a look at the other
constexpr size_t kEager = size_t{1} << 20;   // sent before a look at other links

void write_head(uint8_t* to, uint64_t number, uint64_t bytes) {
  std::memcpy(to, &number, sizeof(number));
  std::memcpy(to + sizeof(number), &bytes, sizeof(bytes));
}

}  // namespace

FramedStream::FramedStream(uint32_t peer, uint32_t parties, std::shared_ptr<Stream> stream)
    : peer_(peer),
      parties_(parties),
      stream_(std::move(stream)),
      record_(std::make_unique<uint8_t[]>(kRecord)) {}

void FramedStream::send_frame(std::span<const Piece> pieces) {
  stream_->renew_key_if_due();
  released_.store(0, std::memory_order_relaxed);
  unsent_ = pieces;
  begun_ = 0;
  frame_bytes_ = 0;
  for (const Piece& piece : pieces) frame_bytes_ += piece.bytes.size();
  head_due_ = true;
  sent_bytes += frame_bytes_;
  for (size_t moved = 0; moved < kEager && send_some();) moved += kChunk;
}

void FramedStream::release(uint32_t due) {
  released_.store(due, std::memory_order_release);
  wake_up_.ring();
}

bool FramedStream::released(const Piece& piece) const {
  return piece.due <= released_.load(std::memory_order_acquire);
}

// Fills the first record with the head and what is there of the payload.
void FramedStream::stage() {
  write_head(record_.get(), sent_frames_++, frame_bytes_);
  size_t filled = kHead;
  while (filled < kRecord && !unsent_.empty() && released(unsent_.front())) {
    const std::span<const uint8_t> rest = unsent_.front().bytes.subspan(begun_);
    const size_t count = std::min(rest.size(), kRecord - filled);
    if (count > 0) std::memcpy(record_.get() + filled, rest.data(), count);
    filled += count;
    begun_ += count;
    if (begun_ < unsent_.front().bytes.size()) break;
    unsent_ = unsent_.subspan(1);
    begun_ = 0;
  }
  staged_ = {record_.get(), filled};
  head_due_ = false;
}

// What may be sent now, without the pieces that follow; empty if nothing may.
std::span<const uint8_t> FramedStream::next_to_send() {
  if (!staged_.empty()) return staged_;
  while (!unsent_.empty() && unsent_.front().bytes.empty()) unsent_ = unsent_.subspan(1);
  const bool nothing = unsent_.empty();
  if (!nothing && !released(unsent_.front())) return {};
  if (head_due_) {
    stage();
    return staged_;
  }
  return nothing ? std::span<const uint8_t>{} : unsent_.front().bytes.subspan(begun_);
}

void FramedStream::note_sent(size_t bytes) {
  if (!staged_.empty()) {
    staged_ = staged_.subspan(bytes);
    return;
  }
  begun_ += bytes;
  if (begun_ < unsent_.front().bytes.size()) return;
  unsent_ = unsent_.subspan(1);
  begun_ = 0;
}

uint64_t FramedStream::expect_frame(std::span<const std::span<uint8_t>> pieces) {
  head_bytes_ = 0;
  due_bytes_ = 0;
  arrived_.store(0, std::memory_order_relaxed);
  for (const std::span<uint8_t>& piece : pieces) due_bytes_ += piece.size();
  awaited_ = pieces;
  missing_ = {};
  next_missing();
  receiving_ = true;
  received_bytes += due_bytes_;
  return due_bytes_;
}

// On to the next piece that is missing anything.
void FramedStream::next_missing() {
  while (missing_.empty() && !awaited_.empty()) {
    missing_ = awaited_.front();
    awaited_ = awaited_.subspan(1);
  }
}

bool FramedStream::send_some() {
  size_t moved = 0;
  while (moved < kChunk) {
    const std::span<const uint8_t> piece = next_to_send();
    if (piece.empty()) break;
    const Stream::Moved sent = stream_->write(piece.data(), std::min(piece.size(), kChunk));
    if (sent.status == Stream::Status::kNotNow) break;
    if (sent.status != Stream::Status::kMoved) fail(sent.status);
    note_sent(sent.bytes);
    moved += sent.bytes;
  }
  return moved > 0;
}

bool FramedStream::receive_some() {
  size_t moved = 0;
  while (receiving_ && moved < kChunk) {
    const size_t count = receive_piece(Stream::Wait::kNo);
    if (count == 0) break;
    moved += count;
  }
  return moved > 0;
}

void FramedStream::receive_by(uint64_t deadline, double seconds) {
  while (receiving_) {
    const uint64_t now = nanoseconds();
    if (now >= deadline) throw late();
    const double left = static_cast<double>(deadline - now) / 1e9;
    // To change the socket's patience is a call of the system: not in a round of short messages.
    hurried_ = left < seconds * 15 / 16;
    stream_->set_patience(hurried_ ? left : seconds);
    receive_piece(Stream::Wait::kYes);
  }
}

// Reads once, to the head or to the payload; 0 if nothing is there.
size_t FramedStream::receive_piece(Stream::Wait wait) {
  const bool in_head = head_bytes_ < kHead;
  uint8_t* to = in_head ? head_.data() + head_bytes_ : missing_.data();
  const size_t room = in_head ? kHead - head_bytes_ : missing_.size();
  const Stream::Moved got = stream_->read(to, room, wait);
  if (got.status == Stream::Status::kNotNow) return 0;
  if (got.status != Stream::Status::kMoved) fail(got.status);
  if (in_head) {
    head_bytes_ += got.bytes;
    if (head_bytes_ == kHead) check_head();
  } else {
    arrived_.fetch_add(got.bytes, std::memory_order_release);
    missing_ = missing_.subspan(got.bytes);
    next_missing();
  }
  receiving_ = head_bytes_ < kHead || !missing_.empty();
  return got.bytes;
}

void FramedStream::check_head() {
  uint64_t number = 0, bytes = 0;
  std::memcpy(&number, head_.data(), sizeof(number));
  std::memcpy(&bytes, head_.data() + sizeof(number), sizeof(bytes));
  const uint64_t due = received_frames_;
  if (number == due && bytes == due_bytes_) {
    ++received_frames_;
    return;
  }
  if (number == kStopped) {
    const uint64_t blamed = bytes < parties_ ? bytes : peer_;
    failed_ = blamed == peer_;
    throw Fault{Fault::Kind::kStopped, peer_, blamed, "", 0, 0, 0, 0};
  }
  failed_ = true;
  throw Fault{Fault::Kind::kUnexpected, peer_, peer_, "", number, bytes, due, due_bytes_};
}

Fault FramedStream::silent() {
  failed_ = true;
  return {Fault::Kind::kSilent, peer_, peer_, "", 0, 0, 0, 0};
}

Fault FramedStream::late() {
  failed_ = true;
  return {Fault::Kind::kLate, peer_, peer_, "", 0, 0, 0, 0};
}

void FramedStream::fail(Stream::Status status) {
  if (status == Stream::Status::kInterrupted) throw Interrupted{};
  if (status == Stream::Status::kSilent) throw hurried_ ? late() : silent();
  failed_ = true;
  const auto kind = status == Stream::Status::kClosed    ? Fault::Kind::kClosed
                    : status == Stream::Status::kChanged ? Fault::Kind::kChanged
                                                         : Fault::Kind::kBroken;
  throw Fault{kind, peer_, peer_, stream_->reason(), 0, 0, 0, 0};
}

void FramedStream::stop(uint64_t reason) {
  if ((head_due_ || !sending()) && !failed_) {  // no frame, or nothing of it has gone
    write_head(record_.get(), kStopped, reason);
    stream_->write(record_.get(), kHead);  // what can't be said is no matter: the peer sees the end
  }
  close();
}

}  // namespace veil
