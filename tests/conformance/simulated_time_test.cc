// SPDX-License-Identifier: Apache-2.0

// Lines 36 to 39: the poller, and simulated time.

#include <conformance/conformance.h>

#include <gmock/gmock.h>

#include <set>
#include <string>
#include <vector>

#include <support/processor_time.h>

namespace verge::test {
namespace {

using testing::HasSubstr;

/// poller_test.cc checks that a break ends a poll; this is its purpose.
TEST_P(conformance, L36_a_worker_that_sleeps_until_a_far_timer_is_woken_for_a_nearer_one) {
  runtime rt(live());
  as_default here(rt);
  const auto far = verge::after(up_to(2min) / 2);  // longer than any stall of the machine
  for (int i = 0; i < 20; ++i) {
    const auto polls = rt.stats().polls;
    if (tick() == 0ns) eventually([&] { return rt.stats().polls > polls; }, 20ms);
    const auto start = clock::now();
    EXPECT_GE(*verge::after(1ms).recv(), start + 1ms);
  }
  EXPECT_FALSE(far.try_recv()) << "the near ones have waited for the far one";
}

TEST_P(conformance, L36_a_runtime_that_sleeps_until_a_far_timer_ends_at_once) {
  const auto start = clock::now();
  {
    runtime rt(live());
    as_default here(rt);
    after_func(up_to(1h), [] {}).detach();
    verge::after(1ms).recv();
  }
  EXPECT_LT(clock::now() - start, patience);
}

TEST_P(conformance, L37_time_jumps_straight_to_the_next_timer_when_everything_is_blocked) {
  simulation sim(simulated());
  const auto start = sim.now();
  sim.run([&]() -> task<> {
    co_await verge::sleep(up_to(24h));
    EXPECT_TRUE(on_time(start + up_to(24h), sim.now()));
  });
  EXPECT_TRUE(on_time(start + up_to(24h), sim.now()));
  EXPECT_GE(sim.jumps(), 1u);
  EXPECT_LE(sim.jumps(), 1u + GetParam().levels);
}

TEST_P(conformance, L37_time_does_not_advance_while_anything_can_run) {
  simulation sim(simulated());
  const auto start = sim.now();
  const auto soon = verge::after(1ns);
  sim.run([&]() -> task<> {
    for (int i = 0; i < 1000; ++i) {
      co_await verge::yield();
      EXPECT_EQ(sim.now(), start);
    }
  });
  EXPECT_EQ(sim.jumps(), 0u);
  EXPECT_FALSE(soon.try_recv());
  EXPECT_TRUE(on_time(start + 1ns, *soon.recv()));
}

TEST_P(conformance, L37_time_jumps_once_per_instant_at_which_something_is_due) {
  simulation sim(simulated());
  std::vector<receiver<time_point>> all;
  for (int i = 0; i < 30; ++i) all.push_back(verge::after((1 + i % 10) * 1s));
  verge::timer stopped(500ms);
  stopped.stop();
  verge::timer put_off(700ms);
  put_off.reset(up_to(1h));
  sim.run_for(10s);
  EXPECT_GE(sim.jumps(), 10u);
  EXPECT_LE(sim.jumps(), 10u * (1 + GetParam().levels)) << "it stops at a time without events";
  for (const auto& c : all) EXPECT_TRUE(c.try_recv());
}

TEST_P(conformance, L37_a_day_of_tickers_and_time_outs_is_done_at_once) {
  const auto before = processor_time();
  simulation sim(simulated());
  int ticks = 0;
  int time_outs = 0;
  auto ticking = sim.thread([&]() -> task<> {
    const verge::ticker tk(up_to(10s));
    for (;;) {
      co_await verge::recv(tk.c());
      ++ticks;
    }
  });
  auto timing = sim.thread([&]() -> task<> {
    chan<int> silent;
    for (;;) {
      try {
        co_await verge::timeout(verge::recv(silent), up_to(30s));
      } catch (const timed_out&) {
        ++time_outs;
      }
    }
  });
  // The simple wheel visits all 86 million ticks on the way. With a sanitizer, where that takes
  // most of a minute, two hours and a half are enough.
  const int periods = takes_any_delay() ? 8640 : scale(8640, 900);
  sim.run_for(periods * up_to(10s));
  EXPECT_EQ(ticks, periods);
  EXPECT_GE(time_outs, periods / 4);
  EXPECT_LT(processor_time() - before, 10s);
}

TEST_P(conformance,
       L38_everything_blocked_and_no_timer_left_is_a_deadlock_with_what_each_waits_for) {
  simulation sim(simulated());
  chan<int> a;
  chan<int> b;
  auto receiver_task = sim.thread([&]() -> task<> { co_await verge::recv(a); });
  auto sender_task = sim.thread([&]() -> task<> { co_await verge::send(b, 1); });
  std::string report;
  try {
    sim.run([&]() -> task<> {
      co_await verge::sleep(1s);
      co_await verge::select(verge::recv(a), verge::recv(a));
    });
  } catch (const deadlock& e) {
    report = e.what();
  }
  EXPECT_THAT(report, HasSubstr("deadlock at 3601."));
  EXPECT_THAT(report, HasSubstr("everything is blocked and no timer is pending"));
  EXPECT_THAT(report, HasSubstr("task 1 waits for chan receive"));
  EXPECT_THAT(report, HasSubstr("task 2 waits for chan send"));
  EXPECT_THAT(report, HasSubstr("task 3 waits for select"));
  a.close();
  EXPECT_EQ(b.try_recv(), 1);
}

TEST_P(conformance, L38_a_stopped_or_never_due_timer_does_not_prevent_a_deadlock) {
  simulation sim(simulated());
  verge::timer stopped(1h > up_to(1h) ? up_to(1h) : nanoseconds(1h));
  stopped.stop();
  EXPECT_THROW(sim.run([&]() -> task<> { co_await verge::recv(stopped.c()); }), deadlock);
  if (takes_any_delay()) {
    const verge::timer never(nanoseconds::max());
    EXPECT_THROW(sim.run([&]() -> task<> { co_await verge::recv(never.c()); }), deadlock);
  } else {
    EXPECT_THAT([] { verge::timer never(nanoseconds::max()); }, is_refused());
    const verge::timer last(GetParam().span);
    EXPECT_NO_THROW(sim.run([&]() -> task<> { co_await verge::recv(last.c()); }));
  }
}

/// The order in which timers of one instant are served, and the participants.
std::vector<int> order_of_one_instant(const simulation_options& options) {
  simulation sim(options);
  std::vector<int> order;
  std::vector<verge::timer> timers;
  for (int i = 0; i < 20; ++i) {
    switch (i % 3) {
      case 0:
        timers.push_back(after_func(50ms, [&order, i] { order.push_back(i); }));
        break;
      case 1:
        sim.thread([&order, i]() -> task<> {
             co_await verge::sleep(50ms);
             order.push_back(i);
           })
            .detach();
        break;
      default:
        sim.thread([&order, i] {
             verge::after(50ms).recv();
             order.push_back(i);
           })
            .detach();
    }
  }
  sim.run_for(200ms);
  return order;
}

TEST_P(conformance, L39_the_seed_decides_the_order_of_timers_due_at_one_instant) {
  std::set<std::vector<int>> orders;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const auto order = order_of_one_instant(simulated(seed));
    EXPECT_EQ(order.size(), 20u);
    for (int again = 0; again < 3; ++again) {
      EXPECT_EQ(order, order_of_one_instant(simulated(seed))) << "with seed " << seed;
    }
    orders.insert(order);
  }
  EXPECT_GE(orders.size(), 8u) << "seeds hardly matter";
}

TEST_P(conformance, L39_the_same_seed_gives_the_same_run) {
  const auto run = [&](std::uint64_t seed) {
    simulation sim(simulated(seed));
    std::string log;
    chan<int> c(3);
    for (int i = 0; i < 5; ++i) {
      sim.thread([&, i]() -> task<> {
           for (int n = 0; n < 20; ++n) {
             co_await verge::sleep((n * i % 7) * 20ms);
             co_await verge::select(
                 verge::recv(
                     c, [&](std::optional<int> v) { log += std::to_string(i * 10 + *v) + ' '; }),
                 verge::send(c, i, [&] { log += 's'; }));
           }
         })
          .detach();
    }
    sim.run_for(up_to(1h));
    return log + std::to_string(sim.jumps());
  };
  std::set<std::string> runs;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const auto first = run(seed);
    EXPECT_EQ(first, run(seed)) << "with seed " << seed;
    runs.insert(first);
  }
  EXPECT_GE(runs.size(), 8u);
}

}  // namespace
}  // namespace verge::test
