// SPDX-License-Identifier: Apache-2.0

#include <verge/libevent.h>

namespace reference_libevent {

using namespace std::chrono_literals;

struct client {};
void close(client& c);

void example(event_base* base, client& connection) {
  verge::event_timers timers(base);
  auto t = timers.start(30s, [&] { close(connection); });
  event_base_dispatch(base);
}

}  // namespace reference_libevent
