// SPDX-License-Identifier: Apache-2.0

// A server that sends back what it receives, with a deadline on every connection. With a port as
// its argument, or 0 for one that the system chooses, it serves there until it is stopped; without
// one it tests itself, and disconnects a silent client.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <verge/net.h>
#include <verge/runtime.h>
#include <verge/task.h>
#include <verge/time.h>

using namespace std::chrono_literals;

namespace {

verge::task<> echo(verge::tcp_conn conn, std::chrono::nanoseconds patience) {
  std::array<char, 4096> bytes;
  for (;;) {
    conn.set_deadline(verge::clock::now() + patience);  // extended by every message
    auto [n, error] = co_await conn.read_some(bytes);
    if (error) co_return;  // end of stream, deadline, reset by peer
    if (!co_await conn.write_all({bytes.data(), n})) co_return;
  }
}

verge::task<> serve(verge::tcp_listener& listener, std::chrono::nanoseconds patience) {
  std::chrono::milliseconds pause = 5ms;
  for (;;) {
    auto [conn, error] = co_await listener.accept();
    if (error == verge::net_errc::closed) co_return;
    if (error) {  // it may be transient or persist: continue, and do not spin
      std::fprintf(stderr, "accept: %s\n", error.message().c_str());
      co_await verge::sleep(pause);
      pause = std::min<std::chrono::milliseconds>(2 * pause, 1s);
      continue;
    }
    pause = 5ms;
    verge::go(echo, std::move(conn), patience).detach();
  }
}

verge::task<> try_out() {
  auto listener = verge::tcp_listener::listen(verge::endpoint::loopback(0)).or_throw();
  auto server = verge::go(serve(listener, 100ms));

  const auto at = listener.local().or_throw();
  auto conn = (co_await verge::tcp_conn::connect(at, 10s)).or_throw();
  std::array<char, 64> bytes;
  (co_await conn.write_all("hello")).or_throw();
  const auto n = (co_await conn.read_some(bytes)).or_throw();
  std::printf("%s answers: %s\n", at.to_string().c_str(), std::string(bytes.data(), n).c_str());

  const auto since = verge::clock::now();
  const auto end = co_await conn.read_some(bytes);  // sends nothing: the server disconnects it
  std::printf("cut off after %.0f ms of silence: %s\n",
              std::chrono::duration<double, std::milli>(verge::clock::now() - since).count(),
              end.error.message().c_str());

  listener.close();
  co_await server;
}

verge::task<> serve_for_ever(std::uint16_t port) {
  auto listener = verge::tcp_listener::listen(verge::endpoint::any_v6(port)).or_throw();
  std::printf("listening on %s\n", listener.local().or_throw().to_string().c_str());
  std::fflush(stdout);
  co_await serve(listener, 30s);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    verge::default_runtime().run(try_out());
    return 0;
  }
  const int port = std::atoi(argv[1]);
  if (port < 0 || port > 65535) {
    std::fprintf(stderr, "usage: echo_server [PORT], and '%s' is no port\n", argv[1]);
    return 2;
  }
  verge::default_runtime().run(serve_for_ever(static_cast<std::uint16_t>(port)));
}
