// SPDX-License-Identifier: Apache-2.0

#include "tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <verge/clock.h>

#include "tls_session.h"

namespace verge::server {

namespace {

constexpr std::size_t read_at_once = 16U << 10;

/// From the server to the client, until the server has no more. Then the client hears the end.
verge::task<> send_to_client(std::shared_ptr<tls_session> s, std::shared_ptr<tcp_conn> client,
                             std::shared_ptr<unix_conn> plain) {
  std::array<char, read_at_once> bytes;
  for (;;) {
    const auto got = co_await plain->read_some(bytes);
    if (got.error) break;
    if (!s->write({bytes.data(), got.bytes})) break;
    const std::string out = s->outgoing();
    const auto sent = co_await client->write_all(out);
    if (sent.error) break;
  }
  s->close();
  const std::string last = s->outgoing();
  if (!last.empty()) static_cast<void>(co_await client->write_all(last));
  static_cast<void>(client->close());
  static_cast<void>(plain->close());
}

}  // namespace

tls_door::tls_door(tls_options options) : options_(std::move(options)), context_(make_context()) {}

tls_door::~tls_door() = default;

tls_door::context tls_door::make_context() const {
  context made(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
  if (made == nullptr) throw std::bad_alloc();
  SSL_CTX_set_min_proto_version(made.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(made.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                      SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(made.get(), SSL_MODE_RELEASE_BUFFERS);
  const auto fail = [](const std::string& what, const std::string& file) {
    throw std::runtime_error(what + " " + file + " cannot be used: " + openssl_error() +
                             "; it has to be a readable file in PEM");
  };
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(made.get(), options_.certificate.c_str()) != 1) {
    fail("the certificate", options_.certificate);
  }
  if (SSL_CTX_use_PrivateKey_file(made.get(), options_.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    fail("the key", options_.key);
  }
  if (SSL_CTX_check_private_key(made.get()) != 1) {
    throw std::runtime_error("the key " + options_.key + " does not belong to the certificate " +
                             options_.certificate);
  }
  return made;
}

tls_door::context tls_door::current() {
  std::lock_guard held(lock_);
  return context_;
}

bool tls_door::reload(std::string& why) {
  try {
    context next = make_context();
    std::lock_guard held(lock_);
    context_ = std::move(next);
    return true;
  } catch (const std::exception& e) {
    why = e.what();
    return false;
  }
}

void tls_door::take(tcp_conn client, crowd& of, crowd::place place, service serve) {
  if (in_handshake_.load() >= options_.most_in_handshake) return;  // closed at once
  in_handshake_.fetch_add(1);
  open_.fetch_add(1);
  auto shared = std::make_shared<tcp_conn>(std::move(client));
  const std::uint64_t newcomer = of.wait(shared, std::move(place));
  go(run(std::move(shared), of, newcomer, std::move(serve))).detach();
}

/// The first bytes for the server may come with the end of the handshake.
verge::task<bool> tls_door::shake_hands(tcp_conn& client, std::shared_ptr<tls_session>& s) {
  client.set_deadline(clock::now() + options_.handshake);
  std::array<char, read_at_once> bytes;
  for (;;) {
    const auto got = co_await client.read_some(bytes);
    if (got.error) co_return false;
    if (s == nullptr) s = std::make_shared<tls_session>(*current(), tls_session::side::server);
    s->feed({bytes.data(), got.bytes});
    const auto state = s->shake_hands();
    const std::string out = s->outgoing();
    if (!out.empty()) {
      const auto sent = co_await client.write_all(out);
      if (sent.error) co_return false;
    }
    if (state != tls_session::state::wants_more) co_return state == tls_session::state::done;
  }
}

verge::task<> tls_door::run(std::shared_ptr<tcp_conn> client, crowd& of, std::uint64_t newcomer,
                            service serve) {
  std::shared_ptr<tls_session> s;
  const bool shaken = co_await shake_hands(*client, s);
  in_handshake_.fetch_sub(1);
  crowd::place place = of.admit(newcomer);
  auto ends = shaken && place ? unix_conn::pair() : result<std::pair<unix_conn, unix_conn>>{};
  if (!shaken || !place || ends.error) {
    static_cast<void>(client->close());
    open_.fetch_sub(1);
    co_return;
  }
  client->set_deadline(no_deadline);
  auto plain = std::make_shared<unix_conn>(std::move(ends->first));
  serve(std::move(ends->second), std::move(place));
  auto sending = go(send_to_client(s, client, plain));
  // From the client to the server.
  std::array<char, read_at_once> bytes;
  for (;;) {
    std::string in;
    const auto state = s->read(in);
    if (!in.empty()) {
      const auto passed = co_await plain->write_all(in);
      if (passed.error) break;
    }
    if (state == tls_session::state::failed) break;
    const auto got = co_await client->read_some(bytes);
    if (got.error) break;
    s->feed({bytes.data(), got.bytes});
  }
  static_cast<void>(plain->shutdown_write());
  co_await sending;
  open_.fetch_sub(1);
}

}  // namespace verge::server
