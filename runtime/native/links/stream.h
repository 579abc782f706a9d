// A connected socket, with TLS 1.3 on it or without, read and written by one thread at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/native/links/openssl.h"
#include "runtime/native/links/wake_up.h"

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

// TLS 1.3 with AES-128-GCM, in which the one certificate `pinned` (DER) is all that is trusted.
// What all connections with one peer share: to read a key takes ten times as long as to begin with
// it.
class TlsTerms {
 public:
  // Throws TlsError.
  TlsTerms(std::shared_ptr<const OpenSsl> openssl, std::span<const uint8_t> pinned,
           const Identity& identity, bool dialed);
  ~TlsTerms();
  TlsTerms(const TlsTerms&) = delete;
  TlsTerms& operator=(const TlsTerms&) = delete;

 private:
  friend class Stream;
  void set_up(const Identity& identity);
  void trust();

  std::shared_ptr<const OpenSsl> openssl_;
  std::vector<uint8_t> pinned_;
  bool dialed_;
  openssl::BioMethod* method_ = nullptr;
  openssl::Context* context_ = nullptr;
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

  // With TLS: `shake_hands` comes first. Each read may take `seconds`, and a fresh key encrypts
  // after `records_per_key` records. Throws TlsError.
  static std::unique_ptr<Stream> secured(std::shared_ptr<const TlsTerms> terms, int socket,
                                         double seconds, uint64_t records_per_key);
  // What the socket must be ready for before `shake_hands` can go on.
  enum class Awaits : uint8_t { kNothing, kReading, kWriting };
  // Goes on with the handshake without waiting, until it is done. Throws TlsError if one side can't
  // prove who it is, std::system_error for a broken connection, or for more bytes than a handshake
  // has.
  Awaits shake_hands();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Moved read(uint8_t* data, size_t bytes, Wait wait);
  Moved write(const uint8_t* data, size_t bytes);

  // Seconds that a waiting `read` may take.
  void set_patience(double seconds);
  // Waits for bytes to read, room to write, or a wake_up; false if there was none in time.
  bool wait(bool to_read, bool to_write, int milliseconds, WakeUp* wake_up = nullptr);
  void close();
  // Between frames: a fresh key if this one has encrypted enough. OpenSSL reads nothing while its
  // own update is unsent, so never in the middle of a frame, when both sides may be full.
  void renew_key_if_due();

  // To wait for bytes with others; -1 once it is closed.
  int descriptor() const { return socket_; }
  const std::string& reason() const { return reason_; }
  // Of TLS; empty without it.
  std::string protocol() const;
  std::string cipher() const;
  const StreamTimes& times() const { return times_; }
  void reset_times() { times_ = {}; }

 private:
  void open();
  void check_peer() const;
  void enter();
  Moved failed(int result);
  Moved receive(uint8_t* data, size_t bytes);
  Moved send(const uint8_t* data, size_t bytes);
  Moved from_system(ssize_t count);

  friend class TlsTerms;
  static int bio_read(openssl::Bio* bio, char* data, int bytes);
  static int bio_write(openssl::Bio* bio, const char* data, int bytes);
  static long bio_control(openssl::Bio* bio, int command, long number, void* pointer);

  std::shared_ptr<const OpenSsl> openssl_;
  std::shared_ptr<const TlsTerms> terms_;
  openssl::Connection* tls_ = nullptr;
  int socket_;
  double patience_ = -1;
  Wait wait_ = Wait::kNo;
  Moved system_{Status::kNotNow, 0};  // the latest call's
  bool shaking_ = false;              // TLS's handshake is not over
  size_t handshake_bytes_ = 0;        // that came in it
  uint64_t entered_ = 0;              // when this thread went into OpenSSL
  uint64_t records_ = 0, records_per_key_ = 0;
  std::string reason_;
  int system_error_ = 0;
  StreamTimes times_;
};

}  // namespace veil
