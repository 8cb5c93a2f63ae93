// An HTTP/1.1 server: keep-alive, pipelining, a deadline for everything, and an end in good order.
//
//   http::server s(options, handler);
//   co_await s.serve(ctx);            // until ctx is done and all that was begun is finished
//
// Every connection is a task. Its read deadline is one timer that every request pushes back: a
// connection on which nothing happens is closed when it has been idle for too long, and a request
// that has begun and does not get on is answered with 408.
//
// When the context is done the server accepts no more, closes the connections that wait for a
// request, lets the others answer the one that they are at, and returns when the last one has gone.
#pragma once

#include <verge/context.h>
#include <verge/net.h>
#include <verge/task.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "http.h"

namespace http {

struct server_options {
  verge::endpoint at{verge::endpoint::loopback(8080)};
  limits limit{};
  /// How long nothing may happen on a connection: until the next request begins, or until the other
  /// side takes an answer.
  std::chrono::milliseconds idle{60'000};
  /// How long a request may take to arrive, from its first byte to its last.
  std::chrono::milliseconds request{10'000};
};

class server {
 public:
  /// Listens from here on. Throws std::system_error if it cannot.
  server(const server_options& options, handler h);

  verge::endpoint local() const { return listener_.local().or_throw(); }
  verge::task<> serve(verge::context ctx);

  std::uint64_t connections() const noexcept { return connections_.load(); }

 private:
  verge::task<> attend(verge::tcp_conn conn, verge::context ctx);
  verge::task<> talk(verge::tcp_conn& conn, verge::context ctx);
  verge::task<> say_goodbye(verge::tcp_conn& conn, const std::string& last_words);
  void one_more() noexcept;
  void one_less() noexcept;

  const server_options options_;
  const handler handler_;
  verge::tcp_listener listener_;
  std::atomic<std::uint64_t> connections_{0};
  /// Connections, and one for serve() itself; the last one to go says so.
  std::atomic<std::uint64_t> busy_{1};
  verge::chan<bool> all_gone_{1};
  /// The most there were since memory was last given back to the system.
  std::atomic<std::uint64_t> most_{0};
};

}  // namespace http
