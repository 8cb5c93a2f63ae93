// SPDX-License-Identifier: Apache-2.0

// Precise timers: they come up ahead of their time, and fire at it. Nothing here depends on how
// late they are, which depends on the machine: `verge bench` and docs/timers.md have that.

#include <engine/hybrid.h>
#include <gtest/gtest.h>
#include <sched/realtime.h>
#include <sched/wake_up_lag.h>
#include <support/lone_engine.h>
#include <verge/net.h>
#include <verge/runtime.h>
#include <verge/time.h>

#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace verge::test {
namespace {

using namespace std::chrono_literals;
using detail::timer_node;

constexpr timer_options precisely{.precise = true};
constexpr std::int64_t us = 1000;

// ---- The engine, under a clock that the test moves

class precise_engine : public testing::Test, public lone_engine {
 protected:
  precise_engine() : lone_engine(verge::engine::hybrid) { engine().come_up_early(100 * us); }

  timer_node& start_precise(std::int64_t delay, std::int64_t period = 0) {
    timer_node& t = detail::make_func_timer(timers(), [this] { ++fired_; });
    detail::set_precise(t, true);
    timers().start(t, timers().deadline(delay), period);
    return t;
  }
  /// Returns when something comes up next.
  std::int64_t check_at(std::int64_t when) {
    now_ = when;
    return engine().check_timers(0, now_, true).next;
  }

  int fired_ = 0;
};

TEST_F(precise_engine, marks_the_precise_timers_whichever_way_they_are_made) {
  const std::array<std::int64_t, 3> large{};
  for (const std::int64_t slack : {std::int64_t{0}, detail::precise_slack}) {
    for (timer_node* const t :
         {detail::start_channel_timer(timers(), ms, slack, {}),
          detail::start_channel_timer_at(timers(), now_ + ms, slack, {}),
          detail::start_func_timer(
              timers(), ms, [] {}, slack),
          detail::start_func_timer(
              timers(), ms, [large] { static_cast<void>(large.front()); }, slack),
          detail::start_func_timer_at(
              timers(), now_ + ms, [] {}, slack)}) {
      EXPECT_EQ(detail::is_precise(*t), slack != 0);
      detail::destroy_timer(*t);
    }
  }
}

/// Each comes first, so that its entry is the one that is seen.
TEST_F(precise_engine, has_the_entry_of_each_kind_of_timer_where_that_belongs) {
  std::int64_t delay = 10 * second;
  for (const bool precise : {false, true}) {
    SCOPED_TRACE(precise);
    const std::int64_t slack = precise ? detail::precise_slack : 0;
    const std::int64_t ahead = precise ? 100 * us : 0;
    std::uint8_t policy = 0;
    const auto next = [&] { return delay -= ms; };
    const auto expect_entry = [&](const char* of) {
      EXPECT_EQ(engine().next_when(0), now_ + delay - ahead) << of;
    };
    const auto expect_timer = [&](const char* of, timer_node* t) {
      expect_entry(of);
      EXPECT_EQ(detail::is_precise(*t), precise) << of;
      detail::destroy_timer(*t);
    };
    expect_timer("timer", detail::start_channel_timer(timers(), next(), slack, {}));
    expect_timer("timer", detail::start_channel_timer_at(timers(), now_ + next(), slack, {}));
    expect_timer("function", detail::start_func_timer(
                                 timers(), next(), [] {}, slack));
    expect_timer("function", detail::start_func_timer_at(
                                 timers(), now_ + next(), [] {}, slack));
    {
      const auto c = detail::after_channel(timers(), next(), slack, {});
      expect_entry("after");
    }
    for (const auto missed : {missed_ticks::skip, missed_ticks::burst, missed_ticks::delay}) {
      policy = static_cast<std::uint8_t>(missed);
      if (precise) policy = static_cast<std::uint8_t>(policy | detail::precise_ticks);
      expect_timer("ticker", detail::start_ticker(timers(), next(), policy, {}));
      next();
      expect_timer("grid", detail::start_ticker_at(timers(), now_ + delay, second, policy, {}));
      const auto c = detail::tick_channel(timers(), next(), policy, {});
      expect_entry("tick");
    }
    // A reset makes it what it says, and no other.
    for (const bool before : {false, true}) {
      const std::int64_t slack_before = before ? detail::precise_slack : 0;
      for (timer_node* const t :
           {detail::start_channel_timer(timers(), 20 * second, slack_before, {}),
            detail::start_func_timer(
                timers(), 20 * second, [] {}, slack_before)}) {
        EXPECT_TRUE(detail::reset_timer_after(t, next(), slack));
        expect_entry("reset");
        EXPECT_EQ(detail::is_precise(*t), precise);
        detail::set_precise(*t, before);
        EXPECT_TRUE(detail::reset_timer_at(t, now_ + next(), slack));
        expect_timer("reset_at", t);
      }
    }
  }
  const auto t = detail::start_ticker(timers(), 20 * second, 0, {});
  EXPECT_TRUE(detail::reset_ticker(t, delay -= ms));
  EXPECT_EQ(engine().next_when(0), now_ + delay);
  EXPECT_THROW(detail::reset_ticker(t, 0), std::invalid_argument);
  detail::destroy_timer(*t);
}

TEST_F(precise_engine, lets_a_precise_timer_come_up_early_and_fires_it_when_it_is_due) {
  const std::int64_t due = now_ + 10 * ms;
  timer_node& t = start_precise(10 * ms);
  EXPECT_EQ(engine().next_when(0), due - 100 * us) << "a thread sleeps until then";
  EXPECT_LT(engine().awake_until(0), due);
  EXPECT_EQ(check_at(due - 100 * us), due);
  EXPECT_EQ(engine().awake_until(0), due) << "and waits awake for the rest";
  EXPECT_EQ(check_at(due - 1), due);
  EXPECT_EQ(fired_, 0);
  EXPECT_EQ(check_at(due), 0);
  EXPECT_EQ(fired_, 1);
  detail::destroy_timer(t);
}

TEST_F(precise_engine, changes_nothing_for_other_timers) {
  const std::int64_t due = now_ + 10 * ms;
  timer_node& t = start(10 * ms, [this] { ++fired_; });
  EXPECT_EQ(engine().next_when(0), due);
  EXPECT_EQ(check_at(due), 0);
  EXPECT_LT(engine().awake_until(0), due);
  EXPECT_EQ(fired_, 1);
  detail::destroy_timer(t);
}

TEST_F(precise_engine, fires_what_is_due_sooner_than_a_thread_would_wake) {
  const std::int64_t due = now_ + 20 * us;
  timer_node& t = start_precise(20 * us);
  EXPECT_LE(engine().next_when(0), now_) << "a thread that sleeps is woken at once";
  EXPECT_EQ(check_at(now_), due);
  EXPECT_EQ(engine().awake_until(0), due);
  check_at(due - 1);
  EXPECT_EQ(fired_, 0);
  check_at(due);
  EXPECT_EQ(fired_, 1);
  detail::destroy_timer(t);
}

TEST_F(precise_engine, lets_every_tick_come_up_early) {
  const std::int64_t begin = now_;
  timer_node& t = start_precise(10 * ms, 10 * ms);
  for (int tick = 1; tick <= 5; ++tick) {
    const std::int64_t due = begin + tick * 10 * ms;
    EXPECT_EQ(engine().next_when(0), due - 100 * us);
    EXPECT_EQ(check_at(due - 100 * us), due);
    EXPECT_EQ(fired_, tick - 1);
    check_at(due);
    EXPECT_EQ(fired_, tick);
  }
  detail::destroy_timer(t);
}

TEST_F(precise_engine, does_not_wait_awake_for_a_timer_that_was_put_off) {
  const std::int64_t due = now_ + 10 * ms;
  timer_node& t = start_precise(10 * ms);
  timers().reset(t, due + second, 0);
  EXPECT_EQ(check_at(due - 100 * us), due + second - 100 * us) << "it is put ahead of the new time";
  EXPECT_LT(engine().awake_until(0), due);
  EXPECT_EQ(check_at(due + second - 100 * us), due + second);
  check_at(due + second);
  EXPECT_EQ(fired_, 1);
  detail::destroy_timer(t);
}

TEST_F(precise_engine, takes_any_time_and_any_lead) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    engine().come_up_early(static_cast<std::int64_t>(random() % (i % 2 == 0 ? 200 * us : 2)));
    const auto delay = static_cast<std::int64_t>(random() >> (random() % 40 + 22));
    const std::int64_t due = now_ + delay;
    timer_node& t = start_precise(delay);
    const int before = fired_;
    while (engine().next_when(0) < due && engine().next_when(0) != 0) {
      const std::int64_t at = std::max(now_, engine().next_when(0));
      if (at >= due) break;
      check_at(at);
      ASSERT_EQ(fired_, before) << "early, of a delay of " << delay;
    }
    check_at(std::max(now_, due));
    while (fired_ == before) {
      ASSERT_LE(engine().next_when(0), now_);
      check_at(now_);
    }
    ASSERT_EQ(fired_, before + 1);
    detail::destroy_timer(t);
  }
  EXPECT_EQ(engine().verify(), "");
}

// ---- What a sleeper learns

TEST(wake_up_lag, follows_the_95th_percentile) {
  detail::wake_up_lag lag;
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) lag.record(static_cast<std::int64_t>(random() % (60 * us)));
  EXPECT_NEAR(static_cast<double>(lag.estimate()), 57e3, 10e3);
}

TEST(wake_up_lag, rises_by_nineteen_steps_and_falls_by_one) {
  detail::wake_up_lag lag;
  const std::int64_t first = lag.estimate();
  EXPECT_EQ(first, 100 * us);
  lag.record(first);
  const std::int64_t step = first / 256 + 1;
  EXPECT_EQ(lag.estimate(), first - step) << "it was not later than that";
  const std::int64_t second = lag.estimate();
  lag.record(second + 1);
  EXPECT_EQ(lag.estimate(), second + 19 * (second / 256 + 1));
  for (int i = 0; i < 10'000; ++i) lag.record(0);
  EXPECT_EQ(lag.estimate(), 5 * us) << "no thread wakes faster";
  for (int i = 0; i < 10'000; ++i) lag.record(second * second);
  EXPECT_EQ(lag.estimate(), detail::wake_up_lag::most);
}

TEST(wake_up_lag, is_not_led_astray_by_one_late_wake_up_and_has_a_limit) {
  detail::wake_up_lag lag;
  for (int i = 0; i < 5000; ++i) lag.record(30 * us);
  const std::int64_t usual = lag.estimate();
  lag.record(second);
  EXPECT_LT(lag.estimate(), usual + usual / 4);
  for (int i = 0; i < 5000; ++i) lag.record(second);
  EXPECT_EQ(lag.estimate(), detail::wake_up_lag::most);
}

// ---- Everything that can be precise, in a runtime

class precise : public testing::TestWithParam<engine> {
 protected:
  runtime rt_{{.processors = 2, .engine = GetParam()}};
};

TEST_P(precise, timers_are_never_early_and_fire_once) {
  constexpr int many = 300;
  std::atomic<int> fired{0};
  std::atomic<int> early{0};
  chan<int> done(1);
  std::mt19937_64 random(3);
  std::vector<timer> all;
  for (int i = 0; i < many; ++i) {
    const auto due = clock::now() + std::chrono::nanoseconds(random() % 20'000'000);
    const timer_options how{.precise = i % 3 != 0};
    all.push_back(after_func(
        rt_, due,
        [&, due] {
          if (clock::now() < due) ++early;
          if (++fired == many) done.try_send(1);
        },
        how));
  }
  done.recv();
  EXPECT_EQ(early, 0);
  EXPECT_EQ(fired, many);
}

TEST_P(precise, sleeps_tickers_and_channels_are_never_early) {
  const auto begin = clock::now();
  sleep(rt_, 3ms, precisely).wait();
  EXPECT_GE(clock::now() - begin, 3ms);
  sleep_until(rt_, begin + 6ms, precisely).wait();
  EXPECT_GE(clock::now() - begin, 6ms);

  timer t(rt_, 2ms, precisely);
  const auto armed = clock::now();
  EXPECT_TRUE(t.c().recv().has_value());
  t.reset(2ms, precisely);
  EXPECT_TRUE(t.c().recv().has_value());
  EXPECT_GE(clock::now() - armed, 2ms);

  for (const auto policy : {missed_ticks::skip, missed_ticks::burst, missed_ticks::delay}) {
    const auto first = clock::now();
    ticker tk(rt_, 2ms, policy, precisely);
    for (int i = 1; i <= 3; ++i) {
      tk.c().recv();
      EXPECT_GE(clock::now() - first, i * 2ms) << "tick " << i;
    }
    chan<int> ticked(3);
    const ticker calls = every(
        rt_, 2ms, [ticked]() mutable { ticked.try_send(1); }, policy, precisely);
    for (int i = 0; i < 3; ++i) ticked.recv();
  }
}

TEST_F(precise_engine, knows_which_functions_are_ticked_precisely) {
  for (const bool precise : {false, true}) {
    const auto policy = static_cast<std::uint8_t>(missed_ticks::skip);
    timer_node* const t = detail::make_function_ticker(
        timers(), second, [] {},
        precise ? static_cast<std::uint8_t>(policy | detail::precise_ticks) : policy);
    EXPECT_EQ(detail::is_precise(*t), precise);
    detail::destroy_timer(*t);
  }
}

TEST_P(precise, timers_can_be_stopped_and_made_ordinary) {
  std::atomic<int> fired{0};
  timer t = after_func(
      rt_, 60s, [&] { ++fired; }, precisely);
  EXPECT_TRUE(t.stop());
  EXPECT_FALSE(t.reset(60s));
  EXPECT_TRUE(t.reset(60s, precisely));
  EXPECT_TRUE(t.reset_at(clock::now() + 65s, precisely));
  EXPECT_TRUE(t.reset(1ms));
  while (fired == 0) sleep(1ms).wait();
  EXPECT_FALSE(t.stop());
  EXPECT_EQ(fired, 1);
}

TEST_P(precise, deadlines_of_descriptors_are_never_early) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto read_until = [&]() -> task<void> {
    auto [in, error] = fd::adopt(ends[0]);
    EXPECT_FALSE(error);
    std::array<char, 8> room{};
    for (const bool exact : {true, false, true}) {
      const auto due = clock::now() + 3ms;
      in.set_read_deadline(due, {.precise = exact});
      const auto [n, why] = co_await in.read_some(room);
      EXPECT_EQ(why, net_errc::deadline_exceeded);
      EXPECT_GE(clock::now(), due);
      in.set_deadline(no_deadline);
    }
    // An ordinary deadline of the other direction, just before.
    const auto due = clock::now() + 5ms;
    in.set_write_deadline(due - 100us);
    in.set_read_deadline(due, precisely);
    const auto [n, why] = co_await in.read_some(room);
    EXPECT_EQ(why, net_errc::deadline_exceeded);
    EXPECT_GE(clock::now(), due);
  };
  rt_.run(read_until);
  ::close(ends[1]);
}

INSTANTIATE_TEST_SUITE_P(of, precise, testing::ValuesIn(engines().begin(), engines().end()),
                         [](const auto& e) { return std::string(name_of(e.param)); });

TEST(precise_figures, tell_how_long_threads_waited_awake) {
  runtime rt{{.processors = 2}};
  EXPECT_EQ(rt.stats().precise_waits, 0ns);
  EXPECT_GT(rt.stats().precise_lead, 0ns);
  // However busy the machine is, some wake-up is earlier than the lead.
  while (rt.stats().precise_waits == 0ns) sleep(rt, 1ms, precisely).wait();
}

// ---- Real-time priority

TEST(realtime_priority, is_granted_or_refused_and_either_way_timers_fire) {
  runtime rt{{.processors = 2, .realtime = 1}};
  for (int i = 0; i < 20; ++i) sleep(rt, 1ms).wait();
  const runtime_stats s = rt.stats();
  EXPECT_EQ(s.realtime_error, s.realtime ? 0 : EPERM);
}

TEST(realtime_priority, is_taken_from_a_callback_that_takes_long) {
  runtime rt{{.processors = 2, .realtime = 1}};
  sleep(rt, 1ms).wait();
  chan<int> done(1);
  const timer t = after_func(rt, 1ms, [done]() mutable {
    // The monitor takes it away: until then this callback does nothing but wait for that.
    while ((::sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) != SCHED_OTHER) {
    }
    done.try_send(1);
  });
  EXPECT_TRUE(done.recv().has_value());
}

TEST(realtime_priority, is_that_of_the_first_callback_only) {
  runtime rt{{.processors = 1, .realtime = 1}};
  chan<int> policies(64);
  std::vector<timer> all;
  // Started by the first: on the only processor they run one after the other when it has ended,
  // with no sleep in between.
  const auto first = after_func(rt, 2ms, [&all, &rt, policies] {
    for (int i = 0; i < 32; ++i) {
      all.push_back(after_func(rt, 0ms, [policies]() mutable {
        policies.try_send(::sched_getscheduler(0) & ~SCHED_RESET_ON_FORK);
      }));
    }
  });
  int raised = 0;
  for (int i = 0; i < 32; ++i) raised += *policies.recv() == SCHED_FIFO ? 1 : 0;
  EXPECT_LT(raised, 32);
}

/// A test may not have one; the state is the same.
TEST(realtime_priority, is_left_to_a_callback_that_has_just_begun) {
  detail::realtime priority(1);
  detail::realtime::state of_thread;
  of_thread.raised = true;
  const auto looked_at = [&](std::int64_t when) {
    priority.look(of_thread, ::gettid(), when);
    return of_thread.raised.load();
  };
  EXPECT_TRUE(looked_at(10 * second)) << "it sleeps";
  of_thread.since = 10 * second;
  EXPECT_TRUE(looked_at(10 * second + 1));
  EXPECT_FALSE(looked_at(11 * second));
}

/// In a process of its own, which has no privileges.
TEST(realtime_priority, that_is_refused_is_said_with_the_error) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    ::setrlimit(RLIMIT_RTPRIO, &none);
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) std::_Exit(3);
    detail::realtime priority(1);
    detail::realtime::state of_thread;
    if (priority.error() != 0 || priority.granted()) std::_Exit(4);
    priority.raise(of_thread);
    std::_Exit(priority.error() == EPERM && !priority.granted() && !of_thread.raised ? 0 : 5);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(realtime_priority, is_refused_if_there_is_no_such_priority) {
  for (const int wrong : {-1, 100}) {
    EXPECT_THROW(runtime({.realtime = wrong}), std::invalid_argument);
  }
}

}  // namespace
}  // namespace verge::test
