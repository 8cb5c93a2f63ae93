// SPDX-License-Identifier: Apache-2.0

// Timers beyond the first example: periodic timers, missed ticks, time points, slack, precise
// timers, and errors. And the use of an explicit runtime.

#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <verge/chan.h>
#include <verge/runtime.h>
#include <verge/simulation.h>
#include <verge/task.h>
#include <verge/time.h>

using namespace std::chrono_literals;

namespace {

// every() calls a function on a fixed grid: a late call does not delay the next one.
void repeat() {
  const verge::chan<int> done;
  int calls = 0;
  const auto t = verge::every(1ms, [&, done] {
    if (++calls == 3) done.close();
  });
  done.recv();
  std::printf("called three times\n");
}  // the handle is destroyed, which stops the ticker

// tick() returns a channel that ticks until it is dropped.
void tick() {
  int n = 0;
  for ([[maybe_unused]] const auto at : verge::tick(1ms)) {
    if (++n == 3) break;
  }
  std::printf("ticked three times\n");
}

// A receiver that is too slow for a ticker finds one tick waiting, or all of them, or a ticker that
// continues a full period later. In simulated time, where this is exact: no receive from 10 ms to
// 34.
void catch_up(const char* name, verge::missed_ticks policy) {
  verge::simulation sim;
  const auto start = verge::clock::now();
  const verge::ticker t(10ms, policy);
  t.c().recv();
  verge::sleep(24ms).wait();
  std::printf("%s:", name);
  for (int i = 0; i < 4; ++i) {
    const auto due = t.c().recv();
    std::printf(" %d(%d)", static_cast<int>((verge::clock::now() - start) / 1ms),
                static_cast<int>((*due - start) / 1ms));
  }
  std::printf("\n");
}

// Time points in place of delays: for what must not drift, and for deadlines that others set.
void at_a_time() {
  const auto start = verge::clock::now();
  verge::timer t(1h);
  const bool was_pending = t.reset_at(start + 2ms);
  const auto fired = t.c().recv();
  verge::sleep_until(start + 5ms).wait();
  std::printf("moved: %s, on time: %s, slept: %s\n", was_pending ? "yes" : "no",
              *fired >= start + 2ms ? "yes" : "early",
              verge::clock::now() >= start + 5ms ? "yes" : "no");
}

// Timers with slack fire together, with one wake-up for all.
void late_together() {
  const verge::chan<int> fired(100);
  std::vector<verge::timer> timers;
  timers.reserve(100);
  for (int i = 0; i < 100; ++i) {
    timers.push_back(verge::after_func(10ms + i * 10us, [=] { fired.send(i); }, {.slack = 20ms}));
  }
  for (int i = 0; i < 100; ++i) fired.recv();
  std::printf("a hundred timers with slack have fired\n");
}

// A precise timer fires within about a microsecond where a core is free: a thread wakes early and
// waits awake for the rest. So can a ticker, a sleep, and the deadline of a socket.
void to_the_microsecond() {
  const auto due = verge::clock::now() + 5ms;
  verge::sleep_until(due, {.precise = true}).wait();
  const verge::ticker t(1ms, verge::missed_ticks::skip, {.precise = true});
  for (int i = 0; i < 3; ++i) t.c().recv();
  std::printf("slept: %s\n", verge::clock::now() >= due + 3ms ? "yes" : "no");
}

// Another engine: timers of this one fire at the tick after their time.
void another_engine() {
  verge::runtime rt{{.engine = verge::engine::timing_wheel, .wheel = {.tick = 10ms, .size = 512}}};
  verge::sleep(rt, 1ms).wait();
  std::printf("a tick of another engine\n");
}

// An explicit runtime: a number of processors, and a handler for exceptions.
void own_runtime() {
  const verge::chan<std::string> failures(1);
  verge::runtime rt({.processors = 1, .on_exception = [=](const std::exception_ptr& e) {
                       try {
                         std::rethrow_exception(e);
                       } catch (const std::exception& what) {
                         failures.send(what.what());
                       }
                     }});
  rt.run([] { verge::after_func(1ms, [] { throw std::runtime_error("no paper"); }).detach(); });
  std::printf("the handler has got: %s\n", failures.recv()->c_str());

  // The number of processors can be changed at any time.
  rt.set_processors(2);
  std::printf("%u processors\n", rt.processors());

  // A call that blocks is wrapped in blocking(): its processor runs others meanwhile.
  const int sum = rt.run([]() -> verge::task<int> {
    auto slow = verge::go([] {
      return verge::blocking([] {
        std::this_thread::sleep_for(2ms);  // for example a read from a disk
        return 40;
      });
    });
    co_return co_await slow + 2;
  });
  std::printf("%d\n", sum);
}

}  // namespace

int main() {
  repeat();
  tick();
  catch_up("skip", verge::missed_ticks::skip);
  catch_up("burst", verge::missed_ticks::burst);
  catch_up("delay", verge::missed_ticks::delay);
  at_a_time();
  late_together();
  to_the_microsecond();
  another_engine();
  own_runtime();
}
