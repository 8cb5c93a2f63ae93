// SPDX-License-Identifier: Apache-2.0

// Periodic work: by a function, by a channel, and on a grid that does not depend on when it began.
// In simulated time, so that the figures are exact.

#include <chrono>
#include <cstdio>

#include <verge/simulation.h>
#include <verge/time.h>

using namespace std::chrono_literals;

namespace {

int ms(verge::time_point t) { return static_cast<int>(t.time_since_epoch() / 1ms); }

}  // namespace

int main() {
  verge::simulation sim({.start = verge::time_point(1007ms)});

  auto counted = verge::every(100ms, [] { std::printf("%d: every\n", ms(verge::clock::now())); });
  sim.run_for(200ms);
  counted.stop();

  // On the grid of full 100 ms of the clock, not 100 ms from now.
  auto grid = verge::every(verge::time_point(), 100ms,
                           [] { std::printf("%d: on the grid\n", ms(verge::clock::now())); });
  sim.run_for(200ms);
  grid.stop();

  // A channel. The receiver is late for two ticks: one is kept, the grid stays.
  const verge::ticker ticks(100ms);
  sim.run_for(350ms);
  for (int i = 0; i < 3; ++i) {
    const auto at = ticks.c().recv();
    std::printf("%d: the tick of %d\n", ms(verge::clock::now()), ms(*at));
  }
}
