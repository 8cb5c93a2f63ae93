// SPDX-License-Identifier: Apache-2.0

// A thread may lose its core anywhere, for as long as the kernel likes. Other threads' timers and
// tasks do not wait for it: wherever it was on its way to wake a thread, another one does.
//
// Each test makes a thread stay at its first call of the kernel or of a lock, then at its second,
// and so on, until the operation has none left. As long as it stays there, what others start must
// fire and run.

#include <gtest/gtest.h>
#include <verge/log.h>
#include <verge/runtime.h>
#include <verge/task.h>
#include <verge/time.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include <base/this_thread.h>
#include <clock/true_clock.h>
#include <net/poller.h>
#include <sched/live_scheduler.h>
#include <support/as_default.h>
#include <support/blockers.h>
#include <support/fake_engine.h>
#include <support/patience.h>
#include <support/stuck_at.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;

/// So many threads cannot be started, from now on.
std::atomic<int> threads_to_fail{0};

bool is_a_worker() noexcept { return detail::this_thread.as_worker != nullptr; }

struct setting {
  engine with = engine::hybrid;
  unsigned processors = 2;
  bool deep = false;  ///< everything has been idle for so long that the monitor sleeps
};

class a_stuck_thread : public testing::Test {
 protected:
  /// What another thread starts while one is stuck.
  static void expect_all_goes_on(runtime& rt, const std::string& where) {
    std::atomic<bool> fired{false};
    clock::time_point at;
    const auto begin = clock::now();
    std::thread([&] {
      as_default there(rt);
      const verge::timer t = after_func(5ms, [&] {
        at = clock::now();
        fired = true;
      });
      EXPECT_TRUE(eventually([&] { return fired.load(); })) << "no timer fires: " << where;
      auto begun = rt.spawn([] { return 7; });
      EXPECT_TRUE(eventually([&] { return begun.done(); })) << "no task begins: " << where;
      stuck_at::let_go();
      EXPECT_EQ(begun.join(), 7);
    }).join();
    late_ = std::max<clock::duration>(late_, at - begin - 5ms);
  }

  static void wait_until_idle(runtime& rt, const setting& s) {
    auto& scheduler = static_cast<detail::live_scheduler&>(detail::scheduler_of(rt));
    {  // an engine that has a thread has started it
      as_default here(rt);
      after(1ms).recv();
    }
    rt.spawn([] {}).join();
    ASSERT_TRUE(eventually([&] { return scheduler.polls_until() != 0; }));
    if (s.deep) {
      ASSERT_TRUE(eventually([&] { return scheduler.monitor_sleeps(); }));
    }
  }

  /// Runs `operation` on a thread that gets stuck at each of its calls in turn. Returns how many it
  /// has.
  static int at_each_call(const setting& s, const std::function<void(runtime&)>& operation) {
    for (int n = 1;; ++n) {
      runtime rt({.processors = s.processors, .engine = s.with});
      wait_until_idle(rt, s);
      unlucky_thread unlucky(n, [&] {
        as_default there(rt);
        operation(rt);
      });
      if (unlucky.stuck()) {
        expect_all_goes_on(rt, std::string(name_of(s.with)) + ", call " + std::to_string(n));
      }
      unlucky.end();
      if (!unlucky.stuck() || HasFailure()) return n - 1;
    }
  }

  /// The same for a worker, while a timer fires and a task runs.
  static int at_each_call_of_a_worker(const setting& s) {
    int hits = 0;
    for (int n = 1; n <= 6; ++n) {
      runtime rt({.processors = s.processors, .engine = s.with});
      wait_until_idle(rt, s);
      as_default here(rt);
      stuck_at point(n, &is_a_worker);
      std::atomic<bool> fired{false};
      const verge::timer first = after_func(1ms, [&] { fired = true; });
      auto task = rt.spawn([] {});
      EXPECT_TRUE(eventually([&] { return stuck_at::reached() || (fired && task.done()); }));
      if (stuck_at::reached()) {
        ++hits;
        expect_all_goes_on(rt, std::string(name_of(s.with)) + ", call " + std::to_string(n));
      }
      stuck_at::let_go();
      task.join();
    }
    return hits;
  }

  static void start_a_timer(runtime&) {
    after_func(1ms, [] {}).detach();
  }
  static void start_a_task(runtime& rt) {
    rt.spawn([] {}).detach();
  }

  void TearDown() override {
    RecordProperty("latest_us", static_cast<int>(late_ / 1us));
    std::printf("at most %.1f ms late\n", static_cast<double>(late_.count()) / 1e6);
  }
  void SetUp() override { late_ = {}; }

  inline static clock::duration late_{};
};

TEST_F(a_stuck_thread, that_starts_a_timer_delays_no_other) {
  EXPECT_GE(at_each_call({}, start_a_timer), 1) << "it breaks the poll";
}
TEST_F(a_stuck_thread, that_starts_a_timer_delays_no_other_while_the_monitor_sleeps) {
  EXPECT_GE(at_each_call({.deep = true}, start_a_timer), 1);
}
TEST_F(a_stuck_thread, that_starts_a_timer_delays_no_other_whatever_the_engine) {
  for (const engine e : {engine::processor_heap, engine::global_heap, engine::sharded_heap}) {
    EXPECT_GE(at_each_call({.with = e}, start_a_timer), 1) << name_of(e);
  }
  // Whose threads may wake at the next tick anyway.
  at_each_call({.with = engine::simple_wheel}, start_a_timer);
  // Not timing_wheel: it allocates with its lock held.
}
TEST_F(a_stuck_thread, that_starts_a_task_delays_no_other) {
  EXPECT_GE(at_each_call({}, start_a_task), 2) << "it takes a lock, and wakes a worker";
}
TEST_F(a_stuck_thread, that_starts_a_task_delays_no_other_while_the_monitor_sleeps) {
  EXPECT_GE(at_each_call({.deep = true}, start_a_task), 2);
}
TEST_F(a_stuck_thread, that_is_a_worker_delays_no_other) {
  EXPECT_GE(at_each_call_of_a_worker({}), 2);
}
TEST_F(a_stuck_thread, that_is_a_worker_delays_no_other_while_the_monitor_sleeps) {
  EXPECT_GE(at_each_call_of_a_worker({.deep = true}), 2);
}
TEST_F(a_stuck_thread, that_has_the_only_processor_delays_no_other) {
  EXPECT_GE(at_each_call_of_a_worker({.processors = 1, .deep = true}), 2);
}

/// The monitor would end the poll, too, but milliseconds later.
TEST(a_break, reaches_the_poll_though_the_thread_that_came_first_is_stuck) {
  detail::poller p;
  std::atomic<bool> ended{false};
  std::thread polls([&] {
    p.poll(-1);
    ended = true;
  });
  ASSERT_TRUE(eventually([&] { return p.statistics().blocking_polls == 1; }));
  {
    stuck_at point(1, &is_the_unlucky);
    std::thread first([&] {
      is_to_be_stuck = true;
      p.break_poll();
    });
    ASSERT_TRUE(eventually([&] { return stuck_at::reached(); }));
    EXPECT_FALSE(ended);
    p.break_poll();
    EXPECT_TRUE(eventually([&] { return ended.load(); }));
    stuck_at::let_go();
    first.join();
  }
  p.break_poll();
  polls.join();
}

/// The worker that comes from the poller stays where it is about to take a processor. So no worker
/// polls, and the next timer relies on the monitor, which that worker has to have woken.
TEST(a_worker, that_is_stuck_on_its_way_from_the_poller_has_woken_the_monitor) {
  constexpr std::int64_t hour = 3'600'000'000'000;
  bool any = false;
  for (int n = 1; n <= 4; ++n) {
    fake_clockwork fake(2);
    detail::live_scheduler& s = fake.scheduler();
    const std::int64_t far = detail::true_now() + hour;
    fake.engine().set(0, far);
    s.wake_net_poller(far);
    ASSERT_TRUE(eventually([&] { return s.polls_until() == far && s.monitor_sleeps(); }));
    const auto polls = [&] { return s.net()->statistics().blocking_polls; };
    const std::uint64_t before = polls();
    stuck_at point(n, &is_a_worker);
    s.net()->break_poll();
    ASSERT_TRUE(eventually([&] { return stuck_at::reached() || polls() != before; }));
    if (stuck_at::reached() && s.polls_until() == 0) {
      any = true;
      fake.engine().set(0, detail::true_now());  // and no thread is told
      EXPECT_TRUE(eventually([&] { return fake.engine().ran() == 1; })) << "at call " << n;
    }
    stuck_at::let_go();
  }
  EXPECT_TRUE(any);
}

thread_local bool is_exempt = false;

bool is_another_worker() noexcept { return is_a_worker() && !is_exempt; }

/// A worker spins, and a thread that makes something ready relies on it. The worker then finds
/// something else, and no other spins: it has to look once more, at every queue. The monitor would
/// hide it if it did not.
TEST(a_spinning_worker, that_finds_something_starts_another_for_what_is_left_in_a_third_queue) {
  detail::monitor::switch_off();
  {
    runtime rt({.processors = 3});
    detail::monitor::switch_on();
    blockers busy;
    std::atomic<bool> begun{false};
    std::atomic<bool> make_it_ready{false};
    std::atomic<bool> is_ready{false};
    std::atomic<bool> ran{false};
    auto first = rt.spawn([&] {
      is_exempt = true;
      begun = true;
      while (!make_it_ready) std::this_thread::sleep_for(1ms);
      go([&] { ran = true; }).detach();  // into the queue of this processor
      is_ready = true;
      while (!ran) std::this_thread::sleep_for(1ms);
      is_exempt = false;
    });
    ASSERT_TRUE(eventually([&] { return begun.load(); }));
    stuck_at point(1, &is_another_worker);
    rt.spawn(busy.block()).detach();  // a worker is started, and stays where it takes this
    ASSERT_TRUE(eventually([&] { return stuck_at::reached(); }));
    make_it_ready = true;
    ASSERT_TRUE(eventually([&] { return is_ready.load(); }));
    stuck_at::let_go();
    EXPECT_TRUE(eventually([&] { return ran.load(); })) << "beside an idle processor";
    ran = true;
    first.join();
    busy.release();
  }
}

/// A thread cannot be started: no other thread relies on it.
TEST(a_worker, that_could_not_be_started_is_started_for_the_next_task) {
  detail::monitor::switch_off();
  {
    runtime rt({.processors = 2});
    detail::monitor::switch_on();
    blockers busy;
    rt.spawn(busy.block()).detach();
    ASSERT_TRUE(eventually([&] { return busy.count() == 1; }));
    // Each of them wants a thread until there is one for the second processor.
    threads_to_fail = 1;
    auto first = rt.spawn([] {});
    EXPECT_TRUE(eventually([&] { return threads_to_fail == 0 || first.done(); }));
    threads_to_fail = 0;
    auto second = rt.spawn([] {});
    EXPECT_TRUE(eventually([&] { return second.done(); })) << "beside an idle processor";
    busy.release();
    first.join();
    second.join();
  }
}

/// The only worker sleeps in the poller. There is no thread for another one, nor a monitor. On a
/// loaded machine the first task may come while a worker is on its way to sleep, which starts a
/// second one: then once more.
TEST(a_worker, that_could_not_be_started_leaves_its_task_to_the_one_in_the_poller) {
  bool tried = false;
  for (int attempt = 0; attempt != 1'000 && !tried; ++attempt) {
    detail::monitor::switch_off();
    runtime rt({.processors = 1});
    detail::monitor::switch_on();
    auto& s = static_cast<detail::live_scheduler&>(detail::scheduler_of(rt));
    rt.spawn([] {}).join();
    ASSERT_TRUE(eventually([&] { return s.polls_until() != 0; }));
    if (s.workers_started() != 1) {
      continue;
    }
    tried = true;
    threads_to_fail = 1'000'000;
    auto waits = rt.spawn([] {});
    EXPECT_TRUE(eventually([&] { return waits.done(); })) << "beside an idle processor";
    threads_to_fail = 0;
    waits.join();
  }
  EXPECT_TRUE(tried);
}

std::mutex warning_lock;
std::string last_warning;

/// The processor is stuck, and no other thread can be created.
TEST(a_worker, that_could_not_be_started_is_reported_with_the_number_of_those_that_block) {
  const log_handler before = set_log_handler([](log_level, std::string_view text) noexcept {
    std::lock_guard held(warning_lock);
    last_warning = text;
  });
  {
    runtime rt({.processors = 1});
    blockers busy;
    rt.spawn(busy.block()).detach();
    ASSERT_TRUE(eventually([&] { return busy.count() == 1; }));
    threads_to_fail = 1'000'000;
    auto waits = rt.spawn([] {});
    // On a loaded machine a thread may have been started before: then that one runs the task.
    EXPECT_TRUE(eventually([&] {
      std::lock_guard held(warning_lock);
      return waits.done() ||
             last_warning.starts_with("1 tasks or callbacks block, and no thread can be started");
    })) << last_warning;
    threads_to_fail = 0;
    EXPECT_TRUE(eventually([&] { return waits.done(); })) << "a thread can be created again";
    busy.release();
    waits.join();
  }
  set_log_handler(before);
}

}  // namespace
}  // namespace verge::test

// NOLINTBEGIN: a replacement has the name and the type of what it replaces.
extern "C" int pthread_create(pthread_t* made, const pthread_attr_t* with, void* (*f)(void*),
                              void* argument) noexcept {
  int left = verge::test::threads_to_fail;
  while (left > 0 && !verge::test::threads_to_fail.compare_exchange_weak(left, left - 1)) {
  }
  if (left > 0) return EAGAIN;
  return VERGE_ORIGINAL(pthread_create)(made, with, f, argument);
}
// NOLINTEND
