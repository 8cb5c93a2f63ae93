// SPDX-License-Identifier: Apache-2.0

// Retries: the pauses, the limits, the caller's deadline; in simulated time, exact.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <vector>

#include <verge/io.h>
#include <verge/retry.h>
#include <verge/simulation.h>
#include <verge/timeout.h>

namespace {

using namespace verge;
using namespace std::chrono_literals;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using testing::ElementsAre;

constexpr retry_policy exact{.first = 100ms, .longest = 1s, .factor = 2, .jitter = 0};

std::vector<std::optional<nanoseconds>> pauses_of(const retry_policy& policy, int n) {
  backoff b(policy);
  std::vector<std::optional<nanoseconds>> all;
  for (int i = 0; i < n; ++i) all.push_back(b.next());
  return all;
}

// ---- Pauses -------------------------------------------------------------------------------------

TEST(backoff, grows_to_the_longest_pause) {
  retry_policy policy = exact;
  policy.attempts = 0;
  EXPECT_THAT(pauses_of(policy, 6), ElementsAre(100ms, 200ms, 400ms, 800ms, 1s, 1s));
}

TEST(backoff, ends_after_the_last_attempt) {
  retry_policy policy = exact;
  policy.attempts = 3;
  EXPECT_THAT(pauses_of(policy, 4), ElementsAre(100ms, 200ms, std::nullopt, std::nullopt));
  policy.attempts = 1;
  EXPECT_THAT(pauses_of(policy, 1), ElementsAre(std::nullopt));
}

TEST(backoff, begins_anew_after_a_reset) {
  backoff b(exact);
  b.next();
  b.next();
  EXPECT_EQ(b.failures(), 2U);
  b.reset();
  EXPECT_EQ(b.failures(), 0U);
  EXPECT_EQ(b.next(), 100ms);
}

TEST(backoff, shortens_by_a_random_part_of_up_to_the_jitter) {
  const retry_policy policy{.first = 100ms, .longest = 100ms, .jitter = 0.3, .attempts = 0};
  backoff b(policy);
  nanoseconds least = 1s;
  nanoseconds most = 0s;
  for (int i = 0; i < 10'000; ++i) {
    const nanoseconds p = *b.next();
    least = std::min(least, p);
    most = std::max(most, p);
  }
  EXPECT_GE(least, 70ms);
  EXPECT_LT(least, 71ms);
  EXPECT_GT(most, 99ms);
  EXPECT_LE(most, 100ms);
}

TEST(backoff, does_not_overflow) {
  const retry_policy policy{.first = nanoseconds::max(),
                            .longest = nanoseconds::max(),
                            .factor = std::numeric_limits<double>::infinity(),
                            .jitter = 0,
                            .attempts = 0};
  EXPECT_THAT(pauses_of(policy, 3),
              ElementsAre(nanoseconds::max(), nanoseconds::max(), nanoseconds::max()));
  EXPECT_THAT(pauses_of({.first = 0s, .longest = 1s, .factor = 2, .jitter = 1}, 2),
              ElementsAre(0ns, 0ns));
}

TEST(backoff, has_the_pauses_that_are_documented_unless_told_otherwise) {
  const retry_policy usual;
  EXPECT_EQ(usual.first, 100ms);
  EXPECT_EQ(backoff(usual).failures(), 0U);
  retry_policy at_once{.first = 0ns, .longest = 0ns, .factor = 1, .jitter = 0, .attempts = 3};
  EXPECT_THAT(pauses_of(at_once, 3), ElementsAre(0ns, 0ns, std::nullopt));
  at_once.jitter = 1;
  EXPECT_NO_THROW(backoff{at_once});
}

TEST(backoff, refuses_a_policy_without_sense) {
  const auto refused = [](retry_policy p) { EXPECT_THROW(backoff{p}, std::invalid_argument); };
  refused({.first = -1ns});
  refused({.longest = -1ns});
  refused({.factor = 0.5});
  refused({.factor = std::numeric_limits<double>::quiet_NaN()});
  refused({.jitter = -0.1});
  refused({.jitter = 1.1});
  refused({.jitter = std::numeric_limits<double>::quiet_NaN()});
}

// ---- Attempts -----------------------------------------------------------------------------------

struct retry_test : testing::Test {
  /// Fails so often, then returns 7.
  auto failing(int times) {
    return [this, times]() -> task<int> {
      at.push_back(passed());
      if (static_cast<int>(at.size()) <= times) throw std::runtime_error("not yet");
      co_return 7;
    };
  }
  milliseconds passed() { return std::chrono::duration_cast<milliseconds>(sim.now() - start); }

  simulation sim;
  const time_point start = sim.now();
  std::vector<milliseconds> at;
};

TEST_F(retry_test, tries_until_it_succeeds) {
  EXPECT_EQ(sim.run(retry(background(), exact, failing(3))), 7);
  EXPECT_THAT(at, ElementsAre(0ms, 100ms, 300ms, 700ms));
}

TEST_F(retry_test, throws_the_last_failure) {
  retry_policy policy = exact;
  policy.attempts = 2;
  EXPECT_THROW(sim.run(retry(background(), policy, failing(9))), std::runtime_error);
  EXPECT_THAT(at, ElementsAre(0ms, 100ms));
}

TEST_F(retry_test, tries_again_for_an_error_in_the_result) {
  const auto f = [&]() -> task<io_result> {
    at.push_back(passed());
    if (at.size() < 3) co_return io_result{.bytes = 0, .error = net_errc::timed_out};
    co_return io_result{.bytes = 5, .error = {}};
  };
  EXPECT_EQ(sim.run(retry(background(), exact, f)).bytes, 5U);
  EXPECT_EQ(at.size(), 3U);
  at.clear();
  retry_policy policy = exact;
  policy.attempts = 2;
  EXPECT_EQ(sim.run(retry(background(), policy, f)).error, net_errc::timed_out);
}

TEST_F(retry_test, throws_what_the_last_attempt_has_thrown_though_others_had_results) {
  const auto f = [&]() -> task<io_result> {
    at.push_back(passed());
    if (at.size() == 2) throw std::runtime_error("thrown");
    co_return io_result{.bytes = 0, .error = net_errc::timed_out};
  };
  retry_policy policy = exact;
  policy.attempts = 2;
  EXPECT_THROW(static_cast<void>(sim.run(retry(background(), policy, f))), std::runtime_error);
  EXPECT_EQ(at.size(), 2U);
}

TEST_F(retry_test, asks_whether_to_try_again) {
  std::vector<unsigned> asked;
  const auto again = [&](const retry_failure& f) {
    asked.push_back(f.attempt);
    return f.error != std::errc::permission_denied;
  };
  const auto f = [&]() -> task<int> {
    at.push_back(passed());
    const auto why = at.size() < 3 ? std::errc::timed_out : std::errc::permission_denied;
    throw std::system_error(make_error_code(why));
    co_return 0;
  };
  EXPECT_THROW(sim.run(retry(background(), exact, f, again)), std::system_error);
  EXPECT_THAT(asked, ElementsAre(1, 2, 3));
}

TEST_F(retry_test, does_not_wait_for_an_attempt_that_could_not_begin) {
  auto [ctx, cancel] = with_timeout(background(), 250ms);
  EXPECT_THROW(sim.run(retry(ctx, exact, failing(9))), std::runtime_error);
  EXPECT_THAT(at, ElementsAre(0ms, 100ms));
  EXPECT_EQ(passed(), 100ms) << "the pause of 200 ms ends after the deadline";
}

TEST_F(retry_test, does_not_wait_for_an_attempt_just_when_the_context_is_done) {
  auto [ctx, cancel] = with_timeout(background(), 300ms);
  EXPECT_THROW(sim.run(retry(ctx, exact, failing(9))), std::runtime_error);
  EXPECT_EQ(passed(), 100ms) << "the pause of 200 ms ends with the deadline";
  auto [later, cancel_later] = with_timeout(background(), 300ms + 1ns);
  at.clear();
  EXPECT_ANY_THROW(sim.run(retry(later, exact, failing(9))));
  EXPECT_THAT(at, ElementsAre(100ms, 200ms, 400ms));
}

TEST_F(retry_test, cancels_the_attempt_when_the_context_is_done) {
  auto [ctx, cancel] = with_timeout(background(), 250ms);
  bool ended = false;
  const auto f = [&]() -> task<> {
    try {
      co_await sleep(1h);
    } catch (const cancelled&) {
      ended = true;
      throw;
    }
  };
  EXPECT_THROW(sim.run(retry(ctx, exact, f)), context_error);
  EXPECT_TRUE(ended);
  EXPECT_EQ(passed(), 250ms);
}

TEST_F(retry_test, does_not_ask_for_another_attempt_when_the_context_is_done) {
  int asked = 0;
  for (const bool by_deadline : {false, true}) {
    auto [ctx, cancel] = with_cancel(background());
    auto [late, cancel_late] = with_timeout(background(), 50ms);
    const auto attempt = [&, &cancel = cancel]() -> task<int> {
      if (!by_deadline) cancel();
      co_await verge::sleep(1h);
      co_return 1;
    };
    const auto again = [&](const retry_failure&) { return ++asked != 0; };
    EXPECT_THROW(sim.run(retry(by_deadline ? late : ctx, exact, attempt, again)), context_error);
  }
  EXPECT_EQ(asked, 0);
}

TEST_F(retry_test, ends_a_pause_when_the_context_is_cancelled) {
  const auto [ctx, cancel] = with_cancel(background());
  const auto soon = after_func(150ms, [&c = cancel] { c(); });
  EXPECT_THROW(sim.run(retry(ctx, exact, failing(9))), context_error);
  EXPECT_EQ(passed(), 150ms);
}

TEST_F(retry_test, an_attempts_own_deadline_is_a_failure) {
  const auto by_timeout = [&]() -> task<int> {
    at.push_back(passed());
    co_await timeout(sleep(at.size() < 3 ? 1h : 1ms), 10ms);
    co_return 7;
  };
  EXPECT_EQ(sim.run(retry(background(), exact, by_timeout)), 7);
  EXPECT_THAT(at, ElementsAre(0ms, 110ms, 320ms));
  at.clear();
  const auto by_context = [&]() -> task<int> {
    at.push_back(passed());
    auto [ctx, cancel] = with_timeout(background(), 10ms);
    co_await under(ctx, sleep(at.size() < 2 ? 1h : 1ms));
    co_return 8;
  };
  EXPECT_EQ(sim.run(retry(background(), exact, by_context)), 8);
  at.clear();
  retry_policy once = exact;
  once.attempts = 1;
  EXPECT_THROW(sim.run(retry(background(), once, by_context)), context_error);
}

TEST_F(retry_test, a_cancelled_task_is_not_tried_again) {
  auto h = go(retry(background(), exact, failing(9)));
  sim.run_for(50ms);
  h.cancel();
  EXPECT_THROW(h.join(), cancelled);
  EXPECT_EQ(at.size(), 1U);
}

TEST_F(retry_test, the_seed_decides_about_the_jitter) {
  const retry_policy policy{.first = 1s, .jitter = 1, .attempts = 3};
  sim.run(retry(background(), policy, failing(1)));
  const auto here = at[1];
  EXPECT_GT(here, 0ms);
  EXPECT_LT(here, 1000ms);
}

}  // namespace
