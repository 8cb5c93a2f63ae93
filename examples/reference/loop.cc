// SPDX-License-Identifier: Apache-2.0

#include <verge/loop.h>
#include <verge/verge.h>

#include <sys/epoll.h>

#include <iterator>
#include <span>

namespace reference_loop {

using namespace std::chrono_literals;

struct client {};
void close(client& c);
void handle(const epoll_event& e);

void example(int loop, client& connection) {
  epoll_event events[64];
  verge::loop_timers timers;
  epoll_event timer_event{.events = EPOLLIN, .data = {.fd = timers.fd()}};
  epoll_ctl(loop, EPOLL_CTL_ADD, timers.fd(), &timer_event);
  auto idle = timers.start(30s, [&] { close(connection); });
  for (;;) {
    const int n = epoll_wait(loop, events, std::size(events), -1);
    for (const auto& e : std::span(events, static_cast<std::size_t>(n)))
      if (e.data.fd == timers.fd())
        timers.run();
      else
        handle(e);  // which says timers.reset(idle, 30s)
  }
}

}  // namespace reference_loop
