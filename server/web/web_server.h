// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <verge/endpoint.h>
#include <verge/net.h>
#include <verge/runtime.h>

#include "../broker/committer.h"
#include "../doors/tls.h"
#include "web_connection.h"

/// The HTTP side of the task server: a listener and its connections.
namespace verge::server::web {

struct web_options {
  endpoint listen{endpoint::loopback(11380)};
  int inherited{-1};  ///< a socket that listens already, instead of `listen`
  web_limits limits;
  /// Names besides localhost that requests may be sent to.
  std::vector<std::string> hosts;
  /// Whether only this machine can reach it, and Host is checked therefore.
  bool only_loopback{true};
  gate* door{nullptr};     ///< nothing: no token is asked for
  tls_door* tls{nullptr};  ///< nothing: no TLS
  /// Requests are logged here, if anywhere. It has to outlive the server.
  event_log* log{nullptr};
};

class web_server {
 public:
  /// Listens. Throws std::system_error if it cannot.
  web_server(runtime& rt, command_sink& to, const web_options& options);
  web_server(const web_server&) = delete;
  web_server& operator=(const web_server&) = delete;
  ~web_server() { close(); }

  endpoint address() const { return address_; }
  /// Takes no more connections and requests; those that have begun are answered.
  void close();
  /// Connections that are open.
  std::size_t open() const { return house_.clients.count(); }

 private:
  verge::task<> accept();
  void attend(stream_socket conn, crowd::place place);

  web_house house_;
  tls_door* const tls_;
  tcp_listener listener_;
  endpoint address_;
  std::mutex lock_;
  std::vector<std::weak_ptr<web_connection>> connections_;
  std::size_t sweep_at_{64};
  join_handle<> accepting_;
  join_handle<> telling_;
  bool closed_{false};
};

}  // namespace verge::server::web
