// SPDX-License-Identifier: Apache-2.0

// verge's timers in GLib's main loop, as a GTK program would use them.

#include <verge/glib.h>

#include <chrono>
#include <cstdio>
#include <thread>

using namespace std::chrono_literals;

int main() {
  GMainLoop* loop = g_main_loop_new(nullptr, 0);
  {
    verge::glib_timers timers;
    auto idle = timers.start(30s, [&] { g_main_loop_quit(loop); });
    std::jthread other([&] { timers.start(10ms, [&] { timers.reset(idle, 20ms); }); });
    g_main_loop_run(loop);
  }
  std::puts("closed");
  g_main_loop_unref(loop);
}
