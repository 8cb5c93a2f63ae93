// SPDX-License-Identifier: Apache-2.0

// Lines 1 to 9: sleep, after and after_func. (10 and 11, which need busy processors: busy_test.cc.)

#include <conformance/conformance.h>

#include <gmock/gmock.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

namespace verge::test {
namespace {

/// Sends the calling thread a signal now and then during its lifetime.
class signal_storm {
 public:
  signal_storm() {
    struct sigaction ignore {};
    ignore.sa_handler = [](int) {};  // no SA_RESTART: system calls are interrupted
    sigaction(SIGUSR1, &ignore, &before_);
    storm_ = std::thread([this, target = pthread_self()] {
      while (!over_.load()) {
        pthread_kill(target, SIGUSR1);
        ++sent_;
        std::this_thread::sleep_for(1ms);  // many, but the target still makes progress
      }
    });
  }
  ~signal_storm() {
    over_.store(true);
    storm_.join();
    sigaction(SIGUSR1, &before_, nullptr);
  }
  signal_storm(const signal_storm&) = delete;
  signal_storm& operator=(const signal_storm&) = delete;
  int sent() const { return sent_.load(); }

 private:
  struct sigaction before_ {};
  std::atomic<bool> over_{false};
  std::atomic<int> sent_{0};
  std::thread storm_;
};

TEST_P(conformance, L01_sleep_takes_at_least_as_long_as_asked) {
  runtime rt(live());
  const auto start = clock::now();
  const auto woken = rt.run([]() -> task<time_point> {
    co_await verge::sleep(100ms);
    co_return clock::now();
  });
  EXPECT_GE(woken - start, 100ms);
}

TEST_P(conformance, L01_signals_do_not_cut_a_sleep_short) {
  runtime rt(live());
  as_default here(rt);
  signal_storm storm;
  while (storm.sent() == 0) {  // again, if the signalling thread did not run
    const auto start = clock::now();
    verge::sleep(100ms).wait();
    EXPECT_GE(clock::now() - start, 100ms);
  }
}

TEST_P(conformance, L02_sleep_of_zero_or_less_returns_at_once) {
  simulation sim(simulated());
  const auto start = sim.now();
  sim.run([]() -> task<> {
    co_await verge::sleep(0s);
    co_await verge::sleep(-1ns);
    co_await verge::sleep(-1h);
  });
  verge::sleep(0s).wait();
  verge::sleep(-1h).wait();
  verge::sleep_until(start - 1h).wait();
  EXPECT_EQ(sim.now(), start);
  EXPECT_EQ(sim.jumps(), 0u);
}

TEST_P(conformance, L02_a_loop_of_sleep_0_never_hangs) {
  for (const unsigned processors : {1U, 4U}) {
    runtime rt(live(processors));
    std::vector<join_handle<>> loops;
    for (int i = 0; i < 8; ++i) {
      loops.push_back(rt.spawn([]() -> task<> {
        for (int n = 0; n < 1000; ++n) {
          co_await verge::sleep(0s);
          co_await verge::yield();
        }
      }));
    }
    for (auto& loop : loops) loop.join();
  }
}

TEST_P(conformance, L03_the_largest_duration_never_fires_and_delays_no_other) {
  simulation sim(simulated());
  constexpr auto largest = nanoseconds::max();
  if (!takes_any_delay()) {
    EXPECT_THAT([&] { static_cast<void>(verge::after(largest)); }, is_refused());
    EXPECT_THAT([&] { verge::sleep(largest).wait(); }, is_refused());
    EXPECT_THAT([&] { static_cast<void>(after_func(2 * GetParam().span, [] {})); }, is_refused());
    verge::timer t(1s);
    EXPECT_THAT([&] { t.reset(largest); }, is_refused());
    const auto start = sim.now();
    EXPECT_TRUE(on_time(start + 1s, *t.c().recv())) << "it continues as before";
    return;
  }
  const auto never = verge::after(largest);
  const auto never_in_hours = verge::after(std::chrono::hours::max());
  bool woken = false;
  auto sleeper = sim.thread([&]() -> task<> {
    co_await verge::sleep(largest);
    woken = true;
  });
  const auto start = sim.now();
  const auto soon = verge::after(1ms).recv();
  EXPECT_TRUE(on_time(start + 1ms, *soon));
  sim.run_for(24h * 365 * 50);
  EXPECT_FALSE(never.try_recv());
  EXPECT_FALSE(never_in_hours.try_recv());
  EXPECT_FALSE(woken);
  sleeper.cancel();
  EXPECT_THROW(sleeper.join(), cancelled);
}

TEST_P(conformance, L03_the_largest_duration_delays_no_other_in_real_time) {
  runtime rt(live());
  as_default here(rt);
  const auto largest = up_to(nanoseconds::max());
  const auto start = clock::now();
  const auto last = verge::after(largest);
  if (!takes_any_delay()) {
    EXPECT_THAT([] { static_cast<void>(verge::after(nanoseconds::max())); }, is_refused());
  }
  EXPECT_GE(*verge::after(1ms).recv(), start + 1ms);
  const auto fired = last.try_recv();
  EXPECT_FALSE(fired && *fired < start + largest) << "early";
}

TEST_P(conformance, L04_the_most_negative_duration_fires_at_once) {
  simulation sim(simulated());
  const auto start = sim.now();
  verge::sleep(nanoseconds::min()).wait();
  verge::sleep(std::chrono::hours::min()).wait();
  EXPECT_EQ(sim.now(), start);
  EXPECT_TRUE(on_time(start, *verge::after(nanoseconds::min()).recv()));
  EXPECT_TRUE(on_time(start, *verge::after(std::chrono::hours::min()).recv(), 2));
  EXPECT_TRUE(on_time(start, sim.now(), 2));
}

/// Rearms itself until it has run `left` times, and blocks in each run until all have run.
struct chain {
  std::atomic<int> left;
  std::atomic<int> blocked{0};
  chan<bool> release{};
  chan<bool> last_runs{1};

  void run() {
    if (--left == 0) {
      last_runs.send(true);
      return;
    }
    after_func(0s, [this] { run(); }).detach();
    ++blocked;
    release.recv();
    --blocked;
  }
};

TEST_P(conformance, L05_callbacks_that_block_do_not_delay_those_they_start) {
  runtime rt(live(1));
  as_default here(rt);
  chain c{.left = 10};
  after_func(0s, [&] { c.run(); }).detach();
  EXPECT_TRUE(c.last_runs.recv());
  EXPECT_TRUE(eventually([&] { return c.blocked == 9; })) << c.blocked << " of 9 are in callbacks";
  c.release.close();
  EXPECT_TRUE(eventually([&] { return c.blocked == 0; }));
}

TEST_P(conformance, L05_each_callback_is_a_separate_task) {
  simulation sim(simulated());
  const auto start = sim.now();
  chain c{.left = 10};
  after_func(0s, [&] { c.run(); }).detach();
  EXPECT_TRUE(c.last_runs.recv());
  EXPECT_TRUE(on_time(start, sim.now(), 10));
  EXPECT_EQ(c.blocked, 9);
  c.release.close();
  sim.run_for(1ms);
  EXPECT_EQ(c.blocked, 0);
}

TEST_P(conformance, L06_after_d_at_least_d_passes_and_the_time_delivered_is_no_less) {
  runtime rt(live());
  as_default here(rt);
  for (const nanoseconds d : {0ns, 1ns, 999ns, 50'000ns, 1'000'000ns, 20'000'000ns}) {
    const auto start = clock::now();
    const auto delivered = *verge::after(d).recv();
    EXPECT_GE(delivered, start + d) << d.count();
    EXPECT_GE(clock::now(), delivered);
  }
}

TEST_P(conformance, L07_timers_started_out_of_order_are_delivered_in_order) {
  constexpr std::array slots{5, 3, 6, 6, 6, 1, 1, 2, 7, 9, 4, 8, 0};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    simulation sim(simulated(seed));
    const auto start = sim.now();
    chan<int> delivered(slots.size());
    for (const int slot : slots) {
      sim.thread([=, &sim, c = verge::after(slot * 20ms)]() -> task<> {
           const auto at = co_await verge::recv(c);
           EXPECT_TRUE(on_time(start + slot * 20ms, *at));
           EXPECT_TRUE(on_time(start + slot * 20ms, sim.now()));
           co_await verge::send(delivered, slot);
         })
          .detach();
    }
    std::vector<int> order;
    for (std::size_t i = 0; i < slots.size(); ++i) order.push_back(*delivered.recv());
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end())) << testing::PrintToString(order);
  }
}

TEST_P(conformance, L08_a_value_received_late_carries_the_time_it_fired) {
  simulation sim(simulated());
  const auto start = sim.now();
  const auto once = verge::after(10ms);
  const verge::timer t(20ms);
  const verge::ticker tk(30ms);
  const auto ticks = verge::tick(40ms);
  sim.run_for(1s);
  EXPECT_TRUE(on_time(start + 10ms, *once.try_recv()));
  EXPECT_TRUE(on_time(start + 20ms, *t.c().try_recv()));
  EXPECT_TRUE(on_time(start + 30ms, *tk.c().try_recv()));
  EXPECT_TRUE(on_time(start + 40ms, *ticks.try_recv()));
}

/// Counts what is later than allowed; runs on several tasks at once.
class lateness_limit {
 public:
  /// A lost timer fires when something else wakes its processor, if at all. Two seconds would be
  /// enough on an idle machine, but not on a busy one.
  static constexpr auto limit = 10s;

  void fired(time_point asked_for) {
    const auto now = clock::now();
    if (now > end_) time_is_up_ = true;
    const auto late = now - asked_for;
    auto worst = worst_.load();
    while (late.count() > worst && !worst_.compare_exchange_weak(worst, late.count())) {
    }
  }
  nanoseconds worst() const { return nanoseconds(worst_.load()); }
  /// A million, or as many as fit into some time.
  bool time_is_up() const { return time_is_up_; }

 private:
  const time_point end_ = clock::now() + 1500ms;
  std::atomic<bool> time_is_up_{false};
  std::atomic<std::int64_t> worst_{0};
};

/// Several tasks run `loop` concurrently, each at most that often, and none of its timers is lost.
template <class Loop>
void expect_none_left_lying(runtime& rt, Loop loop) {
  lateness_limit late;
  constexpr int tasks = 4;
  const int each = scale(1'000'000, 30'000) / 3 / tasks;
  std::vector<join_handle<>> loops;
  for (int i = 0; i < tasks; ++i) loops.push_back(rt.spawn(loop(late, each)));
  for (auto& one : loops) one.join();
  EXPECT_LT(late.worst(), lateness_limit::limit);
}

TEST_P(conformance, L09_no_new_timer_of_zero_duration_is_lost) {
  runtime rt(live());
  expect_none_left_lying(rt, [](lateness_limit& late, int most) -> task<> {
    for (int n = 0; n < most && !late.time_is_up(); ++n) {
      const auto start = clock::now();
      const verge::timer t(0s);
      co_await verge::recv(t.c());
      late.fired(start);
    }
  });
}

TEST_P(conformance, L09_no_callback_of_zero_duration_is_lost) {
  runtime rt(live());
  expect_none_left_lying(rt, [](lateness_limit& late, int most) -> task<> {
    chan<bool> done(1);
    for (int n = 0; n < most && !late.time_is_up(); ++n) {
      const auto start = clock::now();
      const auto t = after_func(0s, [&] { done.send(true); });
      co_await verge::recv(done);
      late.fired(start);
    }
  });
}

TEST_P(conformance, L09_no_reset_to_zero_is_lost) {
  runtime rt(live());
  expect_none_left_lying(rt, [](lateness_limit& late, int most) -> task<> {
    verge::timer t(0s);
    co_await verge::recv(t.c());
    for (int n = 0; n < most && !late.time_is_up(); ++n) {
      const auto start = clock::now();
      t.reset(0s);
      co_await verge::recv(t.c());
      late.fired(start);
    }
  });
}

}  // namespace
}  // namespace verge::test
