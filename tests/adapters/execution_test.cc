// SPDX-License-Identifier: Apache-2.0

// The timed scheduler for senders and receivers, against stdexec or its stand-in.

#include <verge/execution.h>

#include <gtest/gtest.h>
#include <support/patience.h>
#include <support/scale.h>
#include <verge/simulation.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <optional>
#include <random>
#include <stop_token>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using verge::test::eventually;
using verge::test::scale;

static_assert(stdexec::scheduler<verge::timed_scheduler>);
static_assert(exec::timed_scheduler<verge::timed_scheduler>);

/// How an operation completed, and how often.
struct completion {
  std::atomic<int> values{0};
  std::atomic<int> stops{0};
  std::atomic<int> errors{0};
  [[nodiscard]] int all() const { return values + stops + errors; }
};

struct counting_receiver {
  using receiver_concept = stdexec::receiver_t;
  struct env {
    std::stop_token token;
    [[nodiscard]] std::stop_token query(stdexec::get_stop_token_t /*q*/) const noexcept {
      return token;
    }
  };
  completion* into;
  std::stop_token token;
  void set_value() && noexcept { ++into->values; }
  void set_stopped() && noexcept { ++into->stops; }
  void set_error(const std::exception_ptr& /*e*/) && noexcept { ++into->errors; }
  [[nodiscard]] env get_env() const noexcept { return {token}; }
};

TEST(timed_scheduler, completes_after_the_delay_and_at_the_time) {
  const verge::timed_scheduler s;
  completion after;
  completion at;
  completion now;
  const auto start = s.now();
  auto a = stdexec::connect(exec::schedule_after(s, 2ms), counting_receiver{&after, {}});
  auto b = stdexec::connect(exec::schedule_at(s, start + 1ms), counting_receiver{&at, {}});
  auto c = stdexec::connect(s.schedule(), counting_receiver{&now, {}});
  EXPECT_EQ(after.all(), 0) << "nothing begins before start()";
  stdexec::start(a);
  stdexec::start(b);
  stdexec::start(c);
  EXPECT_TRUE(eventually([&] { return after.values == 1; }));
  EXPECT_GE(s.now() - start, 2ms);
  EXPECT_TRUE(eventually([&] { return at.values == 1 && now.values == 1; }));
  EXPECT_EQ(after.all() + at.all() + now.all(), 3);
}

TEST(timed_scheduler, is_that_of_its_senders) {
  verge::runtime rt{{.processors = 1}};
  const verge::timed_scheduler s(rt);
  const auto env = stdexec::get_env(s.schedule_after(1h));
  EXPECT_EQ(stdexec::get_completion_scheduler<stdexec::set_value_t>(env), s);
  EXPECT_NE(s, verge::timed_scheduler());
}

TEST(timed_scheduler, completes_with_stopped_if_asked_to_before_or_in_between) {
  const verge::timed_scheduler s;
  std::stop_source before;
  before.request_stop();
  completion first;
  auto a = stdexec::connect(s.schedule_after(1h), counting_receiver{&first, before.get_token()});
  stdexec::start(a);
  EXPECT_EQ(first.stops, 1);
  std::stop_source later;
  completion second;
  auto b = stdexec::connect(s.schedule_after(1h), counting_receiver{&second, later.get_token()});
  stdexec::start(b);
  EXPECT_EQ(second.all(), 0);
  later.request_stop();
  EXPECT_EQ(second.stops, 1);
  EXPECT_EQ(first.all() + second.all(), 2);
}

TEST(timed_scheduler, runs_in_simulated_time) {
  verge::simulation sim;
  const verge::timed_scheduler s;
  completion done;
  auto a = stdexec::connect(s.schedule_after(24h), counting_receiver{&done, {}});
  stdexec::start(a);
  sim.run_for(24h - 1ns);
  EXPECT_EQ(done.all(), 0);
  sim.run_for(1ns);
  EXPECT_EQ(done.values, 1);
}

// The stop request races with the timer and with start(): each operation completes exactly once.
TEST(timed_scheduler, completes_once_when_a_stop_races_with_the_timer) {
  const verge::timed_scheduler s;
  using operation = decltype(stdexec::connect(s.schedule(), counting_receiver{}));
  const int rounds = scale(20'000, 2'000);
  int stopped = 0;
  std::mt19937_64 random(1);
  for (int i = 0; i < rounds; ++i) {
    completion done;
    std::stop_source source;
    std::atomic<bool> go = false;
    std::optional<std::thread> other;
    {
      const auto delay = std::chrono::nanoseconds(random() % 40'000);
      operation op =
          stdexec::connect(s.schedule_after(delay), counting_receiver{&done, source.get_token()});
      if (i % 10 == 0) {
        other.emplace([&] {
          go.wait(false);
          source.request_stop();
        });
      }
      go = true;
      go.notify_one();
      stdexec::start(op);
      if (!other) source.request_stop();
      ASSERT_TRUE(eventually([&] { return done.all() != 0; }));
      if (other) other->join();
    }
    ASSERT_EQ(done.all(), 1);
    stopped += done.stops;
  }
  EXPECT_GT(stopped, 0);
}

}  // namespace
