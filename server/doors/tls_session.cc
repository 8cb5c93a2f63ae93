// SPDX-License-Identifier: Apache-2.0

#include "tls_session.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <array>
#include <new>

namespace verge::server {

namespace {

constexpr std::size_t record_bytes = 16U << 10;

}  // namespace

std::string openssl_error() {
  std::array<char, 256> text{};
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "no reason is given";
  ERR_error_string_n(code, text.data(), text.size());
  return text.data();
}

tls_session::tls_session(ssl_ctx_st& context, side which) : ssl_(SSL_new(&context)) {
  if (ssl_ == nullptr) throw std::bad_alloc();
  BIO* const in = BIO_new(BIO_s_mem());
  BIO* const out = BIO_new(BIO_s_mem());
  if (in == nullptr || out == nullptr) {
    BIO_free(in);
    BIO_free(out);
    SSL_free(ssl_);
    throw std::bad_alloc();
  }
  SSL_set_bio(ssl_, in, out);
  if (which == side::server) {
    SSL_set_accept_state(ssl_);
  } else {
    SSL_set_connect_state(ssl_);
  }
}

tls_session::~tls_session() { SSL_free(ssl_); }

bool tls_session::expect(const std::string& host) {
  std::lock_guard held(lock_);
  SSL_set_verify(ssl_, SSL_VERIFY_PEER, nullptr);
  X509_VERIFY_PARAM* const wanted = SSL_get0_param(ssl_);
  // An address is not sent as a name, and is looked for in another field of the certificate.
  if (X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) == 1) return true;
  ERR_clear_error();
  X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return X509_VERIFY_PARAM_set1_host(wanted, host.c_str(), host.size()) == 1 &&
         SSL_set_tlsext_host_name(ssl_, host.c_str()) == 1;
}

std::string tls_session::refusal() {
  std::lock_guard held(lock_);
  const long why = SSL_get_verify_result(ssl_);
  return why == X509_V_OK ? "" : X509_verify_cert_error_string(why);
}

void tls_session::feed(std::string_view bytes) {
  std::lock_guard held(lock_);
  BIO_write(SSL_get_rbio(ssl_), bytes.data(), static_cast<int>(bytes.size()));
}

tls_session::state tls_session::shake_hands() {
  std::lock_guard held(lock_);
  ERR_clear_error();
  const int n = SSL_do_handshake(ssl_);
  if (n == 1) return state::done;
  return SSL_get_error(ssl_, n) == SSL_ERROR_WANT_READ ? state::wants_more : state::failed;
}

tls_session::state tls_session::read(std::string& to) {
  std::lock_guard held(lock_);
  std::array<char, record_bytes> bytes;
  for (;;) {
    ERR_clear_error();
    const int n = SSL_read(ssl_, bytes.data(), static_cast<int>(bytes.size()));
    if (n > 0) {
      to.append(bytes.data(), static_cast<std::size_t>(n));
      continue;
    }
    return SSL_get_error(ssl_, n) == SSL_ERROR_WANT_READ ? state::wants_more : state::failed;
  }
}

bool tls_session::write(std::string_view bytes) {
  std::lock_guard held(lock_);
  ERR_clear_error();
  return bytes.empty() || SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())) > 0;
}

void tls_session::close() {
  std::lock_guard held(lock_);
  ERR_clear_error();
  static_cast<void>(SSL_shutdown(ssl_));
}

std::string tls_session::outgoing() {
  std::lock_guard held(lock_);
  BIO* const out = SSL_get_wbio(ssl_);
  std::string bytes(BIO_ctrl_pending(out), '\0');
  if (!bytes.empty()) BIO_read(out, bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

}  // namespace verge::server
