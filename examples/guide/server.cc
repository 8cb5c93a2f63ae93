// SPDX-License-Identifier: Apache-2.0

// A server with deadlines: for a silent client, for an answer that takes too long, and for the end
// of the server itself. With its client in one program, so that it ends.

#include <array>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>

#include <verge/group.h>
#include <verge/net.h>
#include <verge/runtime.h>
#include <verge/under.h>

using namespace std::chrono_literals;

namespace {

// Replaces a line by the same in capitals. Each client may be silent for 100 ms.
verge::task<> talk(verge::context ctx, verge::tcp_conn conn) {
  std::array<char, 256> line;
  for (;;) {
    conn.set_deadline(verge::clock::now() + 100ms);  // moving it takes a few nanoseconds
    const auto [n, error] = co_await verge::under(ctx, conn.read_some(line));
    if (error) {
      std::printf("server: %s\n", error.message().c_str());
      co_return;
    }
    for (char& c : line) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const auto sent = co_await conn.write_all({line.data(), n});
    if (!sent) co_return;
  }
}

verge::task<> serve(verge::context ctx, verge::tcp_listener& listener) {
  verge::task_group<> clients(ctx);
  for (;;) {
    auto [conn, error] = co_await verge::under(ctx, listener.accept());
    if (ctx.err()) break;
    if (error) {  // out of descriptors, say: do not spin
      co_await verge::sleep(100ms);
      continue;
    }
    clients.go(talk, clients.ctx(), std::move(conn));
  }
  clients.cancel();  // those that still talk; and wait for them
  try {
    co_await clients.all();
  } catch (const verge::cancelled&) {
    // that they were cancelled is no news
  }
  std::puts("server: every client is closed");
}

verge::task<> try_it() {
  auto listener = verge::tcp_listener::listen(verge::endpoint::loopback(0)).or_throw();
  auto [ctx, stop] = verge::with_cancel(verge::background());
  auto server = verge::go(serve, ctx, std::ref(listener));

  auto client = (co_await verge::tcp_conn::connect(listener.local().or_throw(), 2s)).or_throw();
  (co_await client.write_all("hello")).or_throw();
  std::array<char, 256> answer;
  const std::size_t n = (co_await client.read_some(answer)).or_throw();
  std::printf("client: %s\n", std::string(answer.data(), n).c_str());
  const auto end = co_await client.read_some(answer);  // says nothing: the server ends it
  std::printf("client: %s\n", end.error.message().c_str());

  auto second = (co_await verge::tcp_conn::connect(listener.local().or_throw(), 2s)).or_throw();
  (co_await second.write_all("hello")).or_throw();
  (co_await second.read_full({answer.data(), 5})).or_throw();
  stop();  // while the second client is connected
  co_await server;
}

}  // namespace

int main() { verge::default_runtime().run(try_it()); }
