// SPDX-License-Identifier: Apache-2.0

// The wheels from a user's view: invalid options, delays that they keep inexactly or not at all,
// and their threads.

#include <engine/queue_thread.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <queue/simple_wheel.h>
#include <support/as_default.h>
#include <support/engines.h>
#include <support/patience.h>
#include <support/processor_time.h>
#include <verge/runtime.h>
#include <verge/simulation.h>
#include <verge/task.h>
#include <verge/time.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace verge::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

class wheel_engine : public testing::TestWithParam<verge::engine> {
 protected:
  static simulation_options simulated(wheel_options shape) {
    return {.engine = GetParam(), .wheel = shape};
  }
  static runtime_options live(wheel_options shape) {
    return {.processors = 2, .engine = GetParam(), .wheel = shape};
  }
  static bool has_a_span() { return GetParam() == verge::engine::simple_wheel; }
};

TEST_P(wheel_engine, refuses_a_tick_that_makes_no_wheel_and_says_what_does) {
  for (const nanoseconds tick : {nanoseconds(-1), nanoseconds(1), nanoseconds(999),
                                 nanoseconds(1h) + 1ns, nanoseconds::max(), nanoseconds::min()}) {
    const auto refused = ThrowsMessage<std::invalid_argument>(
        AllOf(HasSubstr("from 1 us to 1 h"), HasSubstr(std::to_string(tick.count()) + " ns")));
    EXPECT_THAT([&] { runtime rt(live({.tick = tick})); }, refused);
    EXPECT_THAT([&] { simulation sim(simulated({.tick = tick})); }, refused);
  }
}

TEST_P(wheel_engine, refuses_a_size_that_makes_no_wheel_and_says_what_does) {
  for (const std::size_t size :
       {std::size_t{1}, (std::size_t{1} << 24) + 1, std::numeric_limits<std::size_t>::max()}) {
    const auto refused = ThrowsMessage<std::invalid_argument>(
        AllOf(HasSubstr("from 2 to 16777216"), HasSubstr(std::to_string(size))));
    EXPECT_THAT([&] { runtime rt(live({.size = size})); }, refused);
    EXPECT_THAT([&] { simulation sim(simulated({.size = size})); }, refused);
  }
}

TEST_P(wheel_engine, takes_zero_for_its_own_tick_and_size) {
  simulation sim(simulated({.tick = 0ns, .size = 0}));
  const auto start = sim.now();
  const auto at = *verge::after(100us).recv();
  EXPECT_GE(at, start + 100us);
  EXPECT_LE(at, start + 1ms) << "of a millisecond";
}

TEST_P(wheel_engine, works_with_the_least_tick_and_the_least_size) {
  simulation sim(simulated({.tick = 1us, .size = 2}));
  const auto start = sim.now();
  EXPECT_EQ(*verge::after(1us).recv(), start + 1us);
  EXPECT_EQ(*verge::after(2us).recv(), start + 3us);
  if (!has_a_span()) {
    EXPECT_EQ(*verge::after(1h).recv(), start + 3us + 1h);
  }
}

TEST_P(wheel_engine, fires_what_is_due_now_or_in_the_past_within_a_tick) {
  simulation sim(simulated({.tick = 10ms, .size = 100}));
  const auto due = [&](auto&& start_timer) {
    const auto begin = sim.now();
    bool called = false;
    auto t = start_timer([&] {
      called = true;
      EXPECT_LE(sim.now(), begin + 10ms);
    });
    sim.run_for(20ms);
    EXPECT_TRUE(called);
    EXPECT_FALSE(t.stop()) << "it has run";
    EXPECT_FALSE(t.stop());
  };
  for (const auto delay : {nanoseconds(0), nanoseconds(-1), nanoseconds::min()}) {
    due([&](auto f) { return after_func(delay, f); });
    due([&](auto f) {
      auto t = after_func(500ms, f);
      EXPECT_TRUE(t.reset(delay));
      return t;
    });
    due([&](auto f) {
      auto t = after_func(500ms, f);
      EXPECT_TRUE(t.reset_at(sim.now() + delay / 2));
      return t;
    });
  }
  const auto begin = sim.now();
  verge::sleep(-1h).wait();
  EXPECT_EQ(sim.now(), begin);
}

/// For every function; and whatever was rejected, everything else continues as before.
TEST_P(wheel_engine, names_its_span_where_a_delay_is_beyond_it_and_takes_any_where_it_has_none) {
  simulation sim(simulated({.tick = 10ms, .size = 100}));
  int called = 0;
  verge::timer t = after_func(500ms, [&] { ++called; });
  verge::ticker tk(100ms);
  const std::vector<std::function<void()>> ways = {
      [&] { after_func(2s, [&] { ++called; }).detach(); },
      [&] { verge::timer unused(2s); },
      [&] { static_cast<void>(verge::after(2s)); },
      [&] { t.reset(2s); },
      [&] { t.reset_at(sim.now() + 2s); },
      [&] { verge::ticker unused(2s); },
      [&] { every(2s, [&] { ++called; }).stop(); },
      [&] { static_cast<void>(verge::tick(2s)); },
      [&] { tk.reset(2s); },
      [&] { verge::sleep(2s).wait(); },
      [&] { sim.run([]() -> task<> { co_await verge::sleep(2s); }); },
  };
  for (const auto& way : ways) {
    if (has_a_span()) {
      EXPECT_THAT(way, ThrowsMessage<std::invalid_argument>(
                           AllOf(AnyOf(HasSubstr("a delay of about 200 ticks is beyond"),
                                       HasSubstr("a period of 2000000000 ns is beyond")),
                                 HasSubstr("beyond the span of the simple wheel"),
                                 HasSubstr("1000000000 ns (100 ticks of 10000000 ns)"),
                                 HasSubstr("choose the timing wheel"))));
    } else {
      EXPECT_NO_THROW(way());
    }
  }
  if (has_a_span()) {
    sim.run_for(510ms);
    EXPECT_EQ(called, 1) << "the timer was not postponed, and no other was started";
    EXPECT_TRUE(tk.c().try_recv());
  }
}

/// All in one bucket; they stop and reset each other while it is emptied.
TEST_P(wheel_engine, lets_a_callback_start_stop_and_postpone_timers) {
  simulation sim(simulated({.tick = 1ms, .size = 1000}));
  std::vector<verge::timer> all(100);
  bool over = false;
  int ran = 0;
  int started = 0;
  const auto meddle = [&](std::size_t i) {
    if (over) return;
    ++ran;
    all[(i + 1) % all.size()].stop();
    all[(i + 2) % all.size()].reset(5ms);
    after_func(0s, [&] { ++started; }).detach();
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = after_func(50ms, [&, i] { meddle(i); });
  }
  sim.run_for(49ms);
  EXPECT_EQ(ran, 0);
  sim.run_for(100ms);
  EXPECT_GE(ran, 50) << "of two neighbours one ran, at least";
  over = true;
  sim.run_for(10ms);
  EXPECT_EQ(started, ran);
  for (auto& t : all) EXPECT_FALSE(t.stop()) << "all have run, or been stopped";
}

TEST_P(wheel_engine, drops_what_is_pending_when_its_runtime_ends) {
  std::atomic<int> called{0};
  std::vector<verge::timer> kept;
  verge::ticker ticks;
  {
    runtime rt(live({.tick = 1ms, .size = 60'000}));
    as_default here(rt);
    for (int i = 0; i < 1000; ++i) {
      after_func(30s, [&] { ++called; }).detach();
      kept.push_back(after_func(30s, [&] { ++called; }));
    }
    ticks = every(30s, [&] { ++called; });
    EXPECT_GE(*verge::after(1ms).recv(), time_point{}) << "the wheel turns";
  }
  EXPECT_EQ(called, 0);
  for (auto& t : kept) {
    EXPECT_FALSE(t.stop()) << "it will not fire, and it was not stopped";
    EXPECT_THAT([&] { t.reset(1ms); },
                ThrowsMessage<std::logic_error>(HasSubstr("the runtime of this timer has ended")));
  }
  EXPECT_FALSE(ticks.stop());
}

INSTANTIATE_TEST_SUITE_P(engines, wheel_engine,
                         testing::Values(verge::engine::simple_wheel, verge::engine::timing_wheel),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST(timing_wheel_engine, wakes_for_buckets_that_are_due_and_for_no_empty_tick) {
  simulation sim({.engine = verge::engine::timing_wheel, .wheel = {.tick = 1s, .size = 1000}});
  const auto start = sim.now();
  const auto before = sim.jumps();
  auto soon = sim.thread([&]() -> task<> {
    co_await verge::sleep(200s);
    EXPECT_EQ(sim.now(), start + 200s);
  });
  sim.run([&]() -> task<> {
    co_await verge::sleep(850s);
    EXPECT_EQ(sim.now(), start + 850s);
  });
  soon.join();
  EXPECT_GE(sim.jumps() - before, 2U);
  EXPECT_LE(sim.jumps() - before, 3U) << "two buckets, and one level to cross";
}

/// A busy machine makes the wait longer, and a thread that waits does not take more of it.
TEST(a_runtime_with_one_timer, takes_hardly_any_processor_time_until_it_is_due) {
  for (const engine_traits& e : engines) {
    runtime rt{{.processors = 2, .engine = e.engine}};
    after(rt, 1ms).recv();  // all threads are there
    const auto before = processor_time();
    after(rt, 300ms).recv();
    EXPECT_LT(processor_time() - before, 150ms) << e.name;
  }
}

/// A host for one queue in real time.
class wheel_thread : public testing::Test, public detail::engine_host {
 protected:
  std::int64_t now() noexcept override { return clock::now().time_since_epoch().count(); }
  std::int64_t cheap_now() noexcept override { return now(); }
  unsigned home_processor() noexcept override { return 0; }
  void wake_net_poller(std::int64_t) noexcept override {}
  void timer_fired(std::int64_t, std::int64_t) noexcept override {}

  detail::queue_thread<detail::simple_wheel> wheel_{
      *this, detail::wheel_shape{.tick = 1'000'000, .size = 100}};
};

TEST_F(wheel_thread, cannot_be_started_twice_nor_stopped_twice) {
  const auto runs = ThrowsMessage<std::logic_error>(HasSubstr("started already; stop it first"));
  const auto rests = ThrowsMessage<std::logic_error>(HasSubstr("does not run; start it first"));
  EXPECT_THAT([&] { wheel_.stop(); }, rests);
  for (int i = 0; i < 3; ++i) {
    wheel_.start();
    EXPECT_TRUE(wheel_.running());
    EXPECT_THAT([&] { wheel_.start(); }, runs);
    wheel_.stop();
    EXPECT_FALSE(wheel_.running());
    EXPECT_THAT([&] { wheel_.stop(); }, rests);
  }
}

}  // namespace
}  // namespace verge::test
