#include "runtime/native/links/shaping.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "runtime/native/clock.h"

namespace veil {
namespace {

constexpr size_t kPiece = size_t{1} << 14;    // about a TLS record; sent at one time
constexpr size_t kBuffers = size_t{1} << 18;  // of the sender, besides what is on its way
constexpr uint64_t kNever = ~uint64_t{0};

// Bytes that leave at a time, and how many of them have.
struct Piece {
  uint64_t due;
  std::vector<uint8_t> content;
  size_t sent = 0;

  std::span<const uint8_t> rest() const { return std::span(content).subspan(sent); }
};

// One direction: what came from one socket and goes to another.
class Direction {
 public:
  Direction(int from, int to, uint64_t delay, double bytes_per_nanosecond)
      : from_(from), to_(to), delay_(delay), rate_(bytes_per_nanosecond) {
    most_bytes_ = kBuffers + static_cast<size_t>(static_cast<double>(delay) * rate_);
  }

  bool over() const { return over_; }
  bool wants_input() const { return !ended_ && queued_bytes_ < most_bytes_; }
  bool wants_output() const { return !pieces_.empty() && stuck_; }
  // When the next piece is due; kNever if there is none, or it waits for room.
  uint64_t due() const { return pieces_.empty() || stuck_ ? kNever : pieces_.front().due; }

  void take() {
    std::vector<uint8_t> content(kPiece);
    const ssize_t count = recv(from_, content.data(), content.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
      ended_ = true;
      return;
    }
    content.resize(static_cast<size_t>(count));
    free_ =
        std::max(free_, nanoseconds()) + static_cast<uint64_t>(static_cast<double>(count) / rate_);
    queued_bytes_ += content.size();
    pieces_.push_back({free_ + delay_, std::move(content)});
  }

  void give() {
    stuck_ = false;
    while (!pieces_.empty() && !stuck_ && pieces_.front().due <= nanoseconds()) give_piece();
    if (ended_ && pieces_.empty() && !over_) end();
  }

 private:
  void give_piece() {
    Piece& piece = pieces_.front();
    const auto rest = piece.rest();
    const ssize_t count = send(to_, rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0) {
      if (errno == EAGAIN || errno == EINTR) {
        stuck_ = true;
        return;
      }
      ended_ = true;
      pieces_.clear();
      return;
    }
    piece.sent += static_cast<size_t>(count);
    queued_bytes_ -= static_cast<size_t>(count);
    if (piece.rest().empty()) pieces_.pop_front();
  }

  void end() {
    shutdown(to_, SHUT_WR);
    over_ = true;
  }

  int from_, to_;
  uint64_t delay_;
  double rate_;
  size_t most_bytes_, queued_bytes_ = 0;
  uint64_t free_ = 0;  // when the line has sent all so far
  std::deque<Piece> pieces_;
  bool ended_ = false, stuck_ = false, over_ = false;
};

void wait_for(int near, int far, const Direction& out, const Direction& back) {
  const auto events = [](bool input, bool output) {
    return static_cast<short>((input ? POLLIN : 0) | (output ? POLLOUT : 0));
  };
  const short at_near = events(out.wants_input(), back.wants_output());
  const short at_far = events(back.wants_input(), out.wants_output());
  // A socket that nothing is wanted of is left out: its end would be told again and again.
  pollfd both[] = {{at_near == 0 ? -1 : near, at_near, 0}, {at_far == 0 ? -1 : far, at_far, 0}};
  const uint64_t due = std::min(out.due(), back.due()), now = nanoseconds();
  const uint64_t left = due > now ? due - now : 0;
  const timespec limit{static_cast<time_t>(left / 1'000'000'000),
                       static_cast<long>(left % 1'000'000'000)};
  ppoll(both, 2, due == kNever ? nullptr : &limit, nullptr);
}

}  // namespace

void forward(int near, int far, double delay_seconds, double bytes_per_second) {
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);  // else sleeps end 50 us late
  constexpr double kAtOnce = 1e3;
  Direction out(near, far, static_cast<uint64_t>(delay_seconds * 1e9), bytes_per_second / 1e9);
  Direction back(far, near, 0, kAtOnce);
  for (;;) {
    if (out.wants_input()) out.take();
    if (back.wants_input()) back.take();
    out.give();
    back.give();
    if (out.over() && back.over()) break;
    wait_for(near, far, out, back);
  }
  close(near);
  close(far);
}

}  // namespace veil
