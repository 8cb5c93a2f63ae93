// SPDX-License-Identifier: Apache-2.0

// verge's timers in libuv's loop.

#include <verge/uv.h>

#include <chrono>
#include <cstdio>
#include <thread>

using namespace std::chrono_literals;

int main() {
  uv_loop_t* loop = uv_default_loop();
  {
    verge::uv_timers timers(loop);
    auto idle = timers.start(30s, [&] { uv_stop(loop); });
    std::jthread other([&] { timers.start(10ms, [&] { timers.reset(idle, 20ms); }); });
    uv_run(loop, UV_RUN_DEFAULT);
  }
  std::puts("closed");
  uv_run(loop, UV_RUN_DEFAULT);  // libuv closes its handle
  return uv_loop_close(loop);
}
