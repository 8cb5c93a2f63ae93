// SPDX-License-Identifier: Apache-2.0

#include <verge/queue.h>
#include <verge/verge.h>

namespace reference_queue {

using namespace std::chrono_literals;

struct client {};
void close(client& c);
void wait_for_events(std::optional<std::chrono::steady_clock::time_point> until);
void handle_events();
std::chrono::steady_clock::time_point now();

void example(client& connection) {
  verge::timer_queue timers;
  auto t = timers.start(now() + 30s, [&] { close(connection); });
  for (;;) {
    wait_for_events(timers.next());  // until then, or without end
    handle_events();                 // some say timers.reset(t, now() + 30s)
    timers.run(now());
  }
}

void another_clock(verge::basic_timer_queue<std::function<void()>, verge::clock>::id t) {
  verge::basic_timer_queue<std::function<void()>, verge::clock> timers;
  timers.reset(t, verge::clock::fast_now() + 30s);  // a deadline: fast, at most 1 us late
  timers.run(verge::clock::now());                  // what is due: exact
}

}  // namespace reference_queue
