// SPDX-License-Identifier: Apache-2.0
// What every adapter of a loop must do, as one suite of typed tests.
//
// An adapter's test defines a loop, and instantiates the suite with it:
//
//   struct uv_loop {
//     static constexpr const char* name = "libuv";
//     timers_type& timers();      // for any thread
//     void run();                 // until stop()
//     void stop();                // called by a callback
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(libuv, loop_suite, uv_loop);
//
// The loops wait without a limit: a lost wake-up hangs, and ctest reports it.
#pragma once

#include <gtest/gtest.h>
#include <support/scale.h>
#include <verge/clock.h>
#include <verge/loop.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <thread>
#include <vector>

namespace verge::test {

/// A loop that the kernel may not allow says so: static bool is_allowed().
template <class Loop>
class loop_suite : public testing::Test {
 protected:
  void SetUp() override {
    if constexpr (requires { Loop::is_allowed(); })
      if (!Loop::is_allowed()) GTEST_SKIP() << "the kernel does not allow this loop here";
  }
};
TYPED_TEST_SUITE_P(loop_suite);

TYPED_TEST_P(loop_suite, calls_in_order_and_never_early) {
  using namespace std::chrono_literals;
  TypeParam loop;
  std::vector<int> called;
  int early = 0;
  const auto start = clock::now();
  const auto add = [&](int number, std::chrono::microseconds d) {
    loop.timers().start(start + d, [&, number, d] {
      if (clock::now() < start + d) ++early;
      called.push_back(number);
      if (called.size() == 4) loop.stop();
    });
  };
  add(3, 2ms + 1us);
  add(2, 2ms);
  add(0, 0us);
  add(1, 700us);
  loop.run();
  EXPECT_EQ(called, (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(early, 0);
}

TYPED_TEST_P(loop_suite, stops_and_resets_from_callbacks) {
  using namespace std::chrono_literals;
  TypeParam loop;
  auto& timers = loop.timers();
  bool stopped = false;
  const auto start = clock::now();
  const auto never = timers.start(start + 2ms, [] { FAIL() << "it was stopped"; });
  const auto last = timers.start(start + 1h, [&] { loop.stop(); });
  timers.start(start + 1ms, [&] {
    stopped = timers.stop(never);
    EXPECT_TRUE(timers.reset(last, 1ms));
  });
  loop.run();
  EXPECT_TRUE(stopped);
  EXPECT_FALSE(timers.reset(last, 1ms)) << "it has been called";
  EXPECT_TRUE(timers.empty());
}

TYPED_TEST_P(loop_suite, wakes_for_timers_of_another_thread) {
  using namespace std::chrono_literals;
  TypeParam loop;
  auto& timers = loop.timers();
  timers.start(1h, [] { FAIL() << "an hour has not passed"; });
  std::thread other([&] {
    for (int i = 0; i < scale(300, 50); ++i) {
      std::atomic<bool> called = false;
      timers.start(std::chrono::microseconds(i), [&] {
        called = true;
        called.notify_one();
      });
      called.wait(false);
    }
    timers.start(0s, [&] { loop.stop(); });
  });
  loop.run();
  other.join();
}

TYPED_TEST_P(loop_suite, a_hundred_thousand_from_other_threads_are_never_early_or_lost) {
  using namespace std::chrono_literals;
  const int count = scale(100'000, 10'000);
  constexpr int threads = 3;
  struct timer {
    clock::time_point due{};     // by the thread that started it
    clock::time_point called{};  // by the loop
    bool was_stopped{false};
  };
  TypeParam loop;
  auto& timers = loop.timers();
  std::vector<timer> all(static_cast<std::size_t>(count));
  std::atomic<int> ended = 0;
  std::atomic<int> resets = 0;
  const auto end = [&] {
    if (++ended == count) timers.start(0s, [&] { loop.stop(); });
  };
  std::vector<std::thread> users;
  for (int user = 0; user < threads; ++user) {
    users.emplace_back([&, user] {
      std::mt19937_64 random(static_cast<std::uint64_t>(user) + 1);
      const auto soon = [&] {
        return clock::now() + std::chrono::nanoseconds(random() % 40'000'000);
      };
      for (int i = user; i < count; i += threads) {
        timer& mine = all[static_cast<std::size_t>(i)];
        mine.due = soon();
        const auto t = timers.start(mine.due, [&] {
          mine.called = clock::now();
          end();
        });
        // Some are stopped, and some get another time, earlier or later.
        const auto other = soon();
        switch (random() % 4) {
          case 0:
            mine.was_stopped = timers.stop(t);
            if (mine.was_stopped) end();
            break;
          case 1:
            if (!timers.reset(t, other)) break;
            mine.due = other;
            ++resets;
            break;
          default:
            break;
        }
      }
    });
  }
  loop.run();
  for (auto& u : users) u.join();
  int stopped = 0;
  for (const timer& t : all) {
    stopped += t.was_stopped ? 1 : 0;
    ASSERT_EQ(t.called == clock::time_point(), t.was_stopped);
    if (t.was_stopped) continue;
    ASSERT_GE(t.called, t.due) << "early";
  }
  EXPECT_EQ(ended, count);
  EXPECT_GT(stopped, 0);
  EXPECT_GT(resets, 0);
}

// The callbacks are destroyed, not called; the loop works on without the timers.
TYPED_TEST_P(loop_suite, destroys_pending_timers_uncalled) {
  using namespace std::chrono_literals;
  const auto kept = std::make_shared<int>();
  {
    TypeParam loop;
    loop.timers().start(1h, [kept] { FAIL() << "an hour has not passed"; });
    loop.timers().start(1ms, [&] { loop.stop(); });
    loop.run();
    EXPECT_EQ(kept.use_count(), 2);
  }
  EXPECT_EQ(kept.use_count(), 1);
}

REGISTER_TYPED_TEST_SUITE_P(loop_suite, calls_in_order_and_never_early,
                            stops_and_resets_from_callbacks, wakes_for_timers_of_another_thread,
                            a_hundred_thousand_from_other_threads_are_never_early_or_lost,
                            destroys_pending_timers_uncalled);

}  // namespace verge::test
