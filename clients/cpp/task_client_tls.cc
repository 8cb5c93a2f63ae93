// SPDX-License-Identifier: Apache-2.0

// The client over TLS. Bytes go through OpenSSL in memory; the sockets are verge's, so that no
// thread waits.

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <array>
#include <new>
#include <stdexcept>
#include <utility>

#include "task_client.h"

namespace tasks {

namespace {

[[noreturn]] void fail(const std::string& doing) {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  ERR_clear_error();
  throw std::runtime_error(doing + ": " + text.data());
}

class tls_transport final : public transport {
 public:
  tls_transport(verge::tcp_conn conn, const tls_settings& s) : conn_(std::move(conn)) {
    ERR_clear_error();
    context_.reset(SSL_CTX_new(TLS_client_method()));
    if (context_ == nullptr) throw std::bad_alloc();
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    const bool trusted = s.trust.empty() ? SSL_CTX_set_default_verify_paths(context_.get()) == 1
                                         : SSL_CTX_load_verify_locations(
                                               context_.get(), s.trust.c_str(), nullptr) == 1;
    if (!trusted) fail("the certificates " + s.trust + " cannot be used");
    ssl_.reset(SSL_new(context_.get()));
    BIO* const in = BIO_new(BIO_s_mem());
    BIO* const out = BIO_new(BIO_s_mem());
    if (ssl_ == nullptr || in == nullptr || out == nullptr) {
      BIO_free(in);
      BIO_free(out);
      throw std::bad_alloc();
    }
    SSL_set_bio(ssl_.get(), in, out);
    SSL_set_connect_state(ssl_.get());
    // An address is not sent as a name, and is looked for in another field of the certificate.
    X509_VERIFY_PARAM* const wanted = SSL_get0_param(ssl_.get());
    if (X509_VERIFY_PARAM_set1_ip_asc(wanted, s.server.c_str()) == 1) return;
    ERR_clear_error();
    if (s.server.empty() ||
        X509_VERIFY_PARAM_set1_host(wanted, s.server.c_str(), s.server.size()) != 1 ||
        SSL_set_tlsext_host_name(ssl_.get(), s.server.c_str()) != 1) {
      throw std::invalid_argument("tls_settings::server has to be the name of the server");
    }
  }

  verge::task<> shake_hands() {
    for (;;) {
      ERR_clear_error();
      const int n = SSL_do_handshake(ssl_.get());
      const int why = SSL_get_error(ssl_.get(), n);
      co_await flush();
      if (n == 1) co_return;
      const long refusal = SSL_get_verify_result(ssl_.get());
      if (refusal != X509_V_OK) {
        throw std::runtime_error(std::string("the task server's certificate is refused: ") +
                                 X509_verify_cert_error_string(refusal));
      }
      if (why != SSL_ERROR_WANT_READ) fail("the TLS handshake has failed");
      co_await fetch();
    }
  }

  verge::task<> write(std::string_view bytes) override {
    ERR_clear_error();
    std::size_t taken = 0;
    if (SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &taken) != 1) fail("sending over TLS");
    co_await flush();
  }

  verge::task<> read(std::string& to) override {
    std::array<char, 16'384> got;
    for (;;) {
      ERR_clear_error();
      std::size_t n = 0;
      const int done = SSL_read_ex(ssl_.get(), got.data(), got.size(), &n);
      if (done == 1) {
        to.append(got.data(), n);
        co_return;
      }
      const int why = SSL_get_error(ssl_.get(), done);
      if (why == SSL_ERROR_ZERO_RETURN) {
        throw std::system_error(make_error_code(verge::net_errc::end_of_stream));
      }
      if (why != SSL_ERROR_WANT_READ) fail("reading over TLS");
      co_await flush();
      co_await fetch();
    }
  }

 private:
  struct freeing {
    void operator()(SSL_CTX* c) const noexcept { SSL_CTX_free(c); }
    void operator()(SSL* s) const noexcept { SSL_free(s); }
  };

  /// Sends what TLS has to send.
  verge::task<> flush() {
    BIO* const out = SSL_get_wbio(ssl_.get());
    std::string bytes(BIO_ctrl_pending(out), '\0');
    if (bytes.empty()) co_return;
    BIO_read(out, bytes.data(), static_cast<int>(bytes.size()));
    const auto sent = co_await conn_.write_all(bytes);
    static_cast<void>(sent.or_throw());
  }
  verge::task<> fetch() {
    std::array<char, 16'384> bytes;
    const auto got = co_await conn_.read_some(bytes);
    BIO_write(SSL_get_rbio(ssl_.get()), bytes.data(), static_cast<int>(got.or_throw()));
  }

  verge::tcp_conn conn_;
  std::unique_ptr<SSL_CTX, freeing> context_;
  std::unique_ptr<SSL, freeing> ssl_;
};

}  // namespace

verge::task<client> client::connect(verge::endpoint to, tls_settings secure, std::string token) {
  auto connected = co_await verge::tcp_conn::connect(to);
  auto made = std::make_unique<tls_transport>(std::move(connected).or_throw(), secure);
  co_await made->shake_hands();
  co_return co_await begin(std::move(made), std::move(token));
}

}  // namespace tasks
