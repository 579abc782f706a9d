// Rounds and bulk transfers over OpenSSL alone: what links.py holds Veilgraph's links against.
//
//   openssl_links PARTY CERTIFICATE KEY PORT...      one process a party, as many as there are
//   ports
//
// A party dials those before it and awaits those after it, on loopback. Then it reads lines:
// "rounds N" is N rounds in which everyone sends 16 bytes to everyone and awaits theirs; "bulk N"
// is N bytes from party 0 to party 1, in messages of 64 MiB from and to memory, and a byte back.
// Each is answered by its seconds.
//
// Blocking sockets, TLS 1.3, AES-128-GCM, one thread. Nobody's certificate is looked at: that is
// over before anything is timed. The prototypes are OpenSSL's public interface, so that no headers
// of it are needed.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

struct SSL;
struct SSL_CTX;
struct SSL_METHOD;
extern "C" {
const SSL_METHOD* TLS_method(void);
SSL_CTX* SSL_CTX_new(const SSL_METHOD*);
long SSL_CTX_ctrl(SSL_CTX*, int command, long number, void* pointer);
int SSL_CTX_set_ciphersuites(SSL_CTX*, const char*);
int SSL_CTX_use_certificate_file(SSL_CTX*, const char*, int type);
int SSL_CTX_use_PrivateKey_file(SSL_CTX*, const char*, int type);
SSL* SSL_new(SSL_CTX*);
int SSL_set_fd(SSL*, int);
int SSL_accept(SSL*);
int SSL_connect(SSL*);
int SSL_read(SSL*, void*, int);
int SSL_write(SSL*, const void*, int);
}

namespace {

constexpr int kPem = 1, kSetLeastVersion = 123, kTls13 = 0x0304;
constexpr int kMessage = 16, kPiece = 1 << 17;
constexpr int64_t kTransfer = int64_t{1} << 26;

void need(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s failed\n", what);
  std::exit(1);
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int dialed(int port) {
  const sockaddr_in address = loopback(port);
  for (int attempt = 0; attempt < 500; ++attempt) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
    close(fd);
    usleep(10'000);
  }
  return -1;
}

int listening(int port) {
  const sockaddr_in address = loopback(port);
  const int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  need(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, "bind");
  need(listen(fd, 16) == 0, "listen");
  return fd;
}

SSL* secured(SSL_CTX* context, int fd, bool dials) {
  need(fd >= 0, "a connection");
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  SSL* ssl = SSL_new(context);
  SSL_set_fd(ssl, fd);
  need((dials ? SSL_connect(ssl) : SSL_accept(ssl)) == 1, "the TLS handshake");
  return ssl;
}

void send_all(SSL* ssl, const uint8_t* data, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    const int64_t left = bytes - done;
    const int sent = SSL_write(ssl, data + done, static_cast<int>(left < kPiece ? left : kPiece));
    need(sent > 0, "SSL_write");
    done += sent;
  }
}

void receive_all(SSL* ssl, uint8_t* data, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    const int64_t left = bytes - done;
    const int got = SSL_read(ssl, data + done, static_cast<int>(left < kPiece ? left : kPiece));
    need(got > 0, "SSL_read");
    done += got;
  }
}

void rounds(const std::vector<SSL*>& peers, int64_t count) {
  uint8_t message[kMessage] = {};
  for (int64_t i = 0; i < count; ++i) {
    for (SSL* peer : peers) send_all(peer, message, kMessage);
    for (SSL* peer : peers) receive_all(peer, message, kMessage);
  }
}

void bulk(SSL* peer, int party, std::vector<uint8_t>& memory, int64_t bytes) {
  for (int64_t done = 0; done < bytes; done += kTransfer) {
    party == 0 ? send_all(peer, memory.data(), kTransfer)
               : receive_all(peer, memory.data(), kTransfer);
  }
  party == 0 ? receive_all(peer, memory.data(), 1) : send_all(peer, memory.data(), 1);
}

}  // namespace

int main(int count, char** arguments) {
  need(count > 5, "reading PARTY CERTIFICATE KEY PORT PORT...");
  const int party = std::atoi(arguments[1]), parties = count - 4;
  SSL_CTX* context = SSL_CTX_new(TLS_method());
  SSL_CTX_ctrl(context, kSetLeastVersion, kTls13, nullptr);
  need(SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1, "the cipher");
  need(SSL_CTX_use_certificate_file(context, arguments[2], kPem) == 1, "the certificate");
  need(SSL_CTX_use_PrivateKey_file(context, arguments[3], kPem) == 1, "the key");
  const int listener = listening(std::atoi(arguments[4 + party]));
  std::vector<SSL*> peers;
  for (int p = 0; p < party; ++p) {
    const int fd = dialed(std::atoi(arguments[4 + p]));
    const uint8_t me = static_cast<uint8_t>(party);
    need(write(fd, &me, 1) == 1, "the greeting");
    peers.push_back(secured(context, fd, true));
  }
  std::vector<SSL*> later(parties - party - 1);
  for (size_t i = 0; i < later.size(); ++i) {
    const int fd = accept(listener, nullptr, nullptr);
    uint8_t who = 0;
    need(read(fd, &who, 1) == 1 && who > party && who < parties, "the greeting");
    later[who - party - 1] = secured(context, fd, false);
  }
  peers.insert(peers.end(), later.begin(), later.end());
  std::vector<uint8_t> memory(kTransfer, 'x');
  std::puts("ready");
  std::fflush(stdout);
  char what[16];
  for (long long number; std::scanf("%15s %lld", what, &number) == 2;) {
    const auto start = std::chrono::steady_clock::now();
    if (std::string(what) == "rounds") {
      rounds(peers, number);
    } else if (party < 2) {
      bulk(peers[0], party, memory, number);
    }
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    std::printf("%.9f\n", spent.count());
    std::fflush(stdout);
  }
}
