// SPDX-License-Identifier: Apache-2.0

#include <verge/net.h>
#include <verge/verge.h>

#include <array>

namespace reference_net {

using namespace std::chrono_literals;

verge::task<> echo(verge::tcp_conn conn) {
  std::array<char, 4096> bytes;
  for (;;) {
    conn.set_deadline(verge::clock::now() + 30s);  // reset by every message
    auto [n, error] = co_await conn.read_some(bytes);
    if (error) co_return;  // end of stream, deadline, ...
    if (!co_await conn.write_all({bytes.data(), n})) co_return;
  }
}

verge::task<> serve() {
  auto listener = verge::tcp_listener::listen(verge::endpoint::any(7)).or_throw();
  for (;;) {
    auto [conn, error] = co_await listener.accept();
    if (error == verge::net_errc::closed) co_return;
    if (error)
      co_await verge::sleep(100ms);  // do not spin
    else
      verge::go(echo, std::move(conn)).detach();
  }
}

}  // namespace reference_net
