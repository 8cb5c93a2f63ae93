// SPDX-License-Identifier: Apache-2.0

// A periodic flush and a deadline with libevent.

#include <event2/event.h>

#include <cstdio>

namespace {

// [code]
void flush(evutil_socket_t, short, void* count) { ++*static_cast<int*>(count); }
void give_up(evutil_socket_t, short, void* base) {
  event_base_loopbreak(static_cast<event_base*>(base));
}

int run() {
  int count = 0;
  event_base* base = event_base_new();
  const timeval period{0, 10'000};
  const timeval limit{0, 55'000};
  event* ticks = event_new(base, -1, EV_PERSIST, flush, &count);
  event* deadline = evtimer_new(base, give_up, base);
  event_add(ticks, &period);
  event_add(deadline, &limit);
  event_base_dispatch(base);
  event_free(deadline);
  event_free(ticks);
  event_base_free(base);
  return count;
}
// [/code]

}  // namespace

int main() { std::printf("flushed %s\n", run() > 0 ? "some times" : "never"); }
