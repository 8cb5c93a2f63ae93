// SPDX-License-Identifier: Apache-2.0

// Which thread runs what, and which is woken for it: stealing of timers, the global queue, the
// breaks of the poll, and the figures that count them.

#include <gtest/gtest.h>
#include <verge/runtime.h>
#include <verge/task.h>
#include <verge/time.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <sched/live_scheduler.h>
#include <support/as_default.h>
#include <support/patience.h>
#include <support/restless.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;

/// By its regular processors: the total includes spare ones.
std::uint64_t stolen_by_processors(const runtime& rt) {
  std::uint64_t sum = 0;
  for (const auto& p : rt.stats().processors) sum += p.timers_stolen;
  return sum;
}

TEST(an_idle_processor, fires_the_timers_of_one_that_is_busy) {
  for (const engine e : {engine::hybrid, engine::processor_heap}) {
    runtime rt({.processors = 2, .engine = e});
    // If the machine stalls the monitor may be faster, so repeat until it was not.
    bool fired = true;
    const bool stolen = rt.run([&] {
      return eventually([&] {
        std::atomic<bool> now{false};
        const auto t = after_func(1ms, [&] { now = true; });  // on this processor, which is busy
        fired = eventually([&] { return now.load(); });
        return !fired || stolen_by_processors(rt) != 0;
      });
    });
    EXPECT_TRUE(fired && stolen) << name_of(e);
  }
}

/// It yields to itself, so that the local queue is never empty.
TEST(the_global_queue, is_served_though_the_local_one_is_never_empty) {
  runtime rt({.processors = 1});
  // If the machine stalls a spare one might start instead.
  static_cast<detail::live_scheduler&>(detail::scheduler_of(rt)).limit_spares(0);
  const test::restless busy(rt);
  ASSERT_TRUE(eventually([&] { return busy.turns() > 0; }));
  auto from_outside = rt.spawn([] { return 5; });
  EXPECT_TRUE(eventually([&] { return from_outside.done(); }));
  EXPECT_EQ(from_outside.join(), 5);
}

class poll_breaks : public testing::TestWithParam<engine> {
 protected:
  /// Waits until a thread sleeps in the poller until that time, or a little before: a wheel rounds
  /// down.
  bool sleeps_until(clock::time_point when) const {
    const auto& s = static_cast<const detail::live_scheduler&>(scheduler_);
    const std::int64_t latest = when.time_since_epoch().count();
    const std::int64_t earliest = (when - 15min).time_since_epoch().count();
    return eventually([&] { return s.polls_until() >= earliest && s.polls_until() <= latest; });
  }
  std::uint64_t count() const { return rt.stats().poll_breaks; }
  /// From threads that are distributed over all processors.
  template <class F>
  static void on_every_processor(F&& f) {
    for (unsigned i = 0; i < processors; ++i) std::thread(f).join();
  }

  static constexpr unsigned processors = 3;
  runtime rt{{.processors = processors, .engine = GetParam()}};
  as_default here{rt};
  detail::scheduler& scheduler_ = detail::scheduler_of(rt);
};

TEST_P(poll_breaks, are_made_only_for_an_earlier_timer) {
  const auto start = clock::now();
  verge::timer first = after_func(10h, [] {});
  ASSERT_TRUE(sleeps_until(start + 10h + 1min));
  auto before = count();

  std::vector<verge::timer> later;
  on_every_processor([&] {
    as_default there(rt);
    later.push_back(after_func(11h, [] {}));
    later.push_back(after_func(12h, [] {}));
  });
  EXPECT_EQ(count(), before) << "later ones";
  on_every_processor([&] {
    as_default there(rt);
    for (auto& t : later) t.reset(14h);
    for (auto& t : later) t.reset(13h);
  });
  EXPECT_EQ(count(), before) << "later ones, postponed and advanced";
  for (auto& t : later) t.stop();
  EXPECT_EQ(count(), before) << "later ones stopped";
  first.reset(11h);
  EXPECT_EQ(count(), before) << "the first postponed";
  first.stop();
  EXPECT_EQ(count(), before) << "the first stopped";

  int hours = 9;
  std::vector<verge::timer> earlier;
  on_every_processor([&] {
    as_default there(rt);
    earlier.push_back(after_func(hours * 1h, [] {}));
    EXPECT_TRUE(sleeps_until(start + hours * 1h + 1min));
    EXPECT_EQ(count(), ++before) << "one at " << hours << " h";
    --hours;
  });
  earlier.back().reset(hours * 1h);
  EXPECT_TRUE(sleeps_until(start + hours * 1h + 1min));
  EXPECT_EQ(count(), before + 1) << "one that is advanced";
}

INSTANTIATE_TEST_SUITE_P(engines, poll_breaks,
                         testing::Values(engine::processor_heap, engine::hybrid),
                         [](const auto& p) { return std::string(name_of(p.param)); });

TEST(figures, count_threads_woken_and_timers_stopped) {
  for (const engine e : {engine::hybrid, engine::processor_heap}) {
    runtime rt({.processors = 1, .engine = e});
    as_default here(rt);
    EXPECT_TRUE(eventually([&] {
      after(1ms).recv();
      return rt.stats().total.wakeups > 0 && rt.stats().polls > 0;
    })) << name_of(e);
    // On the only processor: it is not idle, and so does not drop them.
    const bool seen = rt.run([&] {
      std::vector<verge::timer> timers;
      return eventually([&] {
        timers.push_back(after_func(1h, [] {}));
        timers.back().stop();
        return rt.stats().total.timers_deleted > 0;
      });
    });
    EXPECT_TRUE(seen) << name_of(e);
  }
}

}  // namespace
}  // namespace verge::test
