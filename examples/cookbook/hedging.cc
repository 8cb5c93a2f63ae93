// SPDX-License-Identifier: Apache-2.0

// Hedging: if the first server has not answered after most answers would be there, ask a second one
// too, and take whichever is first. The tail of the latency becomes that of two at once.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>

#include <verge/group.h>
#include <verge/simulation.h>

using namespace std::chrono_literals;
using std::chrono::milliseconds;

namespace {

std::minstd_rand chance(7);  // the same in every run

// One answer in twenty takes a second.
verge::task<int> ask(int server) {
  co_await verge::sleep(chance() % 20 == 0 ? 1000ms : 10ms);
  co_return server;
}

// [hedge]
verge::task<int> ask_later(milliseconds pause, int server) {
  co_await verge::sleep(pause);
  co_return co_await ask(server);
}

verge::task<int> hedged(verge::context ctx) {
  verge::task_group<int> race(ctx);
  race.go(ask, 1);
  race.go(ask_later, 20ms, 2);  // cancelled while it sleeps if server 1 answers
  co_return co_await race.first();
}
// [/hedge]

verge::task<milliseconds> slowest_of_a_hundred(bool hedge) {
  milliseconds slowest = 0ms;
  for (int i = 0; i < 100; ++i) {
    const auto start = verge::clock::now();
    if (hedge) {
      co_await hedged(verge::background());
    } else {
      co_await ask(1);
    }
    const auto took = std::chrono::duration_cast<milliseconds>(verge::clock::now() - start);
    slowest = std::max(slowest, took);
  }
  co_return slowest;
}

}  // namespace

int main() {
  verge::simulation sim;
  const auto alone = sim.run(slowest_of_a_hundred(false));
  const auto hedge = sim.run(slowest_of_a_hundred(true));
  std::printf("the slowest of 100: %d ms, hedged %d ms\n", static_cast<int>(alone.count()),
              static_cast<int>(hedge.count()));
  return alone == 1000ms && hedge == 30ms ? 0 : 1;
}
