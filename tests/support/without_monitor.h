// SPDX-License-Identifier: Apache-2.0
// Runtimes without the monitor, which would make up milliseconds later for what a worker misses;
// and the test in the place of the monitor, with times of its own.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include <clock/true_clock.h>
#include <sched/live_scheduler.h>
#include <support/patience.h>
#include <verge/runtime.h>
#include <verge/time.h>

namespace verge::test {

/// Runtimes that are made while it exists have no monitor.
class no_monitor {
 public:
  no_monitor() { detail::monitor::switch_off(); }
  ~no_monitor() { detail::monitor::switch_on(); }
  no_monitor(const no_monitor&) = delete;
  no_monitor& operator=(const no_monitor&) = delete;
};

inline std::unique_ptr<runtime> without_monitor(unsigned processors) {
  const no_monitor here;
  return std::make_unique<runtime>(runtime_options{.processors = processors});
}

inline detail::live_scheduler& scheduler_of(runtime& rt) {
  return static_cast<detail::live_scheduler&>(detail::scheduler_of(rt));
}

/// No processor is held, and a worker sleeps in the poller.
inline bool eventually_idle(const detail::live_scheduler& s) {
  return eventually([&] { return s.running() == 0 && s.polls_until() != 0; });
}

/// Wakes the thread that sleeps in the poller, for a timer that comes earlier each time, until none
/// sleeps there: if all processors are held it finds none to acquire. Returns the timer.
inline timer wake_sleeper(runtime& rt, const detail::live_scheduler& s) {
  std::chrono::seconds earlier = std::chrono::hours(1000);
  timer breaks = after_func(rt, earlier, [] {});
  EXPECT_TRUE(eventually([&] {
    breaks.reset(earlier -= std::chrono::seconds(10));
    return s.polls_until() == 0;
  }));
  return breaks;
}

/// What the monitor would do, at times that the test gives it.
class [[gnu::visibility("hidden")]] looks {
 public:
  explicit looks(detail::live_scheduler & at) : at_(at), begin_(detail::true_now()) {}
  void look(std::int64_t after) { at_.as_watched().sysmon_look(begin_ + after); }

 private:
  detail::live_scheduler& at_;
  std::int64_t begin_;
};

}  // namespace verge::test
