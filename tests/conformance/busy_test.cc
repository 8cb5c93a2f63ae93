// SPDX-License-Identifier: Apache-2.0

// Lines 10, 11 and 32: timers while processors are busy.

#include <conformance/conformance.h>

#include <atomic>
#include <latch>
#include <vector>

#include <support/processor_time.h>

namespace verge::test {
namespace {

TEST_P(conformance, L10_two_tasks_that_hand_over_to_each_other_do_not_starve_a_timer) {
  runtime rt(live(1));
  std::atomic<bool> over{false};
  chan<bool> there;
  chan<bool> back;
  auto one = rt.spawn([&]() -> task<> {
    while (!over) {
      co_await verge::send(there, true);
      co_await verge::recv(back);
    }
    there.close();
  });
  auto other = rt.spawn([&]() -> task<> {
    while (co_await verge::recv(there)) co_await verge::send(back, true);
  });
  std::atomic<int> fired{0};
  {
    as_default here(rt);
    after_func(1ms, [&] { ++fired; }).detach();
  }
  auto sleeper = rt.spawn([&]() -> task<> {
    co_await verge::sleep(1ms);
    ++fired;
  });
  EXPECT_TRUE(eventually([&] { return fired == 2; })) << fired << " of 2 fired";
  over = true;
  one.join();
  other.join();
  sleeper.join();
}

TEST_P(conformance, L10_two_tasks_that_yield_to_each_other_do_not_starve_a_timer) {
  runtime rt(live(1));
  std::atomic<bool> over{false};
  auto one = rt.spawn([&]() -> task<> {
    while (!over) co_await verge::yield();
  });
  auto other = rt.spawn([&]() -> task<> {
    while (!over) co_await verge::yield();
  });
  rt.spawn([&]() -> task<> {
      co_await verge::sleep(1ms);
      over = true;
    }).detach();
  EXPECT_TRUE(eventually([&] { return over.load(); }));
  over = true;
  one.join();
  other.join();
}

TEST_P(conformance, L11_a_timer_fires_while_select_loops_keep_every_processor_busy) {
  runtime rt(live(2));
  std::atomic<bool> over{false};
  chan<int> empty;
  std::vector<join_handle<>> loops;
  for (int i = 0; i < 4; ++i) {
    // Never suspends: there is always a ready case.
    loops.push_back(rt.spawn([&]() -> task<> {
      while (!over) co_await verge::select(verge::recv(empty), verge::otherwise());
    }));
  }
  as_default here(rt);
  std::atomic<bool> called{false};
  const auto t = after_func(1ms, [&] { called = true; });
  const auto c = verge::after(1ms);
  EXPECT_TRUE(eventually([&] { return called.load(); }));
  EXPECT_TRUE(eventually([&] { return c.size() == 1; }));
  over = true;
  for (auto& loop : loops) loop.join();
}

TEST_P(conformance, L11_a_timer_fires_while_calls_block_every_processor) {
  runtime rt(live(2));
  std::latch over(1);
  std::vector<join_handle<>> calls;
  for (int i = 0; i < 4; ++i) {
    const bool announced = i % 2 == 0;
    calls.push_back(rt.spawn([&over, announced] {
      const auto block = [&] { over.wait(); };
      announced ? verge::blocking(block) : block();
    }));
  }
  as_default here(rt);
  std::atomic<bool> called{false};
  const auto t = after_func(1ms, [&] { called = true; });
  EXPECT_TRUE(eventually([&] { return called.load(); }));
  over.count_down();
  for (auto& call : calls) call.join();
}

TEST_P(conformance, L11_a_timer_of_a_blocked_processor_is_run_by_one_that_is_never_idle) {
  runtime rt(live(2));
  std::atomic<bool> over{false};
  std::atomic<bool> called{false};
  auto busy = rt.spawn([&]() -> task<> {
    while (!over) co_await verge::yield();
  });
  auto blocked = rt.spawn([&] {
    const auto t = after_func(1ms, [&] { called = true; });
    over.wait(false);
  });
  EXPECT_TRUE(eventually([&] { return called.load(); }));
  over = true;
  over.notify_all();
  busy.join();
  blocked.join();
}

TEST_P(conformance, L11_a_select_takes_its_timer_though_another_case_is_always_ready) {
  runtime rt(live(2));
  rt.run([]() -> task<> {
    chan<int> busy(1);
    chan<bool> over(1);
    auto filler = go([&]() -> task<> {
      while (!over.try_recv()) co_await verge::send(busy, 1);
    });
    const verge::timer t(1ms);
    bool fired = false;
    while (!fired) {
      co_await verge::select(verge::recv(busy), verge::recv(t.c(), [&] { fired = true; }));
    }
    co_await verge::send(over, true);
    while (!filler.done()) {
      busy.try_recv();
      co_await verge::yield();
    }
    co_await filler;
  });
}

TEST_P(conformance, L32_5000_sleepers_beside_a_million_timers_are_done_within_a_minute) {
  runtime rt(live(2));
  constexpr int sleepers = 5000;
  const int timers = scale(1'000'000, 50'000);
  const auto before = processor_time();
  std::vector<join_handle<>> asleep;
  asleep.reserve(sleepers);
  for (int i = 0; i < sleepers; ++i) {
    asleep.push_back(rt.spawn([]() -> task<> {
      for (int n = 0; n < 3; ++n) co_await verge::sleep(10us);
    }));
  }
  rt.run([&]() -> task<> {
    // Kept until there are many: dropping the channel of after() stops its timer.
    std::vector<receiver<time_point>> kept;
    for (int i = 0; i < timers; ++i) {
      kept.push_back(verge::after(up_to(5s)));
      if (kept.size() == 100'000) kept.clear();
      if (i % 1000 == 0) co_await verge::yield();
    }
  });
  for (auto& sleeper : asleep) sleeper.join();
  EXPECT_LT(processor_time() - before, 60s);  // of work; other load may make it longer
}

}  // namespace
}  // namespace verge::test
