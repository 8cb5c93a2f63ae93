// SPDX-License-Identifier: Apache-2.0
// What a reader of the site writes: a client that sends a line to the first server, to the next one
// too if there is no answer within 20 ms, and prints what comes first; three attempts, two seconds
// in all.
//
//   rpc_client REQUEST SERVER..      such as: rpc_client hello 127.0.0.1:7001 127.0.0.1:7002

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <verge/verge.h>

using namespace std::chrono_literals;

verge::task<std::string> ask(verge::endpoint server, std::string line,
                             std::chrono::milliseconds pause) {
  co_await verge::sleep(pause);
  auto conn = (co_await verge::tcp_conn::connect(server)).or_throw();
  (co_await conn.write_all(line)).or_throw();
  std::string reply;
  char part[512];
  while (!reply.ends_with('\n')) {
    const std::size_t n = (co_await conn.read_some(part)).or_throw();
    reply.append(part, n);
  }
  co_return reply;
}

verge::task<std::string> ask_all(verge::context ctx, std::vector<verge::endpoint> servers,
                                 std::string line) {
  verge::task_group<std::string> race(ctx);
  auto pause = 0ms;
  for (const verge::endpoint& server : servers) {
    race.go(ask, server, line, pause);
    pause += 20ms;
  }
  co_return co_await race.first();
}

verge::task<std::string> call(std::vector<verge::endpoint> servers, std::string line) {
  auto [ctx, cancel] = verge::with_timeout(verge::background(), 2s);
  auto attempt = [&, &ctx = ctx] { return ask_all(ctx, servers, line); };
  co_return co_await verge::retry(ctx, {.first = 50ms, .attempts = 3}, attempt);
}

int main(int argc, char** argv) try {
  if (argc < 3) return std::fputs("usage: rpc_client REQUEST SERVER..\n", stderr), 2;
  std::vector<verge::endpoint> servers;
  for (int i = 2; i < argc; ++i) servers.push_back(verge::endpoint::parse(argv[i]).or_throw());
  const std::string reply =
      verge::default_runtime().run(call(servers, std::string(argv[1]) + '\n'));
  std::fputs(reply.c_str(), stdout);
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
