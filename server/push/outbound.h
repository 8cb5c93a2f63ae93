// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <verge/clock.h>
#include <verge/net.h>
#include <verge/task.h>

#include "../doors/tls_session.h"

namespace verge::server::push {

/// A connection to a receiver, plain or with TLS. One task uses it. What fails returns why, and ""
/// otherwise; nothing lasts beyond the deadline.
class outbound {
 public:
  explicit outbound(clock::time_point deadline) noexcept : deadline_(deadline) {}

  verge::task<std::string> connect(endpoint at, clock::time_point until);
  /// The handshake. The certificate has to be for `host`, and trusted by the context.
  verge::task<std::string> secure(ssl_ctx_st& context, std::string host);
  verge::task<std::string> write(std::string_view bytes);
  /// Appends what has come. False at the end; `why` is set if it is not the peer's own.
  verge::task<bool> read(std::string& to, std::string& why);
  /// An earlier deadline, for what is still to be read.
  void hurry(clock::time_point until);

 private:
  verge::task<std::string> flush();
  std::string name_of(const std::error_code& e) const;

  clock::time_point deadline_;
  tcp_conn conn_;
  std::unique_ptr<tls_session> tls_;
};

}  // namespace verge::server::push
