// SPDX-License-Identifier: Apache-2.0

// Lines 12 to 16 and 21 to 24: stop, reset and the end of a handle, by one thread.
// (17 to 20, where several do it at once: races_test.cc.)

#include <conformance/conformance.h>

#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <support/raw_timer.h>
#include <support/thread_state.h>

namespace verge::test {
namespace {

TEST_P(conformance, L12_a_timer_stopped_before_its_time_never_fires) {
  simulation sim(simulated());
  int called = 0;
  auto func = after_func(100ms, [&] { ++called; });
  verge::timer chan_timer(100ms);
  const auto later = verge::after(200ms);
  sim.run_for(50ms);
  EXPECT_TRUE(func.stop());
  EXPECT_TRUE(chan_timer.stop());
  EXPECT_FALSE(func.stop());
  EXPECT_FALSE(chan_timer.stop());
  later.recv();
  sim.run_for(up_to(1h));
  EXPECT_EQ(called, 0);
  EXPECT_FALSE(chan_timer.c().try_recv());
  EXPECT_FALSE(func.stop());
  EXPECT_FALSE(chan_timer.stop());
}

TEST_P(conformance, L12_a_timer_that_has_fired_cannot_be_stopped) {
  simulation sim(simulated());
  int called = 0;
  auto func = after_func(100ms, [&] { ++called; });
  verge::timer chan_timer(100ms);
  EXPECT_TRUE(chan_timer.c().recv());
  sim.run_for(1ms);
  EXPECT_EQ(called, 1);
  EXPECT_FALSE(func.stop());
  EXPECT_FALSE(chan_timer.stop());
}

TEST_P(conformance, L13_of_a_hundred_timers_stopped_half_way_none_fires) {
  simulation sim(simulated());
  int called = 0;
  for (int round = 0; round < 100; ++round) {
    auto t = after_func(2ms + round * 1ms, [&] { ++called; });
    sim.run_for((2ms + round * 1ms) / 2);
    EXPECT_TRUE(t.stop());
  }
  std::vector<verge::timer> all;
  for (int i = 0; i < 100; ++i) all.push_back(after_func(up_to(2s), [&] { ++called; }));
  sim.run_for(up_to(2s) / 2);
  for (auto& t : all) EXPECT_TRUE(t.stop());
  sim.run_for(up_to(2s));
  EXPECT_EQ(called, 0);
}

TEST_P(conformance, L14_a_reset_timer_fires_at_the_new_time_and_not_at_the_old) {
  simulation sim(simulated());
  const auto start = sim.now();
  verge::timer t(100ms);
  time_point called{};
  auto func = after_func(100ms, [&] { called = sim.now(); });
  sim.run_for(50ms);
  EXPECT_TRUE(t.reset(150ms));
  EXPECT_TRUE(func.reset(150ms));
  sim.run_for(100ms);  // past the old time
  EXPECT_FALSE(t.c().try_recv());
  EXPECT_EQ(called, time_point{});
  EXPECT_TRUE(on_time(start + 200ms, *t.c().recv(), 2));
  sim.run_for(1ms);
  EXPECT_TRUE(on_time(start + 200ms, called, 2));

  EXPECT_FALSE(t.reset(50ms)) << "it has fired, and its time was received";
  EXPECT_FALSE(func.reset(50ms)) << "it has fired";
  EXPECT_TRUE(t.reset(20ms)) << "and was started again";
  const auto again = sim.now();
  EXPECT_TRUE(on_time(again + 20ms, *t.c().recv()));
}

TEST_P(conformance, L14_a_timer_reset_to_earlier_fires_earlier) {
  simulation sim(simulated());
  verge::timer t(up_to(1h));
  std::vector<receiver<time_point>> others;
  for (int i = 1; i < 50; ++i) others.push_back(verge::after(i * 20ms));
  const auto start = sim.now();
  EXPECT_TRUE(t.reset(30ms));
  EXPECT_TRUE(on_time(start + 30ms, *t.c().recv()));
  EXPECT_TRUE(on_time(start + 30ms, sim.now()));
  EXPECT_FALSE(t.reset_at(start + 90ms));
  EXPECT_TRUE(on_time(start + 90ms, *t.c().recv()));
}

TEST_P(conformance, L15_stopped_and_reset_into_the_past_it_fires_each_time) {
  simulation sim(simulated());
  verge::timer t(up_to(1h));
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(t.stop(), i == 0);
    EXPECT_FALSE(t.reset_at(time_point(1ns)));
    const auto start = sim.now();
    EXPECT_TRUE(on_time(start, *t.c().recv()));
  }
  EXPECT_FALSE(t.reset(nanoseconds::min()));
  EXPECT_TRUE(t.c().recv());
  EXPECT_FALSE(t.reset_at(time_point::min()));
  EXPECT_TRUE(t.c().recv());
}

TEST_P(conformance, L15_stopped_and_reset_into_the_past_in_real_time) {
  runtime rt(live());
  as_default here(rt);
  verge::timer t(up_to(1h));
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(t.stop(), i == 0);
    EXPECT_FALSE(t.reset_at(clock::now() - 5s));
    EXPECT_TRUE(t.c().recv());
  }
}

/// A timer and whether it must be pending.
struct walker {
  verge::timer timer;
  bool pending{true};

  void stop() {
    EXPECT_EQ(timer.stop(), pending);
    pending = false;
  }
  void reset(nanoseconds d) {
    EXPECT_EQ(timer.reset(d), pending);
    pending = true;
  }
};

/// Go #47762: taking deleted timers off the heap while adjusting it must not skip a timer.
TEST_P(conformance, L16_a_hundred_timers_walked_at_random_all_fire_promptly_at_the_end) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    simulation sim(simulated(seed));
    std::mt19937_64 random(seed);
    // Timers that are due at once, as all are initially, fire when the simulation next runs: some
    // of them before they are reset, and some not.
    std::vector<int> fired(100, 0);
    std::vector<walker> all;
    for (int& mine : fired) all.push_back({.timer = after_func(0ns, [&] { ++mine; })});
    std::vector<int> at(all.size(), 0);      // the progress of each
    std::vector<int> wanted(all.size(), 1);  // firings
    std::size_t walking = all.size();
    time_point ended{};
    while (walking != 0) {
      const std::size_t i = random() % all.size();
      const auto step = [&](walker& w) {
        switch (at[i]++) {
          case 0:
            w.pending = fired[i] == 0;
            wanted[i] += fired[i];
            return w.reset(minutes(1));
          case 1:
            return w.stop();
          case 2:
            return w.reset(minutes(3));
          case 3:
            return w.stop();
          case 4:
            return w.reset(minutes(2));
          case 5:
            return w.stop();
          case 6:
            w.reset(0ns);
            w.pending = false;  // fires as soon as anything waits
            --walking;
            ended = sim.now();
            return;
          default:
            return;
        }
      };
      step(all[i]);
      if (random() % 64 == 0) sim.run_for(1ms);
    }
    while (fired != wanted && sim.now() < ended + 20ms) sim.run_for(1ms);
    EXPECT_EQ(fired, wanted) << "with seed " << seed;
    EXPECT_THAT(wanted, testing::AllOf(testing::Contains(1), testing::Contains(2)))
        << "with seed " << seed;
    EXPECT_TRUE(on_time(ended, sim.now() - 1ms)) << "with seed " << seed;
    for (auto& w : all) w.stop();
  }
}

TEST_P(conformance, L16_the_same_walk_by_many_tasks_in_real_time) {
  runtime rt(live(2));
  std::atomic<int> fired{0};
  std::atomic<int> wanted{100};
  std::vector<join_handle<>> walks;
  for (int i = 0; i < 100; ++i) {
    walks.push_back(rt.spawn([&fired, &wanted, i]() -> task<> {
      std::mt19937 random(static_cast<unsigned>(i));
      const auto pause = [&] { return verge::sleep((random() % 20) * 50us); };
      walker w{.timer = after_func(0ns, [&] { ++fired; })};
      if (random() % 2 == 0) co_await pause();
      // Far enough that none fires while the machine is busy elsewhere.
      if (!w.timer.reset(minutes(7))) ++wanted;  // it has fired, or is about to
      for (const int n : {5, 7, 6}) {
        w.reset(minutes(n));
        co_await pause();
        w.stop();
        co_await pause();
      }
      w.reset(0ns);
      w.timer.detach();
    }));
  }
  for (auto& walk : walks) walk.join();
  EXPECT_TRUE(eventually([&] { return fired == wanted; })) << fired << " and not " << wanted;
}

TEST_P(conformance, L21_stop_or_reset_of_a_timer_that_was_never_started_is_a_clear_error) {
  using testing::HasSubstr;
  using testing::ThrowsMessage;
  verge::timer none;
  verge::ticker none_either;
  EXPECT_THAT([&] { none.stop(); },
              ThrowsMessage<std::logic_error>(HasSubstr("stop of a handle that has no timer")));
  EXPECT_THAT([&] { none.reset(1s); },
              ThrowsMessage<std::logic_error>(HasSubstr("reset of a handle that has no timer")));
  EXPECT_THAT([&] { none.reset_at(clock::now()); },
              ThrowsMessage<std::logic_error>(HasSubstr("Give it one, from verge::timer")));
  EXPECT_THAT([&] { none.c(); }, ThrowsMessage<std::logic_error>(HasSubstr("the channel of")));
  EXPECT_THROW(none_either.stop(), std::logic_error);
  EXPECT_THROW(none_either.reset(1s), std::logic_error);
  EXPECT_THROW(none_either.c(), std::logic_error);

  simulation sim(simulated());
  verge::timer t(1s);
  const verge::timer moved = std::move(t);
  EXPECT_THROW(t.stop(), std::logic_error);  // NOLINT(bugprone-use-after-move)
}

TEST_P(conformance, L22_due_now_with_the_largest_period_fires_once_and_delays_no_other) {
  simulation sim(simulated());
  int called = 0;
  const auto now = sim.now().time_since_epoch().count();
  const auto largest = up_to(nanoseconds::max());
  if (!takes_any_delay()) {
    EXPECT_THAT([&] { static_cast<void>(verge::ticker(nanoseconds::max())); }, is_refused());
    EXPECT_THAT([&] { verge::ticker(1s).reset(nanoseconds::max()); }, is_refused());
  }
  const raw_timer t(detail::scheduler_of(sim), now, largest.count(), [&] { ++called; });
  const auto start = sim.now();
  EXPECT_TRUE(on_time(start + 5ms, *verge::after(5ms).recv()));
  EXPECT_EQ(called, 1);
  // Never again, or only after the longest period that the engine supports.
  const nanoseconds a_while = 24h * 365 * 50;
  sim.run_for(std::min(largest - 10ms, a_while));
  EXPECT_EQ(called, 1);
  sim.run_for(10ms);
  EXPECT_EQ(called, takes_any_delay() ? 1 : 2);
}

TEST_P(conformance, L23_stop_inside_the_callback_is_false_for_a_one_shot_and_true_for_a_ticker) {
  simulation sim(simulated());
  std::vector<bool> once_stopped;
  std::vector<bool> ticker_stopped;
  verge::timer once;
  verge::ticker ticks;
  once = after_func(1ms, [&] { once_stopped.push_back(once.stop()); });
  ticks = every(1ms, [&] { ticker_stopped.push_back(ticks.stop()); });
  sim.run_for(1s);
  EXPECT_EQ(once_stopped, std::vector{false});
  EXPECT_EQ(ticker_stopped, std::vector{true}) << "and it does not tick again";
}

TEST_P(conformance, L23_reset_inside_the_callback_starts_it_again) {
  simulation sim(simulated());
  std::vector<time_point> called;
  verge::timer t;
  const auto start = sim.now();
  t = after_func(10ms, [&] {
    called.push_back(sim.now());
    if (called.size() < 5) {
      EXPECT_FALSE(t.reset(10ms));
    }
  });
  sim.run_for(1s);
  ASSERT_EQ(called.size(), 5u);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(on_time(start + (i + 1) * 10ms, called[static_cast<std::size_t>(i)], i + 1));
  }
}

TEST_P(conformance, L24_destroying_a_handle_waits_for_its_callback_on_another_thread) {
  runtime rt(live(2));
  as_default here(rt);
  const pid_t destroys = ::gettid();
  for (int round = 0; round < scale(50, 10); ++round) {
    std::atomic<bool> started{false};
    std::atomic<bool> go_on{false};
    std::atomic<bool> done{false};
    auto t = std::make_unique<verge::timer>(after_func(0s, [&, destroys] {
      started = true;
      while (!go_on) std::this_thread::yield();
      EXPECT_TRUE(eventually([&] { return is_asleep(destroys); })) << "the destructor waits";
      done = true;
    }));
    ASSERT_TRUE(eventually([&] { return started.load(); }));
    go_on = true;
    t.reset();
    ASSERT_TRUE(done) << "the destructor returned while the callback ran";
  }
}

TEST_P(conformance, L24_a_callback_may_destroy_its_own_handle) {
  runtime rt(live(2));
  as_default here(rt);
  for (int round = 0; round < 50; ++round) {
    std::atomic<bool> in_place{false};
    std::atomic<int> destroyed{0};
    // The function owns the handle, and the handle the function: both are destroyed.
    auto once = std::make_shared<verge::timer>();
    *once = after_func(0s, [once, &in_place, &destroyed] {
      while (!in_place) std::this_thread::yield();
      *once = verge::timer();
      ++destroyed;
    });
    auto ticks = std::make_shared<verge::ticker>();
    auto first = std::make_shared<std::atomic<bool>>(true);
    *ticks = every(1ms, [ticks, first, &in_place, &destroyed] {
      if (!first->exchange(false)) return;
      while (!in_place) std::this_thread::yield();
      *ticks = verge::ticker();
      ++destroyed;
    });
    once.reset();
    ticks.reset();
    in_place = true;
    ASSERT_TRUE(eventually([&] { return destroyed == 2; }));
  }
}

}  // namespace
}  // namespace verge::test
