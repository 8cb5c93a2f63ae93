// SPDX-License-Identifier: Apache-2.0

// Which thread runs what, and which is woken for it: stealing of timers, the global queue, the
// breaks of the poll, and the figures that count them.

#include <gtest/gtest.h>
#include <verge/runtime.h>
#include <verge/task.h>
#include <verge/time.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include <base/this_thread.h>
#include <sched/live_scheduler.h>
#include <support/as_default.h>
#include <support/blockers.h>
#include <support/fake_engine.h>
#include <support/patience.h>
#include <support/restless.h>
#include <timer/callback.h>

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

/// The queue of the processor is nearly full of tasks when many timers fire at once.
TEST(a_batch_of_timers, that_does_not_fit_into_the_queue_is_called_all_the_same) {
  runtime rt({.processors = 1});
  const as_default here(rt);
  auto& s = static_cast<detail::live_scheduler&>(detail::scheduler_of(rt));
  constexpr std::size_t many = 300;
  std::atomic<std::size_t> called{0};
  rt.run([&] {
    std::vector<detail::engine_host::firing> due;
    for (std::size_t i = 0; i < many; ++i) {
      detail::timer_node& t = detail::make_func_timer(s.timers(), [&called] { ++called; });
      due.push_back({.timer = &t, .when = 1});
      go([] {}).detach();
    }
    // As an engine does with what it has taken off a queue, and with its references.
    static_cast<detail::engine_host&>(s).fire_all(due, s.now());
  });
  EXPECT_TRUE(eventually([&] { return called == many; })) << called;
}

/// It comes from a thread of an engine, and goes before tasks that have waited longer.
TEST(a_callback, that_has_fired_on_another_thread_does_not_wait_behind_tasks) {
  runtime rt({.processors = 1});
  auto& s = static_cast<detail::live_scheduler&>(detail::scheduler_of(rt));
  s.limit_spares(0);
  std::vector<int> order;
  blockers busy;
  rt.spawn(busy.block()).detach();
  ASSERT_TRUE(eventually([&] { return busy.count() == 1; }));
  auto first = rt.spawn([&] { order.push_back(1); });
  auto second = rt.spawn([&] { order.push_back(2); });
  detail::timer_node& t = detail::make_func_timer(s.timers(), [&order] { order.push_back(0); });
  detail::this_thread.drives_engine = true;
  detail::fire_callback(t, s.now());
  detail::this_thread.drives_engine = false;
  busy.release();
  first.join();
  second.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  detail::destroy_timer(t);
}

/// What it takes to wake up is learned from sleeps that a timer has ended.
TEST(a_worker, that_has_slept_without_a_timer_learns_nothing) {
  class learning_engine final : public fake_engine {
   public:
    void come_up_early(std::int64_t ns) noexcept override {
      ++times;
      most = std::max(most.load(), ns);
    }
    std::atomic<int> times{0};
    std::atomic<std::int64_t> most{0};
  };
  clockwork_on<learning_engine> fake(1);
  detail::live_scheduler& s = fake.scheduler();
  const int before = fake.engine().times;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(eventually([&] { return s.running() == 0 && s.polls_until() == INT64_MAX; }));
    const std::uint64_t woken = s.net()->statistics().wake_ups;
    ASSERT_TRUE(eventually([&] {
      s.net()->break_poll();  // again, in case that the last poll has taken it with its own
      return s.net()->statistics().wake_ups != woken;
    }));
  }
  EXPECT_EQ(fake.engine().times, before) << fake.engine().most << " ns";
}

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
