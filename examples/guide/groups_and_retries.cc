// SPDX-License-Identifier: Apache-2.0

// Several tasks as one: all of them, or the first; and attempts with pauses between. In simulated
// time: the program takes milliseconds.

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include <verge/group.h>
#include <verge/retry.h>
#include <verge/simulation.h>

using namespace std::chrono_literals;

namespace {

verge::task<int> ask(int server) {
  co_await verge::sleep(server * 100ms);
  if (server == 3) throw std::runtime_error("server 3 is down");
  co_return server * 11;
}

verge::task<> work() {
  const auto start = verge::clock::now();
  const auto passed = [&] { return static_cast<int>((verge::clock::now() - start) / 1ms); };

  verge::task_group<int> shards;
  for (const int server : {2, 1}) shards.go(ask, server);
  const std::vector<int> all = co_await shards.all();
  std::printf("%d ms: all: %d %d\n", passed(), all[0], all[1]);

  verge::task_group<int> replicas;
  for (const int server : {4, 3, 2}) replicas.go(ask, server);
  const int first = co_await replicas.first();  // the others are cancelled and have ended
  std::printf("%d ms: first: %d\n", passed(), first);

  verge::task_group<int> failing;
  for (const int server : {9, 3}) failing.go(ask, server);
  try {
    co_await failing.all();
  } catch (const std::runtime_error& e) {
    std::printf("%d ms: %s\n", passed(), e.what());
  }

  int attempts = 0;
  const auto flaky = [&]() -> verge::task<int> { return ask(++attempts < 4 ? 3 : 1); };
  const verge::retry_policy policy{.first = 1s, .jitter = 0};
  const int answer = co_await verge::retry(verge::background(), policy, flaky);
  std::printf("%d ms: %d at attempt %d\n", passed(), answer, attempts);
}

}  // namespace

int main() {
  verge::simulation sim;
  sim.run(work());
}
