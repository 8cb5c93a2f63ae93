// SPDX-License-Identifier: Apache-2.0

// Lines 25 to 31 and 33: tickers.

#include <conformance/conformance.h>

#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <support/raw_timer.h>

namespace verge::test {
namespace {

TEST_P(conformance, L25_a_ticker_ticks_and_continues_at_the_period_it_is_reset_to) {
  simulation sim(simulated());
  constexpr int n = 10;
  constexpr auto period = 50ms;
  const auto start = sim.now();
  verge::ticker tk(period);
  for (int i = 1; i <= n; ++i) EXPECT_TRUE(on_time(start + i * period, *tk.c().recv()));
  EXPECT_TRUE(on_time(start + n * period, sim.now()));

  const auto then = sim.now();
  EXPECT_TRUE(tk.reset(2 * period));
  for (int i = 1; i <= n; ++i) EXPECT_TRUE(on_time(then + i * 2 * period, *tk.c().recv()));

  EXPECT_TRUE(tk.stop());
  EXPECT_FALSE(tk.stop());
  sim.run_for(10 * period);
  EXPECT_FALSE(tk.c().try_recv());
  EXPECT_FALSE(tk.reset(period));
  EXPECT_TRUE(tk.c().recv());
}

TEST_P(conformance, L25_in_real_time_no_tick_is_early) {
  runtime rt(live());
  as_default here(rt);
  constexpr int n = 10;
  constexpr auto period = 10ms;
  const auto start = clock::now();
  verge::ticker tk(period);
  for (int i = 1; i <= n; ++i) EXPECT_GE(*tk.c().recv(), start + i * period);
  const auto then = clock::now();
  tk.reset(2 * period);
  for (int i = 1; i <= n; ++i) EXPECT_GE(*tk.c().recv(), then + i * 2 * period);
  tk.stop();
  EXPECT_FALSE(tk.c().try_recv());
}

TEST_P(conformance, L26_a_period_of_zero_or_less_is_an_error) {
  simulation sim(simulated());
  using testing::HasSubstr;
  using testing::ThrowsMessage;
  const auto refused =
      ThrowsMessage<std::invalid_argument>(HasSubstr("the period of a ticker must be positive"));
  EXPECT_THAT([] { static_cast<void>(verge::ticker(0s)); }, refused);
  EXPECT_THAT([] { static_cast<void>(verge::ticker(-1ns)); }, refused);
  EXPECT_THAT([] { static_cast<void>(verge::ticker(nanoseconds::min(), missed_ticks::burst)); },
              refused);
  EXPECT_THAT([] { static_cast<void>(every(0s, [] {})); }, refused);
  EXPECT_THAT([] { static_cast<void>(every(-1h, [] {})); }, refused);

  const auto start = sim.now();
  verge::ticker tk(20ms);
  EXPECT_THAT([&] { tk.reset(0s); }, refused);
  EXPECT_THAT([&] { tk.reset(-1h); }, refused);
  EXPECT_TRUE(on_time(start + 20ms, *tk.c().recv())) << "it continues as before";
}

TEST_P(conformance, L27_tick_of_zero_or_less_gives_a_channel_that_never_delivers) {
  simulation sim(simulated());
  for (const nanoseconds d : {0ns, -1ns, nanoseconds::min()}) {
    const auto c = verge::tick(d);
    ASSERT_TRUE(c);
    sim.run_for(up_to(24h));
    EXPECT_FALSE(c.try_recv());
    EXPECT_FALSE(c.closed());
  }
}

TEST_P(conformance, L28_create_tick_and_stop_in_a_loop_never_deadlocks) {
  runtime rt(live());
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      as_default here(rt);
      const int rounds = tick() == 0ns ? scale(1000, 200) : 50;
      for (int n = 0; n < rounds; ++n) {
        verge::ticker tk(100us);
        tk.c().recv();
        tk.stop();
        const auto called = every(50us, [&tk] { tk.stop(); });
        const auto dropped = verge::tick(30us);
        dropped.recv();
      }
    });
  }
  for (auto& t : threads) t.join();
}

/// Ticks that have been received: as many as wanted, or as fit into some time.
class tick_count {
 public:
  explicit tick_count(int wanted) : wanted_(wanted) {}

  /// Counts one more. Returns true for the one that makes it enough.
  bool one_more() {
    return (++received_ >= wanted_ || clock::now() > end_) && !enough_.exchange(true);
  }
  bool enough() const { return enough_; }

 private:
  const int wanted_;
  const time_point end_ = clock::now() + 1500ms;
  std::atomic<int> received_{0};
  std::atomic<bool> enough_{false};
};

TEST_P(conformance, L29_ten_receivers_read_a_ticker_of_1_ns) {
  runtime rt(live());
  as_default here(rt);
  verge::ticker tk(1ns);
  tick_count ticks(scale(100'000, 10'000));
  chan<bool> over;
  std::vector<join_handle<>> receivers;
  for (int i = 0; i < 10; ++i) {
    receivers.push_back(rt.spawn([&]() -> task<> {
      for (bool more = true; more;) {
        co_await verge::select(verge::recv(over, [&] { more = false; }), verge::recv(tk.c(), [&] {
                                 if (ticks.one_more()) over.close();
                               }));
      }
    }));
  }
  for (auto& r : receivers) r.join();
  EXPECT_TRUE(tk.stop());
}

TEST_P(conformance, L29_a_receiver_per_processor_reads_a_ticker_of_1_us) {
  constexpr int processors = 4;
  runtime rt(live(processors));
  as_default here(rt);
  verge::ticker tk(1us);
  tick_count ticks(scale(100'000, 10'000));
  std::vector<join_handle<>> receivers;
  for (int i = 0; i < processors; ++i) {
    receivers.push_back(rt.spawn([&]() -> task<> {
      while (!ticks.enough()) {
        co_await verge::recv(tk.c());
        ticks.one_more();
      }
    }));
  }
  for (auto& r : receivers) r.join();
  EXPECT_TRUE(tk.stop());
}

TEST_P(conformance, L30_a_slow_receiver_finds_exactly_one_tick_waiting) {
  simulation sim(simulated());
  const auto start = sim.now();
  verge::ticker tk(20ms);
  sim.run_for(1s + 10ms);
  EXPECT_EQ(tk.c().size(), 1u);
  EXPECT_TRUE(on_time(start + 20ms, *tk.c().try_recv()));
  EXPECT_FALSE(tk.c().try_recv()) << "the missed ones are dropped";
  EXPECT_TRUE(on_time(start + 1s + 20ms, *tk.c().recv())) << "and the grid is unchanged";
}

/// For a timer that is due at 100 and every 10 from then, and is processed at `seen`: returns when
/// it fires next. All times in units; a unit is the resolution of the engine.
std::vector<std::int64_t> firings(verge::engine engine, nanoseconds unit, int seen) {
  simulation sim({.engine = engine, .start = time_point(seen * unit)});
  std::vector<std::int64_t> at;
  const raw_timer t(detail::scheduler_of(sim), (100 * unit).count(), (10 * unit).count(),
                    [&] { at.push_back(sim.now().time_since_epoch() / unit); });
  sim.run_for(20 * unit);
  return at;
}

TEST_P(conformance, L31_a_late_ticker_catches_up_to_its_grid) {
  // A wheel may fire a tick late and continue from there: a unit is ten of its ticks.
  const nanoseconds unit = tick() == 0ns ? 1ns : 10 * tick();
  const auto at_109 = firings(GetParam().engine, unit, 109);
  ASSERT_GE(at_109.size(), 3u);
  EXPECT_EQ(at_109[0], 109);
  EXPECT_EQ(at_109[1], 110);
  EXPECT_EQ(at_109[2], 120);
  const auto at_110 = firings(GetParam().engine, unit, 110);
  ASSERT_GE(at_110.size(), 2u);
  EXPECT_EQ(at_110[0], 110);
  EXPECT_EQ(at_110[1], 120);
}

/// Tickers whose ticks are counted.
struct counted_tickers {
  std::vector<std::unique_ptr<std::atomic<int>>> ticks;
  std::vector<verge::ticker> all;

  void add() {
    auto& n = ticks.emplace_back(std::make_unique<std::atomic<int>>(0));
    all.push_back(every(1ms, [count = n.get()] { ++*count; }));
  }
  /// Waits until each has ticked a few more times.
  bool all_go_on() const {
    std::vector<int> goal;
    for (const auto& n : ticks) goal.push_back(*n + 3);
    return eventually([&] {
      for (std::size_t i = 0; i < goal.size(); ++i) {
        if (*ticks[i] < goal[i]) return false;
      }
      return true;
    });
  }
};

TEST_P(conformance, L33_the_number_of_processors_changes_and_every_ticker_continues) {
  runtime rt(live(4));
  as_default here(rt);
  counted_tickers tickers;
  for (int i = 0; i < 4; ++i) {
    tickers.add();
    // From tasks, so that some belong to the processors.
    rt.run([&] {
      for (int n = 0; n < 4; ++n) tickers.add();
    });
  }
  for (const unsigned n : {1U, 4U, 2U, 8U, 3U, 1U, 2U}) {
    rt.set_processors(n);
    EXPECT_EQ(rt.processors(), n);
    ASSERT_TRUE(tickers.all_go_on()) << "after a change to " << n << " processors";
    rt.run([&] { tickers.add(); });
  }
}

TEST_P(conformance, L33_many_changes_at_once_lose_no_ticker) {
  runtime rt(live(2));
  as_default here(rt);
  counted_tickers tickers;
  for (int i = 0; i < 16; ++i) tickers.add();
  for (int i = 0; i < scale(300, 60); ++i) rt.set_processors(1 + static_cast<unsigned>(i * 7 % 5));
  EXPECT_TRUE(tickers.all_go_on());
}

}  // namespace
}  // namespace verge::test
