// A connected socket, with TLS 1.3 on it or without, read and written by one thread at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "runtime/native/bell.h"
#include "runtime/native/openssl.h"

namespace veil {

// TLS that did not come about: `what()` is OpenSSL's reason.
class TlsError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What this side shows and proves: PEM files.
struct Identity {
  std::string certificate, key;
};

struct StreamTimes {
  uint64_t waiting = 0;     // nanoseconds in which nothing could be read or written
  uint64_t sending = 0;     // in the system, taking bytes
  uint64_t encryption = 0;  // in TLS itself, both directions
};

class Stream {
 public:
  enum class Status {
    kMoved,    // at least a byte
    kNotNow,   // the socket has nothing, or takes nothing
    kClosed,   // the other side's end
    kBroken,   // by the system: `reason`
    kChanged,  // TLS found bytes that are not those sent: `reason`
    kSilent,   // nothing came in time
    kInterrupted,
  };
  struct Moved {
    Status status;
    size_t bytes;
  };
  // How long `read` may wait: not at all, or as long as `set_patience` says.
  enum class Wait { kNo, kYes };

  // Without TLS. Owns the socket from here on, as does `secured`.
  explicit Stream(int socket);

  // TLS 1.3 with AES-128-GCM, in which the one certificate `pinned` (DER) is all that is trusted.
  // Throws TlsError if one side can't prove who it is, std::system_error for a broken or silent
  // connection; `seconds` is for all of it, and then for each read. A fresh key encrypts after
  // `records_per_key` records.
  static std::unique_ptr<Stream> secured(std::shared_ptr<const OpenSsl> openssl, int socket,
                                         std::span<const uint8_t> pinned, const Identity& identity,
                                         bool dialed, double seconds, uint64_t records_per_key);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Moved read(uint8_t* data, size_t bytes, Wait wait);
  Moved write(const uint8_t* data, size_t bytes);

  // Seconds that a waiting `read` may take.
  void set_patience(double seconds);
  // Waits for bytes to read, room to write, or a bell; false if there was none in time.
  bool wait(bool to_read, bool to_write, int milliseconds, Bell* bell = nullptr);
  void close();
  // Between frames: a fresh key if this one has encrypted enough. OpenSSL reads nothing while its
  // own update is unsent, so never in the middle of a frame, when both sides may be full.
  void renew_key_if_due();

  const std::string& reason() const { return reason_; }
  // Of TLS; empty without it.
  std::string protocol() const;
  std::string cipher() const;
  const StreamTimes& times() const { return times_; }
  void reset_times() { times_ = {}; }

 private:
  void open(std::span<const uint8_t> pinned, const Identity& identity, bool dialed);
  void trust(std::span<const uint8_t> pinned);
  void shake_hands(double seconds);
  void check_peer(std::span<const uint8_t> pinned) const;
  void enter();
  Moved failed(int result);
  Moved receive(uint8_t* data, size_t bytes);
  Moved send(const uint8_t* data, size_t bytes);
  Moved from_system(ssize_t count);

  static int bio_read(openssl::Bio* bio, char* data, int bytes);
  static int bio_write(openssl::Bio* bio, const char* data, int bytes);
  static long bio_control(openssl::Bio* bio, int command, long number, void* pointer);

  std::shared_ptr<const OpenSsl> openssl_;
  openssl::BioMethod* method_ = nullptr;
  openssl::Context* context_ = nullptr;
  openssl::Connection* tls_ = nullptr;
  int socket_;
  double patience_ = -1;
  Wait wait_ = Wait::kNo;
  Moved system_{Status::kNotNow, 0};  // the latest call's
  uint64_t entered_ = 0;              // when this thread went into OpenSSL
  uint64_t records_ = 0, records_per_key_ = 0;
  std::string reason_;
  int system_error_ = 0;
  StreamTimes times_;
};

}  // namespace veil
