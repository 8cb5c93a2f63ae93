// SPDX-License-Identifier: Apache-2.0

// Tasks and callbacks that block outside verge::blocking: more of them than processors, and
// everything else continues.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <verge/fd.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <sched/live_scheduler.h>
#include <support/as_default.h>
#include <support/blockers.h>
#include <support/patience.h>
#include <support/restless.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr int processors = 2;

/// A runtime whose processors are all stuck in tasks, until the end of the test.
class stuck_processors : public testing::Test {
 protected:
  void block_all(int callbacks = 0) {
    for (int i = 0; i < processors; ++i) rt.spawn(stuck.block()).detach();
    ASSERT_TRUE(eventually([&] { return stuck.count() == processors; }));
    for (int i = 0; i < callbacks; ++i) after_func(0s, stuck.block()).detach();
    ASSERT_TRUE(eventually([&] { return stuck.count() == processors + callbacks; }))
        << stuck.count();
  }
  /// A timer fires, and a task begins, sleeps and resumes.
  void expect_all_goes_on() {
    std::atomic<bool> fired{false};
    const auto t = after_func(1ms, [&] { fired = true; });
    EXPECT_TRUE(eventually([&] { return fired.load(); })) << "no timer fires";
    auto begun = rt.spawn([]() -> task<int> {
      co_await verge::sleep(1ms);
      co_return 7;
    });
    EXPECT_TRUE(eventually([&] { return begun.done(); })) << "no task begins, or resumes";
    stuck.release();
    EXPECT_EQ(begun.join(), 7);
  }

  runtime rt{{.processors = processors}};
  as_default here{rt};
  blockers stuck;
};

TEST_F(stuck_processors, leave_other_timers_to_a_spare_one) {
  block_all();
  // For a whole second.
  std::mutex lock;
  std::vector<clock::duration> late;
  const auto start = clock::now();
  std::vector<verge::timer> timers;
  for (int i = 1; i <= 20; ++i) {
    const auto due = start + i * 50ms;
    timers.push_back(after_func(due - clock::now(), [&, due] {
      std::lock_guard held(lock);
      late.push_back(clock::now() - due);
    }));
  }
  EXPECT_TRUE(eventually([&] {
    std::lock_guard held(lock);
    return late.size() == timers.size();
  }));
  const auto c = after(1ms);
  EXPECT_TRUE(eventually([&] { return c.size() == 1; }));
  EXPECT_GE(rt.stats().spare_used, 1u);
  std::lock_guard held(lock);
  std::sort(late.begin(), late.end());
  ASSERT_FALSE(late.empty());
  std::printf(
      "with every processor stuck: %zu timers fired, late by %.1f ms (median), %.1f ms (worst)\n",
      late.size(), static_cast<double>(late[late.size() / 2].count()) * 1e-6,
      static_cast<double>(late.back().count()) * 1e-6);
}

/// Each callback starts the next one and blocks, so every single one must be detected: 10 ms each;
/// seconds would be far too slow.
TEST_F(stuck_processors, are_noticed_in_time_again_and_again) {
  constexpr int callbacks = 60;
  block_all();
  std::function<void()> next = [&] {
    if (stuck.count() < processors + callbacks - 1) after_func(0s, next).detach();
    stuck.block()();
  };
  const auto start = clock::now();
  after_func(0s, next).detach();
  EXPECT_TRUE(eventually([&] { return stuck.count() == processors + callbacks; })) << stuck.count();
  std::printf("each was noticed after %.1f ms\n",
              static_cast<double>((clock::now() - start).count()) * 1e-6 / callbacks);
  stuck.release();
  // The callbacks refer to `next`.
  rt.run([] {});
  EXPECT_TRUE(eventually([&] { return rt.stats().total.timers_live == 0; }));
}

TEST_F(stuck_processors, let_timers_fire_and_tasks_begin) {
  block_all();
  expect_all_goes_on();
}

TEST_F(stuck_processors, and_a_hundred_stuck_callbacks_let_timers_fire_and_tasks_begin) {
  block_all(100);
  expect_all_goes_on();
}

/// Three times as many as processors, all of which block.
TEST_F(stuck_processors, are_not_all_that_tasks_can_be_stuck_in) {
  block_all();
  for (int i = 0; i < 2 * processors; ++i) rt.spawn(stuck.block()).detach();
  EXPECT_TRUE(eventually([&] { return stuck.count() == 3 * processors; })) << stuck.count();
  expect_all_goes_on();
}

/// A task's own tasks are put into the queue of the processor it runs on.
TEST_F(stuck_processors, leave_the_tasks_behind_them_to_spare_ones) {
  std::atomic<int> ran{0};
  for (int i = 0; i < processors; ++i) {
    rt.spawn([&] {
        for (int n = 0; n < 100; ++n) go([&] { ++ran; }).detach();
        stuck.block()();
      }).detach();
  }
  EXPECT_TRUE(eventually([&] { return ran == processors * 100; })) << ran;
}

/// For short ones: they do not take a thread or a wait each.
TEST_F(stuck_processors, let_many_tasks_begin_with_few_threads) {
  block_all();
  const auto start = clock::now();
  const auto before = rt.stats().threads;
  std::atomic<int> ran{0};
  for (int i = 0; i < 10'000; ++i) rt.spawn([&] { ++ran; }).detach();
  EXPECT_TRUE(eventually([&] { return ran == 10'000; })) << ran;
  // One starts at first, and another for every 100 ms without progress.
  const auto waits = static_cast<std::uint64_t>((clock::now() - start) / 100ms);
  EXPECT_LE(rt.stats().threads - before, 2 + waits);
}

TEST(slow_tasks, are_not_all_begun_at_once) {
  runtime rt({.processors = processors});
  blockers slow;
  const auto start = clock::now();
  for (int i = 0; i < 1000; ++i) rt.spawn(slow.block()).detach();
  ASSERT_TRUE(eventually([&] { return slow.count() >= processors + 2; }));
  const int begun = slow.count();
  const auto waits = static_cast<int>((clock::now() - start) / 100ms);
  EXPECT_LE(begun, processors + waits) << "one for every 100 ms";
}

/// Callbacks that compute for long are overdue because processor time is short. More threads would
/// make each of them slower, so they start with increasing delays: the n-th 10 ms * 2^n after the
/// previous one.
TEST(computing_callbacks, do_not_take_a_thread_each) {
  runtime rt({.processors = 1});
  as_default here(rt);
  std::atomic<int> computing{0};
  std::atomic<bool> over{false};
  const auto start = clock::now();
  for (int i = 0; i < 100; ++i) {
    after_func(0s, [&] {
      ++computing;
      while (!over) {
      }
    }).detach();
  }
  EXPECT_TRUE(eventually([&] { return computing >= 4 && clock::now() > start + 500ms; }))
      << computing << ": what is stuck in a loop is still helped";
  const auto threads = rt.stats().threads;
  const auto waited = static_cast<double>((clock::now() - start) / 1ms);
  over = true;
  EXPECT_LE(static_cast<double>(threads), 4 + std::log2(waited / 10))
      << "after " << waited << " ms";
  EXPECT_TRUE(eventually([&] { return computing == 100; })) << computing;
}

TEST_F(stuck_processors, let_a_task_resume_that_a_thread_wakes) {
  chan<int> from_outside;
  std::atomic<int> got{0};
  std::atomic<bool> waits{false};
  rt.spawn([&]() -> task<> {
      waits = true;
      got = (co_await verge::recv(from_outside)).value_or(-1);
    }).detach();
  ASSERT_TRUE(eventually([&] { return waits.load(); }));
  block_all();
  verge::send(from_outside, 5).wait();
  EXPECT_TRUE(eventually([&] { return got == 5; })) << got;
}

TEST_F(stuck_processors, let_a_task_resume_that_waits_for_a_pipe) {
  auto [from, to] = make_pipe().or_throw();
  std::atomic<std::size_t> got{0};
  std::atomic<bool> waits{false};
  rt.spawn([&, &in = from]() -> task<> {
      std::array<char, 8> text;
      waits = true;
      got = (co_await in.read_some(text)).bytes;
    }).detach();
  ASSERT_TRUE(eventually([&] { return waits.load(); }));
  block_all();
  EXPECT_TRUE(to.write_all("hello").wait());
  EXPECT_TRUE(eventually([&] { return got == 5; })) << got;
}

/// A task that always has something to do does not monopolize a spare processor.
TEST_F(stuck_processors, are_helped_though_a_spare_one_is_always_busy) {
  block_all();
  const test::restless busy(rt);
  EXPECT_TRUE(eventually([&] { return busy.turns() > 1000; })) << busy.turns();
  std::atomic<bool> fired{false};
  const auto t = after_func(1ms, [&] { fired = true; });
  EXPECT_TRUE(eventually([&] { return fired.load(); }));
  auto other = rt.spawn([] {});
  EXPECT_TRUE(eventually([&] { return other.done(); }));
}

/// The other processor is never idle, so it does not look for something to take over: the monitor
/// tells it to.
TEST(a_stuck_processor, leaves_its_timers_to_another_that_is_always_busy) {
  runtime rt({.processors = 2});
  const restless busy(rt);
  for (int i = 0; i < 3; ++i) {
    blockers stuck;
    std::atomic<bool> fired{false};
    auto task = rt.spawn([&] {
      after_func(1ms, [&] { fired = true; }).detach();
      stuck.block()();
    });
    EXPECT_TRUE(eventually([&] { return fired.load(); }));
    stuck.release();
    task.join();
  }
}

TEST(stuck_callbacks, leave_what_had_fired_with_them_to_a_spare_processor) {
  for (const engine e : engines()) {
    runtime rt({.processors = 1, .engine = e});
    as_default here(rt);
    blockers stuck;
    std::atomic<int> ran{0};
    // All due at once: they are in the queue of the processor that is stuck in the first.
    std::vector<verge::timer> timers;
    const auto when = clock::now() + 5ms;
    for (int i = 0; i < 50; ++i) {
      timers.push_back(after_func(1min, [&] {
        if (ran++ == 0) stuck.block()();
      }));
      timers.back().reset_at(when);
    }
    EXPECT_TRUE(eventually([&] { return ran == 50; })) << ran << " with " << name_of(e);
    auto begun = rt.spawn([] {});
    EXPECT_TRUE(eventually([&] { return begun.done(); })) << "with " << name_of(e);
    stuck.release();
  }
}

TEST_F(stuck_processors, are_helped_by_a_limited_number_of_spare_ones_and_then_reported_once) {
  auto& scheduler = static_cast<detail::live_scheduler&>(detail::scheduler_of(rt));
  scheduler.limit_spares(3);
  testing::internal::CaptureStderr();
  block_all(3);
  std::atomic<bool> fired{false};
  const auto t = after_func(0s, [&] { fired = true; });
  // Once the timer is overdue, every run of the monitor detects it.
  const auto overdue = clock::now() + 20ms;
  ASSERT_TRUE(eventually([&] { return clock::now() > overdue; }));
  const auto looks = rt.stats().monitor_wakeups;
  EXPECT_TRUE(eventually([&] { return rt.stats().monitor_wakeups > looks + 20; }));
  EXPECT_FALSE(fired);
  stuck.release();
  EXPECT_TRUE(eventually([&] { return fired.load(); }));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("verge: 5 tasks or callbacks block"));
  EXPECT_THAT(said, HasSubstr("Call what blocks through verge::blocking()"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

/// It fires no more than it can queue: what does not fit would be put on the global queue, behind
/// what fires later.
TEST_F(stuck_processors, leave_many_timers_to_a_spare_one_which_calls_back_in_their_order) {
  static_cast<detail::live_scheduler&>(detail::scheduler_of(rt)).limit_spares(1);
  block_all();
  constexpr int count = 2000;
  std::vector<int> called;  // by one thread, the spare's
  called.reserve(count);
  std::atomic<int> done{0};
  const auto due = clock::now() + 30ms;
  std::vector<verge::timer> timers;
  timers.reserve(count);
  for (int i = 0; i < count; ++i) {
    timers.push_back(after_func(due + i * 1ns, [&, i] {
      called.push_back(i);
      ++done;
    }));
  }
  ASSERT_TRUE(eventually([&] { return done == count; })) << done;
  EXPECT_TRUE(std::is_sorted(called.begin(), called.end()));
}

/// One that has done its work rests, and is used again.
TEST_F(stuck_processors, are_helped_again_and_again_by_the_same_few_spare_ones) {
  static_cast<detail::live_scheduler&>(detail::scheduler_of(rt)).limit_spares(3);
  for (int round = 0; round < 12; ++round) {
    blockers now;
    for (int i = 0; i < processors; ++i) rt.spawn(now.block()).detach();
    ASSERT_TRUE(eventually([&] { return now.count() == processors; })) << "in round " << round;
    std::atomic<bool> fired{false};
    const auto t = after_func(0s, [&] { fired = true; });
    ASSERT_TRUE(eventually([&] { return fired.load(); })) << "in round " << round;
  }
}

/// Then there is no limit, and no spare processor: the others are free.
TEST(blocking_calls, that_say_so_are_not_limited_in_number) {
  runtime rt({.processors = processors});
  as_default here(rt);
  blockers stuck;
  static_cast<detail::live_scheduler&>(detail::scheduler_of(rt)).limit_spares(0);
  for (int i = 0; i < 20; ++i) {
    after_func(0s, [block = stuck.block()] { verge::blocking(block); }).detach();
  }
  EXPECT_TRUE(eventually([&] { return stuck.count() == 20; })) << stuck.count();
  EXPECT_EQ(rt.run([] { return 3; }), 3);
}

}  // namespace
}  // namespace verge::test
