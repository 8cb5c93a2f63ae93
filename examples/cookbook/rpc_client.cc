// SPDX-License-Identifier: Apache-2.0

// An RPC client: one line out, one line back, to several servers; with a deadline, retries, and a
// second server asked when the first is slow. With servers to try it, at the end.

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <verge/verge.h>

using namespace std::chrono_literals;

namespace {

// [client]
struct rpc_client {
  std::vector<verge::endpoint> servers;
  std::chrono::milliseconds hedge_after = 20ms;
  verge::retry_policy policy{.first = 10ms, .attempts = 3};

  verge::task<std::string> call(verge::context ctx, std::string request) {
    auto attempt = [&] { return race(ctx, request); };
    co_return co_await verge::retry(ctx, policy, attempt);
  }

 private:
  verge::task<std::string> race(verge::context ctx, const std::string& request) {
    verge::task_group<std::string> group(ctx);
    for (std::size_t i = 0; i < servers.size(); ++i)
      group.go(&rpc_client::ask, this, servers[i], i * hedge_after, std::cref(request));
    co_return co_await group.first();
  }

  verge::task<std::string> ask(verge::endpoint server, std::chrono::milliseconds pause,
                               const std::string& request) {
    co_await verge::sleep(pause);
    auto conn = (co_await verge::tcp_conn::connect(server)).or_throw();
    (co_await conn.write_all(request + '\n')).or_throw();
    std::string reply;
    char part[256];
    while (!reply.ends_with('\n')) {
      const auto n = (co_await conn.read_some(part)).or_throw();
      reply.append(part, n);
    }
    reply.pop_back();
    co_return reply;
  }
};
// [/client]

verge::task<> answer(verge::tcp_conn conn, std::string name, std::chrono::milliseconds takes) {
  char part[256];
  const auto [n, error] = co_await conn.read_some(part);
  if (error) co_return;
  co_await verge::sleep(takes);
  static_cast<void>(co_await conn.write_all(name + " answers " + std::string(part, n)));
}

verge::task<> serve(verge::tcp_listener& at, std::string name, std::chrono::milliseconds takes) {
  for (;;) {
    auto [conn, error] = co_await at.accept();
    if (error) co_return;
    verge::go(answer, std::move(conn), name, takes).detach();
  }
}

verge::task<std::string> try_it() {
  auto slow = verge::tcp_listener::listen(verge::endpoint::loopback(0)).or_throw();
  auto fast = verge::tcp_listener::listen(verge::endpoint::loopback(0)).or_throw();
  verge::go(serve, std::ref(slow), "slow", 1h).detach();
  verge::go(serve, std::ref(fast), "fast", 1ms).detach();

  rpc_client client{{slow.local().or_throw(), fast.local().or_throw()}};
  auto [ctx, cancel] = verge::with_timeout(verge::background(), 10s);
  std::string reply = co_await client.call(ctx, "hello");
  slow.close();
  fast.close();
  co_return reply;
}

}  // namespace

int main() {
  const std::string reply = verge::default_runtime().run(try_it());
  std::printf("%s\n", reply.c_str());
  return reply == "fast answers hello" ? 0 : 1;
}
