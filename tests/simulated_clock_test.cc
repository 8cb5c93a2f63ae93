// SPDX-License-Identifier: Apache-2.0

// verge::clock in simulated time, on every engine: it is the simulated time for all participants,
// on any kind of thread, and the kernel's for all others.
//
// All delays are whole milliseconds, which are the wheels' ticks: every engine is exact there.

#include <gtest/gtest.h>
#include <verge/context.h>
#include <verge/simulation.h>
#include <verge/time.h>
#include <verge/timeout.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <clock/true_clock.h>
#include <support/engines.h>

namespace verge::test {
namespace {

class simulated_clock : public testing::TestWithParam<engine_traits> {
 protected:
  static std::int64_t true_time() { return detail::true_now(); }
  static std::int64_t count(time_point t) { return t.time_since_epoch().count(); }

  simulation sim{{.engine = GetParam().engine}};
  const time_point start{sim.now()};
};

INSTANTIATE_TEST_SUITE_P(engines, simulated_clock, testing::ValuesIn(engines),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(simulated_clock, moves_with_simulated_time_and_with_nothing_else) {
  EXPECT_EQ(clock::now(), start);
  const auto before = true_time();
  while (true_time() < before + 1'000) continue;
  EXPECT_EQ(clock::now(), start) << "it uses the true time";
  for (int i = 1; i <= 10; ++i) {
    sim.run_for(1s);
    EXPECT_EQ(clock::now(), start + i * 1s);
    EXPECT_EQ(clock::now(), sim.now());
  }
}

TEST_P(simulated_clock, is_simulated_in_tasks_callbacks_and_threads_that_take_part) {
  std::vector<time_point> seen;  // one at a time
  const auto in_callback = after_func(1s, [&] { seen.push_back(clock::now()); });
  auto in_coroutine = sim.thread([&]() -> task<> {
    co_await verge::sleep(2s);
    seen.push_back(clock::now());
  });
  auto in_function = sim.thread([&] {
    verge::sleep(3s).wait();
    seen.push_back(clock::now());
  });
  std::atomic<bool> arrived{false};
  std::thread in_thread([&] {
    {
      const simulation::participant in(sim);
      arrived = true;
      verge::sleep_until(start + 4s).wait();
      seen.push_back(clock::now());
    }
    const auto before = true_time();
    EXPECT_GE(count(clock::now()), before) << "it takes part no longer";
  });
  while (!arrived) verge::yield().wait();
  sim.run_for(5s);
  in_thread.join();
  EXPECT_EQ(seen, (std::vector{start + 1s, start + 2s, start + 3s, start + 4s}));
}

TEST_P(simulated_clock, is_the_true_one_on_threads_that_take_no_part_and_when_it_is_over) {
  std::thread([] {
    const auto before = true_time();
    const auto now = count(clock::now());
    EXPECT_GE(now, before);
    EXPECT_LE(now, true_time());
  }).join();
  std::thread([] {
    {
      simulation another(2);
      EXPECT_EQ(clock::now(), another.now());
    }
    const auto before = true_time();
    EXPECT_GE(count(clock::now()), before);
  }).join();
}

TEST_P(simulated_clock, is_not_seen_by_a_real_runtime) {
  runtime rt({.processors = 1, .engine = GetParam().engine});
  std::atomic<bool> done{false};
  rt.spawn([&] {
      const auto before = true_time();
      EXPECT_GE(count(clock::now()), before);
      done = true;
    }).detach();
  while (!done) std::this_thread::yield();
}

TEST_P(simulated_clock, makes_reset_at_exact) {
  verge::timer t(60s);
  EXPECT_TRUE(t.reset_at(clock::now() + 2s));
  EXPECT_EQ(t.c().recv(), start + 2s);
  t.reset_at(clock::now() - 1s);
  EXPECT_EQ(t.c().recv(), start + 2s) << "a time that has passed is due now";

  time_point called;
  auto f = after_func(60s, [&] { called = clock::now(); });
  f.reset_at(clock::now() + 3s);
  sim.run_for(10s);
  EXPECT_EQ(called, start + 5s);
}

TEST_P(simulated_clock, makes_sleep_until_exact) {
  sim.run([&]() -> task<> {
    for (int i = 1; i <= 3; ++i) {
      co_await verge::sleep_until(clock::now() + 1s);
      EXPECT_EQ(clock::now(), start + i * 1s);
    }
    co_await verge::sleep_until(clock::now());
    co_await verge::sleep_until(clock::now() - 1h);
    EXPECT_EQ(clock::now(), start + 3s);
  });
  verge::sleep_until(clock::now() + 1s).wait();
  EXPECT_EQ(clock::now(), start + 4s);
}

TEST_P(simulated_clock, makes_deadlines_and_time_outs_of_contexts_exact) {
  const auto [soon, cancel_soon] = with_deadline(background(), clock::now() + 5s);
  const auto [later, cancel_later] = with_timeout(background(), 7s);
  EXPECT_EQ(soon.deadline(), start + 5s);
  EXPECT_EQ(later.deadline(), start + 7s);
  soon.done().recv();
  EXPECT_EQ(clock::now(), start + 5s);
  EXPECT_EQ(soon.err(), context_errc::deadline_exceeded);
  EXPECT_FALSE(later.err());
  later.done().recv();
  EXPECT_EQ(clock::now(), start + 7s);
  const auto [gone, cancel_gone] = with_deadline(background(), clock::now() - 1ns);
  EXPECT_EQ(gone.err(), context_errc::deadline_exceeded);
}

TEST_P(simulated_clock, makes_time_outs_exact) {
  const chan<int> silent;
  EXPECT_THROW(verge::timeout(verge::recv(silent), 4s).wait(), timed_out);
  EXPECT_EQ(clock::now(), start + 4s);
}

TEST_P(simulated_clock, finds_no_timer_late) {
  std::vector<nanoseconds> late;
  std::vector<verge::timer> timers;
  for (int i = 0; i < 200; ++i) {
    const auto due = clock::now() + (1 + i * 37 % 1000) * 1ms;
    timers.push_back(
        after_func(due - clock::now(), [&, due] { late.push_back(clock::now() - due); }));
  }
  int ticks = 0;
  const auto k = every(100ms, [&] { late.push_back(clock::now() - (start + ++ticks * 100ms)); });
  sim.run_for(1s);
  EXPECT_EQ(ticks, 10);
  EXPECT_EQ(late, std::vector<nanoseconds>(210, 0ns));
}

}  // namespace
}  // namespace verge::test
