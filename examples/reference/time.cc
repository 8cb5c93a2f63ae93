// SPDX-License-Identifier: Apache-2.0

#include <verge/time.h>
#include <verge/verge.h>

#include <mutex>

namespace reference_time {

using namespace std::chrono_literals;

void remind(int customer);
void poll(verge::time_point at);
struct client {
  verge::timer idle;
};

verge::task<> example(int customer) {
  auto reminder = verge::after_func(3min, [=] { remind(customer); });  // calls back later
  reminder.stop();                                                     // true: it will never run
  reminder.reset(1h, {.slack = 1s});                                   // again, up to 1 s late
  reminder.reset(10ms, {.precise = true});  // to the microsecond, for some CPU

  verge::timer t(30s);  // or a channel that gets the time
  auto when = t.c().recv();

  co_await verge::sleep(10ms);  // in a coroutine
  verge::sleep(10ms).wait();    // on a plain thread

  verge::ticker tk(100ms);  // periodic
  for (auto at : tk.c()) poll(at);
}

void destroyed_without_the_mutex(client& connection, std::mutex& mutex) {
  verge::timer old;
  {
    std::lock_guard held(mutex);
    old = std::move(connection.idle);  // `old` was empty: nothing to wait for
    old.stop();                        // does not wait
  }                                    // `old` is destroyed without the mutex
}

}  // namespace reference_time
