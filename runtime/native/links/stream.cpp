#include "runtime/native/links/stream.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstring>
#include <system_error>

#include "runtime/native/clock.h"

namespace veil {
namespace {

// As many bits as the keys that protocols draw with. RFC 8446 has everyone implement it.
constexpr const char* kCipher = "TLS_AES_128_GCM_SHA256";
constexpr size_t kRecord = size_t{1} << 14;  // the most that one holds
constexpr double kBusySeconds = 1.0;  // that one call may take bytes off the socket without waiting
// The same while strangers may be at the other end: each step delays everyone else's.
constexpr double kShakingSeconds = 0.005;
// Of a handshake, from the other side: what that says is 0.7 kB, and 8.6 kB with the longest
// certificate that a preamble may show. In records of a byte, 16 kB take 2 ms.
constexpr size_t kMostHandshake = size_t{1} << 14;
// Taken from the socket at once: fewer calls than a record each, and still in the cache.
constexpr size_t kReadBuffer = size_t{1} << 16;

// Adds the time of a block to a counter.
class Timing {
 public:
  explicit Timing(uint64_t& counter) : counter_(counter), start_(nanoseconds()) {}
  ~Timing() { counter_ += nanoseconds() - start_; }

 private:
  uint64_t& counter_;
  uint64_t start_;
};

// The stream for which this thread is inside OpenSSL: its callbacks bring no address of ours that
// could be read without knowing which OpenSSL it is.
thread_local Stream* inside = nullptr;

// A parsed certificate, freed with its scope.
class Parsed {
 public:
  Parsed(const OpenSsl& openssl, openssl::Certificate* certificate)
      : openssl_(openssl), certificate_(certificate) {}
  ~Parsed() { openssl_.free_certificate(certificate_); }
  Parsed(const Parsed&) = delete;
  Parsed& operator=(const Parsed&) = delete;
  openssl::Certificate* get() const { return certificate_; }

 private:
  const OpenSsl& openssl_;
  openssl::Certificate* certificate_;
};

openssl::Certificate* parse(const OpenSsl& openssl, std::span<const uint8_t> der) {
  const uint8_t* at = der.data();
  return openssl.parse_certificate(nullptr, &at, static_cast<long>(der.size()));
}

}  // namespace

TlsTerms::TlsTerms(std::shared_ptr<const OpenSsl> openssl, std::span<const uint8_t> pinned,
                   const Identity& identity, bool dialed)
    : openssl_(std::move(openssl)), pinned_(pinned.begin(), pinned.end()), dialed_(dialed) {
  openssl_->clear_errors();
  try {
    set_up(identity);
  } catch (const TlsError&) {
    openssl_->free_context(context_);
    openssl_->free_method(method_);
    throw;
  }
}

TlsTerms::~TlsTerms() {
  openssl_->free_context(context_);
  openssl_->free_method(method_);
}

void TlsTerms::set_up(const Identity& identity) {
  const OpenSsl& o = *openssl_;
  const auto need = [&](bool holds) {
    if (!holds) throw TlsError(o.take_error());
  };
  need((context_ = o.new_context(dialed_ ? o.server_method() : o.client_method())) != nullptr);
  need(o.control_context(context_, o.kSetLeastVersion, o.kTls13, nullptr) == 1);
  need(o.set_ciphers(context_, kCipher) == 1);
  need(o.use_certificate(context_, identity.certificate.c_str(), o.kPem) == 1);
  need(o.use_key(context_, identity.key.c_str(), o.kPem) == 1);
  trust();
  o.set_verify(context_, o.kVerifyPeer | o.kFailWithoutCertificate, nullptr);
  need(o.set_tickets(context_, 0) == 1);  // no resumption: each connection proves its keys anew
  o.control_context(context_, o.kSetMode, o.kPartialWrites | o.kMovingBuffers, nullptr);
  o.control_context(context_, o.kSetReadAhead, 1, nullptr);
  o.set_read_buffer(context_, kReadBuffer);
  need((method_ = o.new_method(o.kSourceSink, "veilgraph")) != nullptr);
  need(o.set_read(method_, Stream::bio_read) == 1 && o.set_write(method_, Stream::bio_write) == 1);
  need(o.set_control(method_, Stream::bio_control) == 1);
}

// The certificate itself is pinned, whatever issuer it names: it ends the chain that is verified.
void TlsTerms::trust() {
  const OpenSsl& o = *openssl_;
  const Parsed certificate(o, parse(o, pinned_));
  openssl::CertificateStore* store = o.store(context_);
  if (certificate.get() == nullptr || o.add_certificate(store, certificate.get()) != 1 ||
      o.set_store_flags(store, o.kPartialChain) != 1) {
    throw TlsError(o.take_error());
  }
}

Stream::Stream(int socket) : socket_(socket) {}

std::unique_ptr<Stream> Stream::secured(std::shared_ptr<const TlsTerms> terms, int socket,
                                        double seconds, uint64_t records_per_key) {
  auto stream = std::make_unique<Stream>(socket);
  stream->shaking_ = true;
  stream->openssl_ = terms->openssl_;
  stream->terms_ = std::move(terms);
  stream->records_per_key_ = records_per_key;
  stream->set_patience(seconds);
  stream->enter();
  stream->open();
  return stream;
}

Stream::~Stream() {
  close();
  if (openssl_) openssl_->free_connection(tls_);  // and its BIO
}

void Stream::open() {
  const OpenSsl& o = *openssl_;
  tls_ = o.new_connection(terms_->context_);
  openssl::Bio* bio = tls_ == nullptr ? nullptr : o.new_bio(terms_->method_);
  if (bio == nullptr) throw TlsError(o.take_error());
  o.set_init(bio, 1);
  o.set_bio(tls_, bio, bio);
  terms_->dialed_ ? o.accept(tls_) : o.dial(tls_);
}

Stream::Awaits Stream::shake_hands() {
  wait_ = Wait::kNo;
  enter();
  const int done = openssl_->handshake(tls_);
  if (done == 1) {
    check_peer();
    shaking_ = false;
    return Awaits::kNothing;
  }
  const Moved moved = failed(done);
  if (moved.status == Status::kChanged) throw TlsError(reason_);
  if (moved.status == Status::kClosed) {
    throw std::system_error(ECONNRESET, std::generic_category());
  }
  if (moved.status == Status::kBroken) {
    throw std::system_error(system_error_, std::generic_category());
  }
  const bool to_write = openssl_->error_of(tls_, done) == OpenSsl::kWantWrite;
  return to_write ? Awaits::kWriting : Awaits::kReading;
}

void Stream::check_peer() const {
  const Parsed expected(*openssl_, parse(*openssl_, terms_->pinned_));
  const Parsed shown(*openssl_, openssl_->peer_certificate(tls_));
  if (shown.get() == nullptr || openssl_->compare_certificates(expected.get(), shown.get()) != 0) {
    throw TlsError("its certificate in TLS is another than the one it showed");
  }
}

std::string Stream::protocol() const { return tls_ == nullptr ? "" : openssl_->protocol(tls_); }

std::string Stream::cipher() const {
  return tls_ == nullptr ? "" : openssl_->cipher_name(openssl_->cipher(tls_));
}

void Stream::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void Stream::set_patience(double seconds) {
  if (seconds == patience_) return;
  const double whole = std::floor(seconds);
  timeval limit{};
  limit.tv_sec = static_cast<time_t>(whole);
  limit.tv_usec = static_cast<suseconds_t>((seconds - whole) * 1e6);
  if (limit.tv_sec == 0 && limit.tv_usec == 0) limit.tv_usec = 1;  // 0 would mean for ever
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  patience_ = seconds;
}

bool Stream::wait(bool to_read, bool to_write, int milliseconds, WakeUp* wake_up) {
  const Timing timing(times_.waiting);
  const auto events = static_cast<short>((to_read ? POLLIN : 0) | (to_write ? POLLOUT : 0));
  pollfd either[] = {{socket_, events, 0}, {wake_up ? wake_up->descriptor() : -1, POLLIN, 0}};
  const bool ready = poll(either, wake_up ? 2 : 1, milliseconds) > 0;
  if (either[1].revents != 0) wake_up->hush();
  return ready;
}

// What both directions share

Stream::Moved Stream::read(uint8_t* data, size_t bytes, Wait wait) {
  wait_ = wait;
  if (tls_ == nullptr) return receive(data, bytes);
  enter();
  const uint64_t outside = times_.waiting + times_.sending, start = nanoseconds();
  size_t count = 0;
  const int done = openssl_->read(tls_, data, bytes, &count);
  times_.encryption += nanoseconds() - start - (times_.waiting + times_.sending - outside);
  return done == 1 ? Moved{Status::kMoved, count} : failed(done);
}

Stream::Moved Stream::write(const uint8_t* data, size_t bytes) {
  if (tls_ == nullptr) return send(data, bytes);
  enter();
  const uint64_t outside = times_.waiting + times_.sending, start = nanoseconds();
  size_t count = 0;
  const int done = openssl_->write(tls_, data, bytes, &count);
  times_.encryption += nanoseconds() - start - (times_.waiting + times_.sending - outside);
  if (done != 1) return failed(done);
  records_ += (count + kRecord - 1) / kRecord;
  return {Status::kMoved, count};
}

// The next write's record is preceded by one that says so.
void Stream::renew_key_if_due() {
  if (tls_ == nullptr || records_ < records_per_key_) return;
  enter();
  if (openssl_->update_key(tls_, OpenSsl::kUpdateMine) == 1) records_ = 0;
}

// OpenSSL tells failures apart by this thread's list of errors, which others may have left some in.
void Stream::enter() {
  inside = this;
  openssl_->clear_errors();
  system_ = {Status::kMoved, 0};
  entered_ = nanoseconds();
}

// Why a call of TLS moved nothing. The socket's own account comes first: OpenSSL's differs between
// versions where a connection ends without a goodbye.
Stream::Moved Stream::failed(int result) {
  const int error = openssl_->error_of(tls_, result);
  if (error == OpenSsl::kWantRead || error == OpenSsl::kWantWrite) {
    const bool told = system_.status == Status::kSilent || system_.status == Status::kInterrupted;
    return {told ? system_.status : Status::kNotNow, 0};
  }
  const std::string words = openssl_->take_error();
  if (error == OpenSsl::kClosed) return {Status::kClosed, 0};
  if (system_.status == Status::kClosed || system_.status == Status::kBroken) return system_;
  reason_ = words;
  return {Status::kChanged, 0};
}

// The socket

Stream::Moved Stream::receive(uint8_t* data, size_t bytes) {
  const Timing timing(times_.waiting);
  // A peer that keeps OpenSSL busy with what is no message must not keep it for ever.
  const double busy = shaking_ ? kShakingSeconds : kBusySeconds;
  const double most = wait_ == Wait::kYes ? patience_ : busy;
  if (tls_ != nullptr && static_cast<double>(nanoseconds() - entered_) > most * 1e9) {
    return system_ = {wait_ == Wait::kYes ? Status::kSilent : Status::kNotNow, 0};
  }
  if (shaking_) {
    if (handshake_bytes_ >= kMostHandshake) {
      system_error_ = EMSGSIZE;
      reason_ = std::strerror(EMSGSIZE);
      return system_ = {Status::kBroken, 0};
    }
    bytes = std::min(bytes, kMostHandshake - handshake_bytes_);
  }
  const int flags = wait_ == Wait::kYes ? 0 : MSG_DONTWAIT;
  from_system(recv(socket_, data, bytes, flags));
  if (shaking_) handshake_bytes_ += system_.bytes;
  return system_;
}

Stream::Moved Stream::send(const uint8_t* data, size_t bytes) {
  const Timing timing(times_.sending);
  wait_ = Wait::kNo;
  return from_system(::send(socket_, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL));
}

Stream::Moved Stream::from_system(ssize_t count) {
  if (count > 0) return system_ = {Status::kMoved, static_cast<size_t>(count)};
  if (count == 0) return system_ = {Status::kClosed, 0};
  system_error_ = errno;
  if (errno == EINTR) return system_ = {Status::kInterrupted, 0};
  if (errno == EAGAIN || errno == EWOULDBLOCK) {
    return system_ = {wait_ == Wait::kYes ? Status::kSilent : Status::kNotNow, 0};
  }
  reason_ = std::strerror(errno);
  return system_ = {Status::kBroken, 0};
}

// What OpenSSL calls to reach the socket

int Stream::bio_write(openssl::Bio* bio, const char* data, int bytes) {
  Stream& stream = *inside;
  const OpenSsl& o = *stream.openssl_;
  o.clear_flags(bio, o.kRetryAny);
  const Moved moved = stream.send(reinterpret_cast<const uint8_t*>(data), bytes);
  if (moved.status == Status::kMoved) return static_cast<int>(moved.bytes);
  if (moved.status == Status::kNotNow) o.set_flags(bio, o.kRetryWrite);
  return -1;
}

int Stream::bio_read(openssl::Bio* bio, char* data, int bytes) {
  Stream& stream = *inside;
  const OpenSsl& o = *stream.openssl_;
  o.clear_flags(bio, o.kRetryAny);
  const Moved moved = stream.receive(reinterpret_cast<uint8_t*>(data), bytes);
  switch (moved.status) {
    case Status::kMoved:
      return static_cast<int>(moved.bytes);
    case Status::kClosed:
      return 0;
    case Status::kBroken:
      return -1;
    default:
      o.set_flags(bio, o.kRetryRead);
      return -1;
  }
}

long Stream::bio_control(openssl::Bio*, int command, long, void*) {
  return command == OpenSsl::kFlush ? 1 : 0;  // nothing is held back; nothing else is offered
}

}  // namespace veil
