// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <string>
#include <string_view>

struct ssl_ctx_st;
struct ssl_st;

/// OpenSSL's state of one connection, between two strings of bytes: what has come is fed to it, and
/// what is to be sent is taken from it. It knows no sockets, and never waits. For both sides.
///
/// Ground rules: all of it is under its lock; any thread may call it.
namespace verge::server {

/// What OpenSSL has to say of the last error on this thread.
std::string openssl_error();

class tls_session {
 public:
  enum class side { server, client };
  enum class state { done, wants_more, failed };

  tls_session(ssl_ctx_st& context, side which);
  tls_session(const tls_session&) = delete;
  tls_session& operator=(const tls_session&) = delete;
  ~tls_session();

  /// For a client, before the handshake: the peer's certificate has to be for this name or address,
  /// and its chain has to end in one that the context trusts.
  bool expect(const std::string& host);
  /// Why the peer's certificate was not accepted; empty if it was, or has not come.
  std::string refusal();

  /// Takes what the peer has sent.
  void feed(std::string_view bytes);
  state shake_hands();
  /// Appends what is decrypted. `failed` also at the end that the peer has announced.
  state read(std::string& to);
  bool write(std::string_view bytes);
  /// Announces the end.
  void close();
  /// What is to be sent to the peer.
  std::string outgoing();

 private:
  ssl_st* ssl_;
  std::mutex lock_;
};

}  // namespace verge::server
