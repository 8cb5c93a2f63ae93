// SPDX-License-Identifier: Apache-2.0

// verge's timers in a loop of one's own: the loop watches one more descriptor.

#include <sys/epoll.h>
#include <verge/loop.h>

#include <chrono>
#include <cstdio>
#include <thread>

using namespace std::chrono_literals;

int main() {
  verge::loop_timers timers;
  const int loop = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {.fd = timers.fd()}};
  ::epoll_ctl(loop, EPOLL_CTL_ADD, timers.fd(), &event);

  bool open = true;
  auto idle = timers.start(30s, [&] { open = false; });
  std::jthread other([&] { timers.start(10ms, [&] { timers.reset(idle, 20ms); }); });
  while (open) {
    const int n = ::epoll_wait(loop, &event, 1, -1);
    if (n == 1 && event.data.fd == timers.fd()) timers.run();
  }
  std::puts("closed");
}
