// SPDX-License-Identifier: Apache-2.0

#include <clock/fast_clock.h>
#include <clock/true_clock.h>
#include <gtest/gtest.h>
#include <support/scale.h>
#include <verge/clock.h>
#include <verge/log.h>
#include <verge/simulation.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using verge::manual_clock;
using verge::detail::fast_clock;
using verge::detail::true_now;
using time_point = verge::clock::time_point;

// Sets the source for one test.
class source_guard {
 public:
  explicit source_guard(fast_clock::source wanted)
      : before_(fast_clock::source_in_use()), granted_(fast_clock::use(wanted)) {}
  source_guard(const source_guard&) = delete;
  source_guard& operator=(const source_guard&) = delete;
  ~source_guard() { fast_clock::use(before_); }
  bool granted() const { return granted_; }

 private:
  fast_clock::source before_;
  bool granted_;
};

TEST(true_clock, is_positive_and_counts_as_steady_clock_does) {
  const auto before = std::chrono::steady_clock::now().time_since_epoch().count();
  const auto t = true_now();
  const auto after = std::chrono::steady_clock::now().time_since_epoch().count();
  EXPECT_GE(t, 1);
  EXPECT_LE(before, t);
  EXPECT_LE(t, after);
}

TEST(true_clock, is_what_the_public_clock_reads) {
  const auto before = true_now();
  const auto t = verge::clock::now().time_since_epoch().count();
  EXPECT_LE(before, t);
  EXPECT_LE(t, true_now());
  static_assert(std::chrono::is_clock_v<verge::clock>);
}

TEST(public_clock, has_a_fast_reading_that_is_never_behind_and_ahead_by_a_bound) {
  for (const auto source : {fast_clock::source::tsc, fast_clock::source::kernel}) {
    const source_guard guard(source);
    if (!guard.granted()) continue;
    time_point last;
    for (int i = 0; i < 100'000; ++i) {
      const time_point before = verge::clock::now();
      const time_point fast = verge::clock::fast_now();
      const time_point after = verge::clock::now();
      ASSERT_GE(fast, before) << "behind";
      ASSERT_LE(fast, after + verge::clock::fast_ahead) << "too far ahead";
      ASSERT_GE(fast, last) << "went back";
      last = fast;
    }
  }
}

TEST(public_clock, reads_simulated_time_fast_as_well) {
  verge::simulation sim;
  EXPECT_EQ(verge::clock::fast_now(), sim.now());
  sim.run_for(1h);
  EXPECT_EQ(verge::clock::fast_now(), sim.now());
}

// What one thread saw while it read the fast clock between two readings of the true one.
struct observations {
  std::int64_t readings = 0;
  std::int64_t anchored = 0;
  std::int64_t behind = 0;               // how often it was behind
  std::int64_t too_far = 0;              // how often it was ahead by more than allowed
  std::int64_t went_back = 0;            // how often it was less than the thread's previous reading
  std::int64_t least_ahead = INT64_MAX;  // of the reading before; negative: behind
  std::int64_t most_ahead = INT64_MIN;   // of the reading after
};

observations observe_until(std::int64_t end) {
  observations seen;
  std::int64_t last = 0;
  for (std::int64_t before = true_now(); before < end; before = true_now()) {
    // A few in a row, so that most are not the first after a fence, and most use an old anchor.
    for (int i = 0; i < 16; ++i) {
      const auto t0 = true_now();
      const auto fast = fast_clock::now();
      const auto t1 = true_now();
      ++seen.readings;
      seen.anchored += fast_clock::anchored();
      seen.behind += fast < t0;
      seen.too_far += fast > t1 + fast_clock::max_ahead;
      seen.went_back += fast < last;
      seen.least_ahead = std::min(seen.least_ahead, fast - t0);
      seen.most_ahead = std::max(seen.most_ahead, fast - t1);
      last = fast;
    }
  }
  return seen;
}

TEST(fast_clock, is_never_behind_the_true_clock_and_at_most_a_microsecond_ahead) {
  const auto duration = verge::test::scale(4s, 2s);
  const auto end = true_now() + std::chrono::nanoseconds(duration).count();
  std::vector<observations> seen(2);
  std::vector<std::thread> threads;
  for (auto& mine : seen) {
    threads.emplace_back([&mine, end] { mine = observe_until(end); });
  }
  for (auto& t : threads) t.join();

  for (const auto& s : seen) {
    std::cout << s.readings << " readings, " << 100 * s.anchored / s.readings
              << " % anchored, ahead by " << s.least_ahead << " .. " << s.most_ahead << " ns\n";
    EXPECT_GT(s.readings, 0);
    EXPECT_EQ(s.behind, 0) << "behind by up to " << -s.least_ahead << " ns";
    EXPECT_EQ(s.too_far, 0) << "ahead by up to " << s.most_ahead << " ns";
    EXPECT_EQ(s.went_back, 0);
  }
}

TEST(fast_clock, does_not_go_back_while_it_is_read_alone) {
  const auto end = true_now() + 50'000'000;
  std::int64_t last = 0;
  while (true_now() < end) {
    for (int i = 0; i < 10'000; ++i) {
      const auto t = fast_clock::now();
      ASSERT_GE(t, last);
      last = t;
    }
  }
}

/// On other processors there is no such counter, and none of this is in the files.
TEST(fast_clock, uses_the_counter_if_the_kernel_does_and_its_rate_is_constant) {
  std::ifstream clocksource("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::ifstream processors("/proc/cpuinfo");
  const auto text_of = [](std::ifstream& file) {
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const bool trusted = text_of(clocksource) == "tsc\n";
  const bool constant = text_of(processors).find(" nonstop_tsc") != std::string::npos;
  const source_guard counter(fast_clock::source::tsc);
  EXPECT_EQ(counter.granted(), trusted && constant);
}

TEST(fast_clock, finds_its_rate_where_the_counter_is_reliable) {
  const source_guard tsc(fast_clock::source::tsc);
  if (!tsc.granted()) GTEST_SKIP() << "the kernel's clock source is not tsc";
  std::int64_t cost = INT64_MAX;  // of one reading: the shortest of many
  for (int i = 0; i < 10'000; ++i) {
    const auto before = true_now();
    cost = std::min(cost, true_now() - before);
  }
  if (cost > 100) GTEST_SKIP() << "the kernel's clock takes " << cost << " ns to read";
  while (!fast_clock::anchored()) fast_clock::now();
  EXPECT_TRUE(fast_clock::use(fast_clock::source::kernel));
  EXPECT_FALSE(fast_clock::anchored()) << "from the next reading on it is another";
}

TEST(fast_clock, is_the_kernels_clock_when_told_so) {
  const source_guard kernel(fast_clock::source::kernel);
  EXPECT_EQ(fast_clock::source_in_use(), fast_clock::source::kernel);
  for (int i = 0; i < 10'000; ++i) {
    const auto before = true_now();
    const auto t = fast_clock::now();
    ASSERT_LE(before, t);
    ASSERT_LE(t, true_now());
    ASSERT_FALSE(fast_clock::anchored());
  }
}

TEST(fast_clock, keeps_its_bounds_while_the_source_changes) {
  const source_guard restore(fast_clock::source::tsc);
  std::atomic<bool> done{false};
  std::thread switcher([&done] {
    for (int i = 0; i < 20; ++i) {
      fast_clock::use(i % 2 == 0 ? fast_clock::source::kernel : fast_clock::source::tsc);
      const auto until = true_now() + 5'000'000;
      while (true_now() < until) std::this_thread::yield();
    }
    done = true;
  });
  while (!done) {
    const auto seen = observe_until(true_now() + 1'000'000);
    EXPECT_EQ(seen.behind, 0) << "behind by up to " << -seen.least_ahead << " ns";
    EXPECT_EQ(seen.too_far, 0) << "ahead by up to " << seen.most_ahead << " ns";
    EXPECT_EQ(seen.went_back, 0);
  }
  switcher.join();
}

// The environment is read once per process: use a child process.
TEST(fast_clock_death_test, obeys_the_environment) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("VERGE_CLOCK", "kernel", 1);
        fast_clock::now();
        std::exit(fast_clock::source_in_use() == fast_clock::source::kernel ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        setenv("VERGE_CLOCK", "sundial", 1);
        fast_clock::now();
        std::exit(0);
      },
      testing::ExitedWithCode(0), "VERGE_CLOCK=sundial is not known");
  static int warnings = 0;
  EXPECT_EXIT(
      {
        verge::set_log_handler([](verge::log_level, std::string_view) noexcept { ++warnings; });
        setenv("VERGE_CLOCK", "sundial", 1);
        for (int i = 0; i < 3; ++i) fast_clock::source_in_use();
        std::exit(warnings);
      },
      testing::ExitedWithCode(1), "");
}

TEST(manual_clock, moves_only_when_told_to) {
  manual_clock c(time_point(5s));
  EXPECT_EQ(c.now(), time_point(5s));
  EXPECT_EQ(c.advance(1h), time_point(1h + 5s));
  EXPECT_EQ(c.now(), time_point(1h + 5s));
  c.set(time_point(2h));
  c.set(time_point(2h));
  EXPECT_EQ(c.now(), time_point(2h));
  EXPECT_EQ(c.advance(0ns), time_point(2h));
}

TEST(manual_clock, starts_at_a_positive_time) {
  EXPECT_GT(manual_clock().now().time_since_epoch(), 0ns);
  EXPECT_EQ(manual_clock(time_point(1ns)).now(), time_point(1ns));
  EXPECT_THROW(manual_clock(time_point(0ns)), std::invalid_argument);
  EXPECT_THROW(manual_clock(time_point(-1ns)), std::invalid_argument);
}

TEST(manual_clock, rejects_a_time_in_the_past_with_the_reason) {
  manual_clock c(time_point(10ns));
  try {
    c.set(time_point(9ns));
    FAIL() << "it went back";
  } catch (const std::invalid_argument& e) {
    EXPECT_EQ(
        std::string(e.what()),
        "verge::manual_clock::set: 9 ns is in the past, the clock is at 10 ns and does not go "
        "back; use a new clock for a new start");
  }
  EXPECT_THROW(c.advance(-1ns), std::invalid_argument);
  EXPECT_EQ(c.now(), time_point(10ns));
}

TEST(manual_clock, stops_at_the_end_of_time) {
  manual_clock c;
  EXPECT_EQ(c.advance(std::chrono::hours::max()), time_point::max());
  EXPECT_EQ(c.advance(1ns), time_point::max());
}

TEST(manual_clock, loses_no_step_when_many_threads_move_it) {
  manual_clock c(time_point(1ns));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&c] {
      for (int step = 0; step < 10'000; ++step) c.advance(3ns);
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(c.now(), time_point(120'001ns));
}

}  // namespace
