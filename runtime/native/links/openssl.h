// The part of OpenSSL 3 that links use, looked up in the library that Python's own `ssl` module is
// linked with: building needs no headers of OpenSSL, and a process has one OpenSSL, the one that
// its system keeps up to date. Signatures and numbers are those of OpenSSL's public headers; a test
// holds them against the headers where a machine has them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace veil {

// Types of OpenSSL, which are opaque there too.
namespace openssl {
struct Bio;
struct BioMethod;
struct Certificate;
struct CertificateStore;
struct Cipher;
struct Context;
struct Method;
struct Connection;
}  // namespace openssl

// One function of OpenSSL, called as it is.
template <class Signature>
class Symbol;

template <class Result, class... Args>
class Symbol<Result(Args...)> {
 public:
  explicit Symbol(void* address) : function_(reinterpret_cast<Result (*)(Args...)>(address)) {}
  Result operator()(Args... args) const { return function_(args...); }

 private:
  Result (*function_)(Args...);
};

class OpenSsl {
 public:
  // `module` is the path of a shared library that is linked with libssl, or is libssl itself.
  // Throws std::runtime_error, with the reason, unless OpenSSL 3 with all of the below is there.
  explicit OpenSsl(const std::string& module);
  ~OpenSsl();
  OpenSsl(const OpenSsl&) = delete;
  OpenSsl& operator=(const OpenSsl&) = delete;

  // The oldest error of this thread in words, and forgets them all.
  std::string take_error() const;

 private:
  void* library_;
  void* find(const char* name) const;

 public:
  // Numbers that OpenSSL's macros stand for.
  static constexpr int kPem = 1, kVerifyPeer = 1, kFailWithoutCertificate = 2;
  static constexpr int kSetMode = 33, kSetReadAhead = 41, kSetLeastVersion = 123;
  static constexpr int kPartialWrites = 1, kMovingBuffers = 2, kTls13 = 0x0304;
  static constexpr int kWantRead = 2, kWantWrite = 3, kClosed = 6;  // SSL_get_error
  static constexpr int kUpdateMine = 0;                             // SSL_key_update
  static constexpr int kFlush = 11, kSourceSink = 0x0400, kRetryRead = 9, kRetryWrite = 10;
  static constexpr int kRetryAny = 15;
  static constexpr unsigned long kPartialChain = 0x80000;

  using Write = int(openssl::Bio*, const char*, int);
  using Read = int(openssl::Bio*, char*, int);
  using Control = long(openssl::Bio*, int, long, void*);
  using Verify = int(int, void*);

  const Symbol<unsigned long()> version_number{find("OpenSSL_version_num")};
  const Symbol<const char*(int)> version{find("OpenSSL_version")};
  const Symbol<unsigned long()> get_error{find("ERR_get_error")};
  const Symbol<const char*(unsigned long)> reason{find("ERR_reason_error_string")};
  const Symbol<void()> clear_errors{find("ERR_clear_error")};

  const Symbol<openssl::BioMethod*(int, const char*)> new_method{find("BIO_meth_new")};
  const Symbol<void(openssl::BioMethod*)> free_method{find("BIO_meth_free")};
  const Symbol<int(openssl::BioMethod*, Write*)> set_write{find("BIO_meth_set_write")};
  const Symbol<int(openssl::BioMethod*, Read*)> set_read{find("BIO_meth_set_read")};
  const Symbol<int(openssl::BioMethod*, Control*)> set_control{find("BIO_meth_set_ctrl")};
  const Symbol<openssl::Bio*(const openssl::BioMethod*)> new_bio{find("BIO_new")};
  const Symbol<void(openssl::Bio*, int)> set_init{find("BIO_set_init")};
  const Symbol<void(openssl::Bio*, int)> set_flags{find("BIO_set_flags")};
  const Symbol<void(openssl::Bio*, int)> clear_flags{find("BIO_clear_flags")};

  const Symbol<openssl::Certificate*(openssl::Certificate**, const uint8_t**, long)>
      parse_certificate{find("d2i_X509")};
  const Symbol<int(const openssl::Certificate*, const openssl::Certificate*)> compare_certificates{
      find("X509_cmp")};
  const Symbol<void(openssl::Certificate*)> free_certificate{find("X509_free")};
  const Symbol<int(openssl::CertificateStore*, openssl::Certificate*)> add_certificate{
      find("X509_STORE_add_cert")};
  const Symbol<int(openssl::CertificateStore*, unsigned long)> set_store_flags{
      find("X509_STORE_set_flags")};

  const Symbol<const openssl::Method*()> client_method{find("TLS_client_method")};
  const Symbol<const openssl::Method*()> server_method{find("TLS_server_method")};
  const Symbol<openssl::Context*(const openssl::Method*)> new_context{find("SSL_CTX_new")};
  const Symbol<void(openssl::Context*)> free_context{find("SSL_CTX_free")};
  const Symbol<long(openssl::Context*, int, long, void*)> control_context{find("SSL_CTX_ctrl")};
  const Symbol<int(openssl::Context*, const char*)> set_ciphers{find("SSL_CTX_set_ciphersuites")};
  const Symbol<int(openssl::Context*, const char*, int)> use_certificate{
      find("SSL_CTX_use_certificate_file")};
  const Symbol<int(openssl::Context*, const char*, int)> use_key{
      find("SSL_CTX_use_PrivateKey_file")};
  const Symbol<void(openssl::Context*, int, Verify*)> set_verify{find("SSL_CTX_set_verify")};
  const Symbol<openssl::CertificateStore*(const openssl::Context*)> store{
      find("SSL_CTX_get_cert_store")};
  const Symbol<int(openssl::Context*, size_t)> set_tickets{find("SSL_CTX_set_num_tickets")};
  const Symbol<void(openssl::Context*, size_t)> set_read_buffer{
      find("SSL_CTX_set_default_read_buffer_len")};

  const Symbol<openssl::Connection*(openssl::Context*)> new_connection{find("SSL_new")};
  const Symbol<void(openssl::Connection*)> free_connection{find("SSL_free")};
  const Symbol<void(openssl::Connection*, openssl::Bio*, openssl::Bio*)> set_bio{
      find("SSL_set_bio")};
  const Symbol<void(openssl::Connection*)> dial{find("SSL_set_connect_state")};
  const Symbol<void(openssl::Connection*)> accept{find("SSL_set_accept_state")};
  const Symbol<int(openssl::Connection*)> handshake{find("SSL_do_handshake")};
  const Symbol<openssl::Certificate*(const openssl::Connection*)> peer_certificate{
      find("SSL_get1_peer_certificate")};
  const Symbol<int(openssl::Connection*, void*, size_t, size_t*)> read{find("SSL_read_ex")};
  const Symbol<int(openssl::Connection*, const void*, size_t, size_t*)> write{find("SSL_write_ex")};
  const Symbol<int(openssl::Connection*, int)> update_key{find("SSL_key_update")};
  const Symbol<int(const openssl::Connection*, int)> error_of{find("SSL_get_error")};
  const Symbol<const char*(const openssl::Connection*)> protocol{find("SSL_get_version")};
  const Symbol<const openssl::Cipher*(const openssl::Connection*)> cipher{
      find("SSL_get_current_cipher")};
  const Symbol<const char*(const openssl::Cipher*)> cipher_name{find("SSL_CIPHER_get_name")};
};

}  // namespace veil
