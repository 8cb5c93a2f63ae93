// SPDX-License-Identifier: Apache-2.0

// verge's timers in libev's loop.

#include <verge/libev.h>

#include <chrono>
#include <cstdio>
#include <thread>

using namespace std::chrono_literals;

int main() {
  struct ev_loop* loop = ev_default_loop(0);
  {
    verge::ev_timers timers(loop);
    auto idle = timers.start(30s, [&] { ev_break(loop, EVBREAK_ALL); });
    std::jthread other([&] { timers.start(10ms, [&] { timers.reset(idle, 20ms); }); });
    ev_run(loop, 0);
  }
  std::puts("closed");
}
