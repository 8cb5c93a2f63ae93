// SPDX-License-Identifier: Apache-2.0

// The calls of one timer do not overlap, each happens before the next, and none is lost: on several
// processors, in real time. Under the thread sanitizer two overlapping calls are a data race on the
// plain counters of the functions.

#include <gtest/gtest.h>
#include <unistd.h>
#include <verge/detail/lock.h>
#include <verge/runtime.h>
#include <verge/time.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <support/as_default.h>
#include <support/blockers.h>
#include <support/engines.h>
#include <support/patience.h>
#include <support/scale.h>
#include <support/thread_state.h>
#include <verge/detail/timer_functions.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;

/// Counts with plain variables, and notices a second call.
class body {
 public:
  void operator()() {
    if (inside_.exchange(true)) overlapped_ = true;
    ++calls_;
    for (int i = 0; i < 50; ++i) detail::pause();
    finished_.store(calls_, std::memory_order_relaxed);
    inside_ = false;
  }
  bool overlapped() const { return overlapped_; }
  int finished() const { return finished_.load(std::memory_order_relaxed); }

 private:
  int calls_ = 0;
  std::atomic<int> finished_{0};
  std::atomic<bool> inside_{false};
  std::atomic<bool> overlapped_{false};
};

class call_order : public testing::TestWithParam<engine_traits> {
 protected:
  runtime rt{{.processors = 4, .engine = GetParam().engine}};
  as_default here{rt};
};

/// Threads that wait for the ends of calls have a list by a hash of the timer: those of two timers
/// that share it are told apart.
TEST(an_end_of_a_call, wakes_the_thread_that_waits_for_it_and_no_other) {
  runtime rt({.processors = 2});
  auto& timers = detail::scheduler_of(rt).timers();
  std::array<blockers, 2> blocked;
  std::vector<detail::timer_node*> made;
  const auto make = [&](std::size_t which) {
    return detail::start_func_timer(
        timers, 3'600'000'000'000, [block = blocked[which].block()] { block(); }, 0);
  };
  const auto room = [](const detail::timer_node* t) {
    return (reinterpret_cast<std::uintptr_t>(t) >> 6) % 64;
  };
  std::array<detail::timer_node*, 2> two{make(0), nullptr};
  while (two[1] == nullptr) {
    detail::timer_node* const t = make(1);
    (room(t) == room(two[0]) ? two[1] : made.emplace_back()) = t;
  }
  for (detail::timer_node* t : two) detail::reset_timer_after(t, 0);
  for (const blockers& b : blocked) {
    ASSERT_TRUE(eventually([&] { return b.count() == 1; }));
  }
  std::array<std::atomic<pid_t>, 2> ids{};
  std::array<std::atomic<bool>, 2> ended{};
  std::vector<std::thread> ends;
  for (std::size_t i = 0; i < 2; ++i) {
    ends.emplace_back([&, i] {
      ids[i] = ::gettid();
      detail::destroy_timer(*two[i]);
      ended[i] = true;
    });
    EXPECT_TRUE(eventually([&] { return ids[i] != 0 && is_asleep(ids[i]); }));
  }
  // The one that came first is behind the other.
  blocked[0].release();
  EXPECT_TRUE(eventually([&] { return ended[0].load(); }));
  EXPECT_FALSE(ended[1]);
  blocked[1].release();
  for (std::thread& t : ends) t.join();
  for (detail::timer_node* t : made) detail::destroy_timer(*t);
}

TEST_P(call_order, of_tickers_that_are_slower_than_their_period) {
  for (const auto policy : {missed_ticks::skip, missed_ticks::burst, missed_ticks::delay}) {
    std::array<body, 4> bodies;
    std::vector<ticker> all;
    for (body& b : bodies)
      all.push_back(every(
          1us, [&b] { b(); }, policy));
    for (const body& b : bodies) {
      EXPECT_TRUE(eventually([&] { return b.finished() >= 200; }));
      EXPECT_FALSE(b.overlapped());
    }
  }
}

/// As many calls as firings: a reset that finds the timer not pending means that it has fired once.
TEST_P(call_order, of_a_timer_that_threads_reset_while_its_function_runs) {
  body b;
  std::atomic<int> fired{0};
  timer t = after_func(0ns, [&] { b(); });
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        for (int n = 0; n < scale(3'000, 300); ++n) {
          if (!t.reset(0ns)) ++fired;
          if (n % 16 == 0) std::this_thread::yield();
        }
      });
    }
  }
  EXPECT_TRUE(eventually([&] { return b.finished() == fired + 1; }))
      << b.finished() << " calls, " << fired + 1 << " firings";
  EXPECT_FALSE(b.overlapped());
}

TEST_P(call_order, of_a_timer_that_expires_during_its_call_has_the_next_call_right_after) {
  blockers stuck;
  std::atomic<int> calls{0};
  timer t = after_func(0ns, [&, block = stuck.block()] {
    if (++calls == 1) block();
  });
  ASSERT_TRUE(eventually([&] { return stuck.count() == 1; }));
  EXPECT_FALSE(t.reset(0ns));
  verge::after(5ms).recv();  // most likely it has fired by now
  EXPECT_EQ(calls, 1);
  stuck.release();
  EXPECT_TRUE(eventually([&] { return calls == 2; }));
}

TEST_P(call_order, does_not_hold_up_other_timers) {
  blockers stuck;
  const auto blocks = every(1ms, stuck.block());
  ASSERT_TRUE(eventually([&] { return stuck.count() == 1; }));
  std::atomic<int> others{0};
  const auto other = every(1ms, [&] { ++others; });
  EXPECT_TRUE(eventually([&] { return others >= 100; }));
  EXPECT_EQ(stuck.count(), 1) << "a second call while the first one runs";
  stuck.release();
}

/// The destructor waits for the running call, and pending calls are never made.
TEST_P(call_order, ends_with_the_handle) {
  for (int round = 0; round < scale(200, 30); ++round) {
    auto counted = std::make_shared<body>();
    {
      const ticker e = every(
          1us, [counted] { (*counted)(); }, missed_ticks::burst);
      EXPECT_TRUE(eventually([&] { return counted->finished() >= 3; }));
    }
    EXPECT_EQ(counted.use_count(), 1) << "the function was not destroyed with the handle";
  }
}

INSTANTIATE_TEST_SUITE_P(engines, call_order, testing::ValuesIn(engines),
                         [](const auto& tested) { return std::string(tested.param.name); });

std::ptrdiff_t threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

/// One thread, not one for every tick.
TEST(a_ticker_whose_call_blocks, takes_one_thread) {
  runtime rt({.processors = 2});
  const as_default here(rt);
  blockers stuck;
  const auto blocks = every(1ms, stuck.block());
  ASSERT_TRUE(eventually([&] { return stuck.count() == 1; }));
  const auto before = threads_of_this_process();
  // Long enough for two hundred ticks.
  int ticks = 0;
  for (const ticker tk(1ms); auto at : tk.c()) {
    static_cast<void>(at);
    if (++ticks == 200) break;
  }
  EXPECT_EQ(stuck.count(), 1);
  EXPECT_LE(threads_of_this_process(), before + 4);
  stuck.release();
}

}  // namespace
}  // namespace verge::test
