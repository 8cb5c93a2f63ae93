// SPDX-License-Identifier: Apache-2.0

// verge's timers in libevent's loop.

#include <verge/libevent.h>

#include <chrono>
#include <cstdio>
#include <thread>

using namespace std::chrono_literals;

int main() {
  event_base* base = event_base_new();
  {
    verge::event_timers timers(base);
    auto idle = timers.start(30s, [&] { event_base_loopbreak(base); });
    std::jthread other([&] { timers.start(10ms, [&] { timers.reset(idle, 20ms); }); });
    event_base_dispatch(base);
  }
  std::puts("closed");
  event_base_free(base);
}
