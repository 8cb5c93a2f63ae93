// SPDX-License-Identifier: Apache-2.0

// What workers do without the monitor, which would make up for it milliseconds later; and what the
// monitor does at which of its looks: there the test takes its place, with times of its own.

#include <gtest/gtest.h>
#include <verge/chan.h>
#include <verge/fd.h>
#include <verge/runtime.h>
#include <verge/task.h>
#include <verge/time.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include <base/this_thread.h>
#include <clock/true_clock.h>
#include <sched/live_scheduler.h>
#include <support/as_default.h>
#include <support/blockers.h>
#include <support/fake_engine.h>
#include <support/patience.h>
#include <support/stuck_at.h>
#include <support/without_monitor.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t ms = 1'000'000;

/// The worker that was woken by the first timer is in its callback, and another one sleeps and does
/// not poll.
TEST(a_timer, fires_though_no_worker_polls_when_it_is_started) {
  const auto rt = without_monitor(2);
  ASSERT_TRUE(eventually_idle(scheduler_of(*rt)));
  const blockers busy;
  after_func(*rt, 1ms, busy.block()).detach();
  ASSERT_TRUE(eventually([&] { return busy.count() == 1; }));
  ASSERT_EQ(scheduler_of(*rt).polls_until(), 0);
  std::atomic<bool> fired{false};
  const verge::timer next = after_func(*rt, 1ms, [&] { fired = true; });
  EXPECT_TRUE(eventually([&] { return fired.load(); }));
}

/// The task goes on, and has made two others ready: what runs next when it suspends, and what was
/// that before.
TEST(a_task, that_wakes_two_others_has_a_worker_started_for_the_first) {
  const auto rt = without_monitor(2);
  const chan<int> one;
  const chan<int> two;
  std::atomic<int> received{0};
  for (const auto& c : {one, two}) {
    rt->spawn([&received, c]() -> task<> {
        co_await recv(c);
        ++received;
      }).detach();
  }
  ASSERT_TRUE(eventually([&] { return rt->stats().tasks_waiting == 2; }));
  ASSERT_TRUE(eventually_idle(scheduler_of(*rt)));
  EXPECT_TRUE(rt->run([&] {
    return one.try_send(1) && two.try_send(1) && eventually([&] { return received > 0; });
  }));
  EXPECT_TRUE(eventually([&] { return received == 2; }));
}

/// What other threads have queued comes after what the processor has itself; but before it in one
/// of 61 looks, and if a task has just yielded.
TEST(a_worker, looks_at_the_global_queue_first_now_and_then_and_after_a_task_that_yields) {
  constexpr int rounds = 30;
  int first_after[2] = {};
  const auto rt = without_monitor(1);
  for (const bool yields : {false, true}) {
    for (int i = 0; i < rounds; ++i) {
      std::atomic<bool> begun{false};
      std::atomic<bool> queued{false};
      std::vector<char> order;
      auto task = rt->spawn([&]() -> verge::task<> {
        begun = true;
        while (!queued) std::this_thread::yield();
        auto own = go([&] { order.push_back('o'); });
        if (yields) co_await verge::yield();
        co_await own;
      });
      EXPECT_TRUE(eventually([&] { return begun.load(); }));
      auto other = rt->spawn([&] { order.push_back('g'); });
      queued = true;
      task.join();
      other.join();
      ASSERT_EQ(order.size(), 2U);
      first_after[yields ? 1 : 0] += order[0] == 'g' ? 1 : 0;
    }
  }
  EXPECT_LE(first_after[0], rounds / 3);
  EXPECT_EQ(first_after[1], rounds);
}

/// One in 17 turns is measured; and none of those that were not is a sample, though it blocks.
TEST(samples, are_of_turns_that_were_measured) {
  const auto rt = without_monitor(1);
  const std::int64_t begin = detail::true_now();
  rt->run([]() -> task<> {
    for (int i = 0; i < 200; ++i) {
      co_await go([] { blocking([] {}); });
      co_await verge::yield();
    }
  });
  std::size_t samples = 0;
  scheduler_of(*rt).all_processors().for_each([&](const detail::processor& p) {
    for (const detail::trace_event& e : p.samples.since(0).events) {
      ++samples;
      EXPECT_GE(e.time, begin - ms);
      EXPECT_LE(e.end(), detail::true_now() + ms);
    }
  });
  EXPECT_GT(samples, 10U);
}

/// What a thread makes ready then may have been destroyed.
TEST(a_runtime, that_has_ended_queues_nothing_any_more) {
  const auto rt = without_monitor(1);
  detail::live_scheduler& s = scheduler_of(*rt);
  s.stop();
  detail::runnable r{[](detail::runnable&) noexcept { FAIL() << "the runtime has ended"; }};
  s.ready(r);
  s.ready_next(r);
  s.ready_last(r);
  EXPECT_EQ(s.take_leftover(), nullptr);
}

/// A task waits for bytes, and is woken for them; before it runs, its descriptor is closed.
TEST(a_read, whose_descriptor_is_closed_before_it_takes_what_has_come_is_told) {
  const auto rt = without_monitor(1);
  const as_default here(*rt);
  detail::live_scheduler& s = scheduler_of(*rt);
  s.limit_spares(0);
  pipe_ends ends = make_pipe().or_throw();
  auto reads = rt->spawn([&ends]() -> task<io_result> {
    char c = 0;
    co_return co_await ends.from.read_some({&c, 1});
  });
  ASSERT_TRUE(eventually([&] { return rt->stats().tasks_waiting == 1; }));
  ASSERT_TRUE(eventually_idle(s));
  blockers busy;
  rt->spawn(busy.block()).detach();
  ASSERT_TRUE(eventually([&] { return busy.count() == 1; }));
  const verge::timer breaks = wake_sleeper(*rt, s);
  ASSERT_TRUE(ends.to.write_all("x").wait());
  s.as_watched().sysmon_look(detail::true_now() + 11 * ms);  // which finds the bytes
  ends.from.close();
  busy.release();
  const io_result got = reads.join();
  EXPECT_EQ(got.error, net_errc::closed);
  EXPECT_EQ(got.bytes, 0U);
}

/// Unless other workers look for something to run with both of them just then.
TEST(a_task, that_has_blocked_has_a_processor_again) {
  const auto rt = without_monitor(2);
  EXPECT_TRUE(eventually([&] {
    return rt->run([] {
      blocking([] {});
      return detail::this_thread.as_worker->held != nullptr;
    });
  }));
}

/// A function that waits for a value, on a thread; and its processor is idle when that has come.
TEST(a_task, that_has_waited_on_its_thread_has_a_processor_again) {
  const auto rt = without_monitor(1);
  const chan<int> c;
  std::atomic<bool> begun{false};
  auto waits = rt->spawn([&] {
    begun = true;
    c.recv();
    return detail::this_thread.as_worker->held != nullptr;
  });
  ASSERT_TRUE(eventually([&] { return begun.load(); }));
  ASSERT_TRUE(eventually_idle(scheduler_of(*rt)));
  c.send(1);
  EXPECT_TRUE(waits.join());
}

/// Which has its timers, and what it has in its caches.
TEST(a_task, that_has_blocked_has_the_processor_of_before_if_that_is_idle) {
  const auto rt = without_monitor(2);
  detail::live_scheduler& s = scheduler_of(*rt);
  s.limit_spares(0);
  blockers first;
  blockers later;
  std::atomic<int> begun{0};
  std::atomic<int> kept{-1};
  const auto held = [] { return static_cast<int>(detail::this_thread.as_worker->held->id); };
  for (int i = 0; i < 2; ++i) {
    rt->spawn([&, wait = first.block(), wait_longer = later.block()] {
        ++begun;
        while (begun != 2) std::this_thread::yield();
        if (held() == 0) return wait();
        blocking(wait_longer);
        kept = held();
      }).detach();
  }
  ASSERT_TRUE(eventually([&] { return first.count() == 1 && later.count() == 1; }));
  first.release();
  ASSERT_TRUE(eventually_idle(s));
  later.release();
  ASSERT_TRUE(eventually([&] { return kept >= 0; }));
  EXPECT_EQ(kept, 1);
}

/// A processor is to be retired while a task runs on it, which then blocks, with nothing queued.
TEST(a_processor, that_is_to_be_retired_is_when_its_task_blocks) {
  const auto rt = without_monitor(2);
  detail::live_scheduler& s = scheduler_of(*rt);
  s.limit_spares(0);
  const detail::processor& second = s.all_processors()[1];
  const blockers busy;
  std::atomic<int> begun{0};
  std::atomic<bool> block_now{false};
  for (int i = 0; i < 2; ++i) {
    rt->spawn([&, block = busy.block()] {
        ++begun;
        while (begun != 2) std::this_thread::yield();
        if (detail::this_thread.as_worker->held != &second) return;
        while (!block_now) std::this_thread::yield();
        blocking(block);
      }).detach();
  }
  ASSERT_TRUE(eventually([&] { return begun == 2; }));
  ASSERT_TRUE(eventually([&] { return s.running() == 1 && s.polls_until() != 0; }));
  s.set_processors(1);
  ASSERT_TRUE(eventually_idle(s)) << "of the processors that there are to be";
  EXPECT_FALSE(second.retired);
  block_now = true;
  EXPECT_TRUE(eventually([&] { return second.retired.load(); }));
}

/// One place in sixteen of a queue is watched, from when something is put there until it is taken.
TEST(figures, have_how_long_one_in_sixteen_tasks_was_ready) {
  const auto rt = without_monitor(1);
  const auto waits = [&] { return rt->stats().total.ready_waits.count(); };
  const std::uint64_t before = waits();
  rt->run([]() -> task<> {
    for (int i = 0; i < 320; ++i) co_await go([] {});
  });
  EXPECT_GE(waits() - before, 15U);
  EXPECT_LE(waits() - before, 40U);
}

/// Of two workers that have nothing to do one polls, and the other one sleeps until it is woken.
TEST(figures, count_each_worker_that_was_woken) {
  const auto rt = without_monitor(2);
  detail::live_scheduler& s = scheduler_of(*rt);
  {
    const blockers both;
    rt->spawn(both.block()).detach();
    rt->spawn(both.block()).detach();
    ASSERT_TRUE(eventually([&] { return both.count() == 2; }));
  }
  ASSERT_TRUE(eventually_idle(s));
  const auto wakeups = [&] { return rt->stats().total.wakeups; };
  // If the other one has yet to go to sleep, a third is started.
  const std::uint64_t enough = wakeups() + 10;
  for (int i = 0; i < 100 && wakeups() < enough; ++i) {
    rt->spawn([] {}).join();
    ASSERT_TRUE(eventually_idle(s));
  }
  EXPECT_GE(wakeups(), enough);
}

/// A thread that has queued a task is on its way to start a worker for it, and loses its core. The
/// idle processor that it has seen is taken meanwhile: then it must not count as one that wakes a
/// worker, or no other thread wakes one from then on.
TEST(a_thread, that_finds_no_idle_processor_for_a_worker_leaves_the_next_wake_up_to_others) {
  for (int n = 1;; ++n) {
    const auto rt = without_monitor(1);
    detail::live_scheduler& s = scheduler_of(*rt);
    ASSERT_TRUE(eventually_idle(s));
    unlucky_thread unlucky(n, [&] { rt->spawn([] {}).detach(); });
    {
      blockers busy;
      after_func(*rt, 0s, busy.block()).detach();
      // By the worker from the poller; or for the unlucky thread's, which it has chosen already.
      EXPECT_TRUE(eventually([&] { return s.running() == 1 || !unlucky.stuck(); }));
      unlucky.end();
      EXPECT_TRUE(eventually([&] { return busy.count() == 1; }));
      busy.release();
    }
    ASSERT_TRUE(eventually_idle(s));
    auto next = rt->spawn([] {});
    ASSERT_TRUE(eventually([&] { return next.done(); })) << "after call " << n;
    next.join();
    if (!unlucky.stuck()) break;
  }
}

/// Keeps the worker of processor 1 awake: it has a precise timer that is always due soon.
class restless_engine : public fake_engine {
 public:
  detail::timer_check check_timers(unsigned p, std::int64_t now, bool own) noexcept override {
    if (p != 1) return fake_engine::check_timers(p, now, own);
    const std::int64_t at = detail::true_now();
    return {.now = at, .next = at + detail::wake_up_lag::most / 2, .ran = 0};
  }
  std::int64_t awake_until(unsigned p) const noexcept override { return p == 1 ? INT64_MAX : 0; }
};

TEST(a_spinning_worker, whose_processor_is_retired_spins_no_longer) {
  const no_monitor here;
  clockwork_on<restless_engine> fake(2);
  detail::live_scheduler& s = fake.scheduler();
  const detail::processor& second = s.all_processors()[1];
  {
    const blockers busy;
    const auto second_looks = [&] { return second.tick.load(std::memory_order_relaxed); };
    detail::spawn(s, busy.block()).detach();
    ASSERT_TRUE(eventually([&] { return busy.count() == 1; }));
    detail::spawn(s, [] {}).detach();
    ASSERT_TRUE(eventually([&] { return s.running() == 2 && second_looks() != 0; }));
    ASSERT_TRUE(eventually([&] { return s.jobs().live() == 1; }));
    s.set_processors(1);
    ASSERT_TRUE(eventually([&] { return second.retired.load(); }));
  }
  const std::int64_t held = s.held_for(second);
  const std::int64_t later = detail::true_now() + ms;
  EXPECT_TRUE(eventually([&] { return detail::true_now() > later; }));
  EXPECT_EQ(s.held_for(second), held) << "nor is it busy";
  ASSERT_TRUE(eventually_idle(s));
  auto next = detail::spawn(s, [] {});
  EXPECT_TRUE(eventually([&] { return next.done(); })) << "a worker counts as spinning, for good";
}

/// A timer of its own that was not due at the first look, and is at the second: it is not stolen.
class late_engine : public fake_engine {
 public:
  detail::timer_check check_timers(unsigned p, std::int64_t now, bool own) noexcept override {
    if (next_when(p) != 0 && !std::exchange(looked_, true)) {
      return {.now = detail::true_now(), .next = next_when(p), .ran = 0};
    }
    return fake_engine::check_timers(p, now, own);
  }

 private:
  bool looked_ = false;
};

TEST(a_worker, does_not_count_a_timer_of_its_own_as_stolen) {
  clockwork_on<late_engine> fake(1);
  detail::live_scheduler& s = fake.scheduler();
  ASSERT_TRUE(eventually_idle(s));
  const std::int64_t when = detail::true_now();
  fake.engine().set(0, when);
  s.wake_net_poller(when);
  EXPECT_TRUE(eventually([&] { return fake.engine().ran() == 1; }));
  EXPECT_EQ(s.all_processors()[0].timers_stolen.read(), 0U);
}

/// A timer is overdue that no worker can fire. While one spins it may be about to.
TEST(the_monitor, gives_a_spinning_worker_time) {
  class dead_timer_engine : public restless_engine {
   public:
    detail::timer_check check_timers(unsigned p, std::int64_t now, bool own) noexcept override {
      if (p != 0) return restless_engine::check_timers(p, now, own);
      return {.now = detail::true_now(), .next = 0, .ran = 0};
    }
  };
  const no_monitor here;
  clockwork_on<dead_timer_engine> fake(3);
  detail::live_scheduler& s = fake.scheduler();
  const blockers busy;
  detail::spawn(s, busy.block()).detach();
  ASSERT_TRUE(eventually([&] { return busy.count() == 1; }));
  detail::spawn(s, [] {}).detach();
  ASSERT_TRUE(eventually([&] { return s.jobs().live() == 1 && s.running() == 2; }));
  std::int64_t now = detail::true_now();
  fake.engine().set(0, now - 20 * ms);
  s.as_watched().sysmon_look(now);  // from here on it knows which processors come round
  EXPECT_TRUE(eventually([&] {
    now += 5 * ms;
    const bool mended = s.as_watched().sysmon_look(now);
    return !mended && s.as_watched().look_by() == now + detail::monitor::called_sleep;
  }));
}

/// What an engine keeps for its queues is not with its nodes.
TEST(the_monitor, has_the_engine_give_memory_back) {
  class trimmed_engine : public fake_engine {
   public:
    void trim() noexcept override { ++trims; }
    bool can_trim() const noexcept override { return trims == 0; }
    int trims = 0;
  };
  const no_monitor here;
  clockwork_on<trimmed_engine> fake(1);
  detail::monitor::watched& s = fake.scheduler().as_watched();
  EXPECT_TRUE(s.can_trim_memory());
  s.trim_memory();
  EXPECT_EQ(fake.engine().trims, 1);
  EXPECT_FALSE(s.can_trim_memory());
}

/// One of two processors is held by a task that waits for the test, which counts looks for it: then
/// it seems to come round. What is due or queued there is left to it until it no longer does.
TEST(the_monitor, leaves_timers_that_are_due_to_a_processor_that_comes_round) {
  const no_monitor here;
  clockwork_on<fake_engine> fake(2);
  detail::live_scheduler& s = fake.scheduler();
  ASSERT_TRUE(eventually_idle(s));
  const blockers busy;
  std::atomic<detail::processor*> held{nullptr};
  detail::spawn(s, [&held, block = busy.block()] {
    held = detail::this_thread.as_worker->held;
    block();
  }).detach();
  ASSERT_TRUE(eventually([&] { return busy.count() == 1 && s.running() == 1; }));
  ASSERT_TRUE(eventually([&] { return s.polls_until() != 0; }));
  const std::int64_t now = detail::true_now();
  fake.engine().set((*held).id, now - 20 * ms);
  for (std::int64_t t = now; t < now + 20 * ms; t += ms / 2) {
    held.load()->count_look();
    EXPECT_FALSE(s.as_watched().sysmon_look(t));
    EXPECT_EQ(s.as_watched().look_by(), t + detail::monitor::called_sleep);
  }
  EXPECT_EQ(fake.engine().ran(), 0);
  EXPECT_FALSE(s.as_watched().sysmon_look(now + 20 * ms)) << "it has come round half a ms ago";
  EXPECT_TRUE(s.as_watched().sysmon_look(now + 21 * ms));
  EXPECT_TRUE(eventually([&] { return fake.engine().ran() == 1; }));
}

TEST(the_monitor, leaves_what_is_queued_to_a_processor_that_comes_round) {
  const auto rt = without_monitor(2);
  detail::live_scheduler& s = scheduler_of(*rt);
  const chan<int> c;
  auto waits = rt->spawn([&]() -> task<> { co_await recv(c); });
  ASSERT_TRUE(eventually([&] { return rt->stats().tasks_waiting == 1; }));
  ASSERT_TRUE(eventually_idle(s));
  const blockers busy;
  std::atomic<detail::processor*> held{nullptr};
  rt->spawn([&, block = busy.block()] {
      held = detail::this_thread.as_worker->held;
      c.try_send(1);  // what is received makes its task the next one here, and wakes no worker
      block();
    }).detach();
  ASSERT_TRUE(eventually([&] { return busy.count() == 1 && s.running() == 1; }));
  ASSERT_TRUE(eventually([&] { return s.polls_until() != 0; }));
  const std::int64_t now = detail::true_now();
  for (std::int64_t t = now; t < now + 20 * ms; t += ms / 2) {
    held.load()->count_look();
    EXPECT_FALSE(s.as_watched().sysmon_look(t));
    EXPECT_EQ(s.as_watched().look_by(), t + detail::monitor::called_sleep);
  }
  EXPECT_FALSE(waits.done());
  EXPECT_TRUE(s.as_watched().sysmon_look(now + 21 * ms));
  EXPECT_TRUE(eventually([&] { return waits.done(); }));
}

/// What comes first seems to be due in a moment, at every look, until the engine has looked ahead.
class stale_engine : public fake_engine {
 public:
  std::int64_t next_when(unsigned p) const noexcept override {
    const std::int64_t in = seems_due_in;
    return p != 0 || in == 0 ? fake_engine::next_when(p) : detail::true_now() + in;
  }
  void look_ahead(unsigned p, std::int64_t until) noexcept override {
    EXPECT_EQ(p, 0U);
    EXPECT_GE(until, begin + 4 * ms);
    EXPECT_LE(until, detail::true_now() + 5 * ms);
    set(0, begin + later);
    seems_due_in = 0;
  }
  static constexpr std::int64_t later = 3'600'000 * ms;
  std::atomic<std::int64_t> seems_due_in{0};
  const std::int64_t begin{detail::true_now()};
};

TEST(a_worker, looks_ahead_before_it_sleeps_for_a_moment) {
  clockwork_on<stale_engine> fake(1);
  detail::live_scheduler& s = fake.scheduler();
  ASSERT_TRUE(eventually_idle(s));
  fake.engine().seems_due_in = ms;
  s.wake_net_poller(detail::true_now());
  EXPECT_TRUE(
      eventually([&] { return s.polls_until() == fake.engine().begin + stale_engine::later; }));
}

TEST(a_worker, does_not_look_ahead_before_it_sleeps_for_longer) {
  const no_monitor here;
  clockwork_on<stale_engine> fake(1);
  detail::live_scheduler& s = fake.scheduler();
  ASSERT_TRUE(eventually_idle(s));
  fake.engine().seems_due_in = 90 * ms;
  s.wake_net_poller(detail::true_now());
  EXPECT_TRUE(eventually([&] {
    return s.polls_until() > fake.engine().begin + 90 * ms &&
           s.polls_until() < fake.engine().begin + stale_engine::later;
  }));
  EXPECT_NE(fake.engine().seems_due_in, 0);
}

/// The worker that fires them runs them as well, as they are short, and the other one leaves them
/// to it: until one is not. Those behind it, on the queue and still to be fired, are run by the
/// other one then, which looks again by itself.
TEST(overdue_timers, behind_one_that_blocks_are_run_by_another_worker) {
  constexpr int all = 20'000;
  for (const int blocks : {0, 1, 100, 5'000, all - 200}) {
    const auto rt = without_monitor(2);
    ASSERT_TRUE(eventually_idle(scheduler_of(*rt)));
    const blockers busy;
    std::atomic<int> ran{0};
    const auto due = clock::now() + 20ms;
    for (int i = 0; i < all; ++i) {
      const auto when = due + i * 1ns;
      if (i == blocks) {
        after_func(*rt, when, busy.block()).detach();
      } else {
        after_func(*rt, when, [&ran] { ran.fetch_add(1, std::memory_order_relaxed); }).detach();
      }
    }
    EXPECT_TRUE(eventually([&] { return ran == all - 1; })) << "behind timer " << blocks;
    EXPECT_EQ(busy.count(), 1);
  }
}

TEST(a_stuck_processor, gets_a_spare_one_for_a_task_that_was_suspended_after_10_ms) {
  const auto rt = without_monitor(1);
  detail::live_scheduler& s = scheduler_of(*rt);
  chan<int> c;
  auto waits = rt->spawn([&]() -> task<> { co_await recv(c); });
  ASSERT_TRUE(eventually([&] { return rt->stats().tasks_waiting == 1; }));
  ASSERT_TRUE(eventually_idle(s));
  const blockers busy;
  rt->spawn(busy.block()).detach();
  ASSERT_TRUE(eventually([&] { return busy.count() == 1; }));
  c.send(1);  // into the global queue
  looks monitor(s);
  for (std::int64_t t = 0; t < 10; ++t) monitor.look(t * ms);
  EXPECT_EQ(s.spare_used(), 0U) << "it may be slow";
  for (std::int64_t t = 10; t < 40; ++t) monitor.look(t * ms);
  EXPECT_GE(s.spare_used(), 1U);
  EXPECT_TRUE(eventually([&] { return waits.done(); }));
}

/// A new task may well be of the kind that the processor is stuck in.
TEST(a_stuck_processor, gets_a_spare_one_for_a_new_task_after_100_ms) {
  const auto rt = without_monitor(1);
  detail::live_scheduler& s = scheduler_of(*rt);
  ASSERT_TRUE(eventually_idle(s));
  const blockers busy;
  rt->spawn(busy.block()).detach();
  ASSERT_TRUE(eventually([&] { return busy.count() == 1; }));
  auto waits = rt->spawn([] {});
  looks monitor(s);
  // At 10 ms it sees that something was taken since the last time that it looked so closely.
  for (std::int64_t t = 0; t < 110; ++t) monitor.look(t * ms);
  EXPECT_EQ(s.spare_used(), 0U) << "it may be slow";
  for (std::int64_t t = 110; t < 130; ++t) monitor.look(t * ms);
  EXPECT_EQ(s.spare_used(), 1U);
  EXPECT_TRUE(eventually([&] { return waits.done(); }));
}

/// The one behind it may be of the kind that the processor is stuck in.
TEST(a_spare_processor, takes_a_task_that_was_suspended_and_not_the_new_one_behind_it) {
  const auto rt = without_monitor(1);
  detail::live_scheduler& s = scheduler_of(*rt);
  chan<int> c;
  auto waits = rt->spawn([&]() -> task<> { co_await recv(c); });
  ASSERT_TRUE(eventually([&] { return rt->stats().tasks_waiting == 1; }));
  ASSERT_TRUE(eventually_idle(s));
  const blockers busy;
  rt->spawn(busy.block()).detach();
  ASSERT_TRUE(eventually([&] { return busy.count() == 1; }));
  c.send(1);
  auto next = rt->spawn([] {});
  looks monitor(s);
  for (std::int64_t t = 0; t < 100 && s.spare_used() == 0; ++t) monitor.look(t * ms);
  EXPECT_TRUE(eventually([&] { return waits.done() && s.polls_until() != 0; })) << "it rests";
  EXPECT_FALSE(next.done());
  EXPECT_EQ(s.spare_used(), 1U);
  for (std::int64_t t = 100; t < 300; ++t) monitor.look(t * ms);
  EXPECT_TRUE(eventually([&] { return next.done(); }));
}

/// No worker does that: the only processor is stuck in a task.
TEST(the_monitor, looks_at_the_poller_10_ms_after_the_last_look) {
  const auto rt = without_monitor(1);
  const as_default here(*rt);
  detail::live_scheduler& s = scheduler_of(*rt);
  s.limit_spares(0);  // one might start, and would poll
  auto [from, to] = make_pipe().or_throw();
  ASSERT_TRUE(eventually_idle(s));
  const blockers busy;
  rt->spawn(busy.block()).detach();
  ASSERT_TRUE(eventually([&] { return busy.count() == 1; }));
  const verge::timer breaks = wake_sleeper(*rt, s);
  const auto events = [&] { return s.net()->statistics().source_events; };
  const std::uint64_t before = events();
  ASSERT_TRUE(to.write_all("hello").wait());
  looks monitor(s);
  monitor.look(11 * ms);
  EXPECT_GT(events(), before);
  const std::uint64_t after = events();
  ASSERT_TRUE(to.write_all("again").wait());
  monitor.look(12 * ms);
  EXPECT_EQ(events(), after) << "it has just looked";
  monitor.look(22 * ms);
  EXPECT_GT(events(), after);
}

/// It is the one that sees a timer of which the worker that sleeps was not told: three milliseconds
/// after that is due, and no earlier.
TEST(the_monitor, looks_again_three_milliseconds_after_the_first_timer) {
  const no_monitor here;
  clockwork_on<fake_engine> fake(1);
  detail::live_scheduler& s = fake.scheduler();
  ASSERT_TRUE(eventually_idle(s));
  const std::int64_t now = detail::true_now();
  const auto look_by = [&](std::int64_t next) {
    fake.engine().set(0, next);
    EXPECT_FALSE(s.as_watched().sysmon_look(now));
    return s.as_watched().look_by();
  };
  constexpr std::int64_t never = INT64_MAX;
  EXPECT_EQ(look_by(0), 0);
  EXPECT_EQ(look_by(never), 0);
  EXPECT_EQ(look_by(never - 3 * ms), 0);
  EXPECT_EQ(look_by(never - 3 * ms - 1), never - 1);
  EXPECT_EQ(look_by(now + 3'600'000 * ms), now + 3'600'003 * ms);
  EXPECT_EQ(look_by(now + 1), now + 3 * ms + 1);
  EXPECT_EQ(look_by(now), now + 3 * ms);
  EXPECT_EQ(look_by(now - 3 * ms), now + 3 * ms) << "not at once: the worker may be about to come";
  EXPECT_EQ(s.poll_rescues(), 0U);
  EXPECT_TRUE(s.as_watched().sysmon_look(now + 1));
  EXPECT_EQ(s.poll_rescues(), 1U);
  EXPECT_TRUE(eventually([&] { return fake.engine().ran() == 1; }));
}

/// The monitor sleeps until it is woken only if nothing can need it before.
TEST(the_monitor, may_sleep_for_long_if_all_is_idle_and_the_first_timer_has_a_sleeper) {
  const no_monitor here;
  clockwork_on<fake_engine> fake(1);
  detail::live_scheduler& s = fake.scheduler();
  ASSERT_TRUE(eventually_idle(s));
  EXPECT_TRUE(s.as_watched().allows_deep_sleep());
  const std::int64_t later = detail::true_now() + 3'600'000 * ms;
  fake.engine().set(0, later);
  s.wake_net_poller(later);
  ASSERT_TRUE(eventually([&] { return s.polls_until() == later; }));
  ASSERT_TRUE(eventually_idle(s));
  EXPECT_TRUE(s.as_watched().allows_deep_sleep());
  fake.engine().set(0, later - 1);
  EXPECT_FALSE(s.as_watched().allows_deep_sleep()) << "the worker sleeps past it";
  fake.engine().set(0, later);
  blockers busy;
  detail::spawn(s, busy.block()).detach();
  ASSERT_TRUE(eventually([&] { return busy.count() == 1; }));
  EXPECT_FALSE(s.as_watched().allows_deep_sleep()) << "a task runs";
  busy.release();
  ASSERT_TRUE(eventually_idle(s));
  EXPECT_TRUE(eventually([&] { return s.as_watched().allows_deep_sleep(); }));
}

/// A worker sleeps until a timer in an hour, and another one is overdue of which it was not told.
TEST(the_monitor, wakes_a_worker_that_sleeps_past_a_timer_until_a_later_one) {
  const no_monitor here;
  clockwork_on<fake_engine> fake(1);
  detail::live_scheduler& s = fake.scheduler();
  ASSERT_TRUE(eventually_idle(s));
  const std::int64_t later = detail::true_now() + 3'600'000 * ms;
  fake.engine().set(0, later);
  s.wake_net_poller(later);
  ASSERT_TRUE(eventually([&] { return s.polls_until() == later; }));
  const std::int64_t when = detail::true_now();
  fake.engine().set(0, when);
  EXPECT_TRUE(s.as_watched().sysmon_look(when + 4 * ms));
  EXPECT_EQ(s.poll_rescues(), 1U);
  EXPECT_TRUE(eventually([&] { return fake.engine().ran() == 1; }));
}

/// What it was before it was taken is not counted as time in which it was held.
TEST(a_processor, that_was_idle_is_held_from_when_it_is_taken) {
  const auto rt = without_monitor(1);
  detail::live_scheduler& s = scheduler_of(*rt);
  const detail::processor& first = s.all_processors()[0];
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(eventually_idle(s));
    const std::int64_t idle = detail::true_now();
    while (detail::true_now() < idle + 5 * ms) std::this_thread::yield();
    const std::int64_t begin = detail::true_now();
    const std::int64_t before = s.held_for(first);
    rt->spawn([] {}).join();
    EXPECT_TRUE(eventually_idle(s));
    const std::int64_t held = s.held_for(first) - before;
    const std::int64_t passed = detail::true_now() - begin;
    EXPECT_LE(held, passed + ms);
    return passed < 2 * ms;  // or this has shown nothing
  }));
}

/// The other one is always busy with its own, and does not look at the queues of others.
TEST(a_stuck_processor, has_its_queue_taken_over_by_another_once_the_monitor_has_reported_it) {
  const auto rt = without_monitor(2);
  detail::live_scheduler& s = scheduler_of(*rt);
  std::atomic<bool> over{false};
  std::atomic<std::int64_t> turns{0};
  const auto yields = [&]() -> task<> {
    for (; !over; ++turns) co_await verge::yield();
  };
  auto one = rt->spawn([&]() -> task<> {
    auto two = go(yields());
    co_await yields();
    co_await two;
  });
  const auto after_some_turns = [&] {
    const std::int64_t before = turns;
    return eventually([&, before] { return turns > before + 10; });
  };
  ASSERT_TRUE(after_some_turns());
  blockers busy;
  std::atomic<bool> ran{false};
  rt->spawn([&, block = busy.block()] {
      go([&] { ran = true; }).detach();  // into the queue of this processor
      block();
    }).detach();
  EXPECT_TRUE(eventually([&] { return busy.count() == 1; }));
  // Half of the queue is taken each time, and something else may be before it.
  looks monitor(s);
  for (std::int64_t n = 0; n < 10 && !ran; ++n) {
    EXPECT_TRUE(after_some_turns());
    monitor.look(n * 20 * ms);
  }
  EXPECT_TRUE(eventually([&] { return ran.load(); }));
  EXPECT_EQ(s.spare_used(), 0U);
  over = true;
  busy.release();
  one.join();
}

}  // namespace
}  // namespace verge::test
