// SPDX-License-Identifier: Apache-2.0

#include <verge/libev.h>

namespace reference_libev {

using namespace std::chrono_literals;

struct client {};
void close(client& c);

void example(client& connection) {
  verge::ev_timers timers(EV_DEFAULT);
  auto t = timers.start(30s, [&] { close(connection); });
  ev_run(EV_DEFAULT, 0);
}

}  // namespace reference_libev
