// SPDX-License-Identifier: Apache-2.0

#include <verge/glib.h>

namespace reference_glib {

using namespace std::chrono_literals;

struct client {};
void close(client& c);

void example(GMainLoop* loop, client& connection) {
  verge::glib_timers timers(g_main_context_default());
  auto t = timers.start(30s, [&] { close(connection); });
  g_main_loop_run(loop);
}

}  // namespace reference_glib
