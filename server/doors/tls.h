// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <verge/net.h>
#include <verge/task.h>

#include "crowd.h"

struct ssl_ctx_st;

/// TLS, in front of both protocols: a connection of a client is decrypted here and passed on
/// through a pair of sockets, so that what serves it knows nothing of TLS.
///
///   client --- TLS --- [ tls_door ] --- socket pair --- connection of either protocol
///
/// Ground rules: the state of OpenSSL of one connection is under its lock, and never while a task
/// waits. One task reads from the client and one writes to it; the handshake is done by the first
/// before the second is started. A connection on which no handshake has begun has no such state:
/// it costs a descriptor and a task.
namespace verge::server {

class tls_session;

struct tls_options {
  std::string certificate;  ///< a file in PEM, with its chain
  std::string key;
  /// How long a handshake may take, and how many connections may be in one.
  std::chrono::milliseconds handshake{10'000};
  std::size_t most_in_handshake{20'000};
};

class tls_door {
 public:
  /// Throws std::runtime_error, with what to do, if the files cannot be used.
  explicit tls_door(tls_options options);
  ~tls_door();
  tls_door(const tls_door&) = delete;
  tls_door& operator=(const tls_door&) = delete;

  /// Reads certificate and key again, for connections to come. What cannot be used changes nothing;
  /// false then, and `why` says so.
  bool reload(std::string& why);

  /// What serves a connection after the handshake: its plain end, and its place in the crowd.
  using service = std::function<void(stream_socket, crowd::place)>;

  /// Takes a client's connection, which is a newcomer in its crowd until its handshake is done. On
  /// a task of the runtime. Door and crowd have to outlive all of it.
  void take(tcp_conn client, crowd& of, crowd::place place, service serve);

  /// Connections in a handshake, and all.
  std::size_t in_handshake() const noexcept { return in_handshake_.load(); }
  std::size_t open() const noexcept { return open_.load(); }

 private:
  using context = std::shared_ptr<ssl_ctx_st>;

  context make_context() const;
  context current();
  verge::task<bool> shake_hands(tcp_conn& client, std::shared_ptr<tls_session>& s);
  verge::task<> run(std::shared_ptr<tcp_conn> client, crowd& of, std::uint64_t newcomer,
                    service serve);

  const tls_options options_;
  std::mutex lock_;
  context context_;
  std::atomic<std::size_t> in_handshake_{0};
  std::atomic<std::size_t> open_{0};
};

}  // namespace verge::server
