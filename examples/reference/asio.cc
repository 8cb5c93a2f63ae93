// SPDX-License-Identifier: Apache-2.0

#include <verge/asio.h>

#include <asio.hpp>

namespace reference_asio {

using namespace std::chrono_literals;

struct client {};
void close(client& c);

asio::awaitable<void> example(client& connection) {
  asio::io_context io;
  verge::asio_timer idle(io, 30s);
  idle.async_wait([&](std::error_code error) {
    if (!error) close(connection);
  });
  idle.expires_after(30s);  // 1: that wait will see operation_aborted
  co_await idle.async_wait(asio::use_awaitable);
}

}  // namespace reference_asio
