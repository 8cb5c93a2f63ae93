// SPDX-License-Identifier: Apache-2.0
// An HTTP/1.1 server: keep-alive, pipelining, deadlines for everything, limits, a graceful
// shutdown.
//
//   http::server s(options, handler);
//   co_await s.serve(ctx);            // until ctx is done and every request that began is answered
//
// Every connection is a task. Its read deadline is one timer that every request extends: a
// connection on which no request begins is closed when it has been idle for too long, and a request
// that has begun and takes too long is answered with 408. The write deadline begins with each
// answer and is extended whenever the client reads a part of it.
//
// While the maximum number of connections is open, no more are accepted: they wait in the kernel's
// queue. A request, or an answer, for which the memory budget has no room is answered with 503, and
// its connection closed. An idle connection has only the buffer it reads into.
//
// When the context is done the server accepts no more, closes the connections that wait for a
// request, lets the others answer their current one, and returns when the last one has ended.
#pragma once

#include <verge/context.h>
#include <verge/net.h>
#include <verge/task.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>

#include "http1/memory_budget.h"
#include "http1/request_parser.h"
#include "http1/response.h"

namespace http {

using handler = std::function<response(const request&)>;

struct server_options {
  verge::endpoint at{verge::endpoint::loopback(8080)};
  limits limit{};
  /// How long a connection may wait for the next request to begin.
  std::chrono::milliseconds idle{60'000};
  /// How long a request may take to arrive, from its first byte to its last.
  std::chrono::milliseconds request{10'000};
  /// How long the client may read nothing of an answer.
  std::chrono::milliseconds write{60'000};
  /// How many connections may be open at once.
  std::size_t connections{16'384};
  /// How many bytes the buffers of all connections may take together. Each connection counts for
  /// at least server::bytes_per_connection.
  std::size_t memory{512 << 20};
  /// Called with messages for the operator, on any thread. Writes to stderr by default.
  std::function<void(std::string_view)> log{};
};

class server {
 public:
  /// The buffer a connection reads into, the head of a request, and the task itself, rounded up.
  static constexpr std::size_t bytes_per_connection = 8 << 10;

  /// Starts to listen. Throws std::system_error on failure.
  server(const server_options& options, handler h);

  verge::endpoint local() const { return listener_.local().or_throw(); }
  verge::task<> serve(verge::context ctx);

  /// The number of connections so far, the number that are open, and the size of their buffers.
  std::uint64_t connections() const noexcept { return connections_.load(); }
  std::uint64_t open_connections() const noexcept { return busy_.load() - 1; }
  std::size_t memory() const noexcept { return budget_.used(); }

 private:
  verge::task<> accept_all(verge::context ctx);
  std::error_code start(verge::tcp_conn conn, const verge::context& ctx) noexcept;
  verge::task<> attend(verge::tcp_conn conn, verge::context ctx);
  void one_less() noexcept;
  void log(const std::string& line) const;

  const server_options options_;
  const handler handler_;
  verge::tcp_listener listener_;
  memory_budget budget_;
  std::atomic<std::uint64_t> connections_{0};
  /// Connections, and one for serve() itself; the last one to end signals it.
  std::atomic<std::uint64_t> busy_{1};
  verge::chan<bool> all_ended_{1};
  /// Receives when one of as many connections as there may be has ended.
  verge::chan<bool> room_{1};
};

}  // namespace http
