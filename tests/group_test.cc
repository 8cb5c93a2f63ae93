// SPDX-License-Identifier: Apache-2.0

// Groups of tasks: results, failures, cancellation; in simulated time, and with threads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <verge/group.h>
#include <verge/runtime.h>
#include <verge/simulation.h>
#include <verge/time.h>
#include "support/patience.h"
#include "support/scale.h"
#include "support/thread_state.h"

namespace {

using namespace verge;
using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

/// Sleeps, then returns or throws; counts how many are in progress.
task<int> after_delay(std::chrono::milliseconds d, int value, int* running) {
  struct count {
    int* n;
    explicit count(int* c) : n(c) { ++*n; }
    ~count() { --*n; }
    count(const count&) = delete;
    count& operator=(const count&) = delete;
  } const here(running);
  co_await sleep(d);
  if (value < 0) throw std::runtime_error("negative: " + std::to_string(value));
  co_return value;
}

struct task_group_test : testing::Test {
  std::chrono::milliseconds passed() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(sim.now() - start);
  }

  /// Each has ended before the next is added.
  void add_one_by_one(task_group<>& g, int n) {
    for (int i = 0; i < n; ++i) {
      g.go([] {});
      sim.run_for(1ms);
    }
  }

  simulation sim;
  const time_point start = sim.now();
  int running = 0;
};

TEST_F(task_group_test, all_returns_the_results_in_the_order_in_which_they_were_started) {
  const auto work = [&]() -> task<std::vector<int>> {
    task_group<int> g;
    g.go(after_delay, 30ms, 1, &running);
    g.go(after_delay(10ms, 2, &running));
    g.go([] { return 3; });
    co_return co_await g.all();
  };
  EXPECT_THAT(sim.run(work), ElementsAre(1, 2, 3));
  EXPECT_EQ(passed(), 30ms);
}

TEST_F(task_group_test, all_of_an_empty_group_is_there_at_once) {
  const auto work = [&]() -> task<std::vector<int>> {
    task_group<int> g;
    co_return co_await g.all();
  };
  EXPECT_THAT(sim.run(work), IsEmpty());
}

TEST_F(task_group_test, the_first_failure_cancels_the_others_and_is_thrown_when_they_have_ended) {
  const auto work = [&]() -> task<std::string> {
    task_group<int> g;
    g.go(after_delay, 1h, 1, &running);
    g.go(after_delay, 20ms, -2, &running);
    g.go(after_delay, 10ms, 3, &running);
    g.go(after_delay, 1h, -4, &running);
    try {
      co_await g.all();
    } catch (const std::runtime_error& e) {
      co_return e.what();
    }
    co_return "nothing was thrown";
  };
  EXPECT_EQ(sim.run(work), "negative: -2");
  EXPECT_EQ(passed(), 20ms);
  EXPECT_EQ(running, 0);
}

TEST_F(task_group_test, a_function_that_throws_is_a_failure_like_that_of_a_task) {
  const auto work = [&]() -> task<std::string> {
    task_group<int> g;
    g.go(after_delay, 1h, 1, &running);
    g.go([]() -> int { throw std::runtime_error("thrown"); });
    try {
      co_await g.all();
    } catch (const std::runtime_error& e) {
      co_return e.what();
    }
    co_return "nothing was thrown";
  };
  EXPECT_EQ(sim.run(work), "thrown");
  EXPECT_EQ(passed(), 0ms) << "the other was cancelled";
  const auto one_succeeds = [&]() -> task<int> {
    task_group<int> g;
    g.go([]() -> int { throw std::runtime_error("thrown"); });
    g.go(after_delay, 5ms, 2, &running);
    co_return co_await g.first();
  };
  EXPECT_EQ(sim.run(one_succeeds), 2);
  const auto without_result = []() -> task<> {
    task_group<> g;
    g.go([] { throw std::runtime_error("thrown"); });
    co_await g.all();
  };
  EXPECT_THROW(sim.run(without_result), std::runtime_error);
}

/// A function that cannot be moved for the n-th time.
struct moves_n_times {
  std::shared_ptr<int> left;
  explicit moves_n_times(int n) : left(std::make_shared<int>(n)) {}
  moves_n_times(moves_n_times&& other) : left(other.left) {  // NOLINT: it throws, as it must
    if ((*left)-- == 0) throw std::runtime_error("cannot be moved");
  }
  moves_n_times& operator=(moves_n_times&&) = delete;
  int operator()() const { return 7; }
};

TEST_F(task_group_test, a_task_that_cannot_be_started_leaves_the_group_as_it_was) {
  const auto work = [&](int moves) -> task<std::vector<int>> {
    task_group<int> g;
    g.go([] { return 1; });
    g.go(after_delay, 1ms, 2, &running);
    try {
      g.go(moves_n_times(moves));
    } catch (const std::runtime_error&) {
      g.go([] { return 3; });
    }
    g.go(after_delay, 2ms, 4, &running);
    co_return co_await g.all();
  };
  int moves = 0;
  for (std::vector<int> got; moves < 100; ++moves) {
    got = sim.run([&] { return work(moves); });
    if (got == std::vector{1, 2, 7, 4}) break;
    EXPECT_THAT(got, ElementsAre(1, 2, 3, 4)) << "it could be moved " << moves << " times";
  }
  EXPECT_GE(moves, 3) << "the last of them into the task";
  EXPECT_LT(moves, 100);
  // Of those without a result, what has ended is removed when another is added.
  const auto forgets = []() -> task<> {
    task_group<> g;
    for (int i = 0; i < 20; ++i) {
      g.go([] {});
      co_await sleep(1ms);
      try {
        g.go([m = moves_n_times(i % 5)] { static_cast<void>(m()); });
      } catch (const std::runtime_error&) {
        continue;
      }
    }
    co_await g.all();
  };
  EXPECT_NO_THROW(sim.run(forgets));
}

TEST_F(task_group_test, first_returns_the_first_success_and_cancels_the_others) {
  const auto work = [&]() -> task<int> {
    task_group<int> g;
    g.go(after_delay, 5ms, -1, &running);
    g.go(after_delay, 1h, 2, &running);
    g.go(after_delay, 10ms, 3, &running);
    const int result = co_await g.first();
    EXPECT_EQ(running, 0);
    EXPECT_TRUE(g.ctx().err());
    co_return result;
  };
  EXPECT_EQ(sim.run(work), 3);
  EXPECT_EQ(passed(), 10ms);
}

TEST_F(task_group_test, first_throws_the_first_failure_if_all_fail) {
  const auto work = [&]() -> task<std::string> {
    task_group<int> g;
    g.go(after_delay, 9ms, -1, &running);
    g.go(after_delay, 5ms, -2, &running);
    try {
      co_await g.first();
    } catch (const std::runtime_error& e) {
      co_return e.what();
    }
    co_return "nothing was thrown";
  };
  EXPECT_EQ(sim.run(work), "negative: -2");
  EXPECT_EQ(passed(), 9ms);
}

TEST_F(task_group_test, first_of_an_empty_group_and_a_second_wait_are_errors) {
  const auto work = []() -> task<int> {
    task_group<> g;
    int errors = 0;
    try {
      co_await g.first();
    } catch (const std::logic_error&) {
      ++errors;
    }
    try {
      co_await g.all();
    } catch (const std::logic_error&) {
      ++errors;
    }
    co_return errors;
  };
  EXPECT_EQ(sim.run(work), 2);
}

TEST_F(task_group_test, the_context_of_the_group_ends_its_tasks) {
  const auto work = [&]() -> task<std::error_code> {
    auto [ctx, cancel] = with_timeout(background(), 15ms);
    task_group<int> g(ctx);
    g.go(after_delay, 1h, 1, &running);
    g.go(after_delay, 10ms, 2, &running);
    try {
      co_await g.all();
    } catch (const context_error& e) {
      EXPECT_EQ(running, 0);
      co_return e.code();
    }
    co_return std::error_code();
  };
  EXPECT_EQ(sim.run(work), context_errc::deadline_exceeded);
  EXPECT_EQ(passed(), 15ms);
}

TEST_F(task_group_test, cancelling_the_task_that_waits_cancels_the_group) {
  auto h = go([&]() -> task<> {
    task_group<int> g;
    g.go(after_delay, 1h, 1, &running);
    co_await g.all();
  });
  sim.run_for(1ms);
  EXPECT_EQ(running, 1);
  h.cancel();
  EXPECT_THROW(h.join(), cancelled);
  EXPECT_EQ(running, 0);
  EXPECT_EQ(passed(), 1ms);
}

TEST_F(task_group_test, a_task_may_add_tasks) {
  struct crawler {
    task_group<> g;
    int visited = 0;
    task<> visit(int depth) {
      ++visited;
      co_await sleep(1ms);
      if (depth == 0) co_return;
      for (int i = 0; i < 2; ++i) g.go(&crawler::visit, this, depth - 1);
    }
  };
  const auto work = []() -> task<int> {
    crawler c;
    c.g.go(&crawler::visit, &c, 5);
    co_await c.g.all();
    EXPECT_FALSE(c.g.go([] {})) << "its result is decided";
    co_return c.visited;
  };
  EXPECT_EQ(sim.run(work), 63);
  EXPECT_EQ(passed(), 6ms);
}

TEST_F(task_group_test, destroying_it_cancels_its_tasks_and_waits_for_nothing) {
  {
    task_group<int> g;
    g.go(after_delay, 1h, 1, &running);
    sim.run_for(1ms);
    EXPECT_EQ(running, 1);
  }
  sim.run_for(1ms);
  EXPECT_EQ(running, 0);
}

TEST_F(task_group_test, a_cancelled_group_begins_nothing) {
  task_group<int> g;
  g.cancel();
  EXPECT_FALSE(g.go(after_delay, 1h, 1, &running));
  EXPECT_THAT(go(g.all()).join(), IsEmpty()) << "all that were begun have ended";
}

TEST_F(task_group_test, one_that_is_cancelled_throws_when_its_tasks_have_ended) {
  task_group<int> g;
  g.go(after_delay, 1h, 1, &running);
  sim.run_for(1ms);
  g.cancel();
  EXPECT_THROW(go(g.all()).join(), cancelled);
  EXPECT_EQ(running, 0);
}

TEST_F(task_group_test, tasks_that_have_ended_take_no_memory_if_they_have_no_result) {
  task_group<> g;
  add_one_by_one(g, 100);
  const std::size_t before = ::mallinfo2().uordblks;
  add_one_by_one(g, 10'000);
  EXPECT_LT(::mallinfo2().uordblks, before + 10'000) << "bytes";
  go(g.all()).join();
}

/// Two that have ended leave for each that is added.
TEST_F(task_group_test, many_that_have_ended_at_once_leave_while_others_are_added) {
  task_group<> g;
  add_one_by_one(g, 100);
  const std::size_t before = ::mallinfo2().uordblks;
  constexpr int many = 1000;
  const chan<int> end;
  for (int i = 0; i < many; ++i) {
    g.go([end]() -> task<> { co_await recv(end); });
  }
  sim.run_for(1ms);
  end.close();
  sim.run_for(1ms);
  add_one_by_one(g, many + 100);
  EXPECT_LT(::mallinfo2().uordblks, before + 20'000) << "bytes";
  go(g.all()).join();
}

TEST_F(task_group_test, tasks_that_have_not_ended_stay_members_while_others_come_and_go) {
  task_group<> g;
  const auto waits = [&]() -> task<> { static_cast<void>(co_await after_delay(1h, 1, &running)); };
  for (int i = 0; i < 10; ++i) {
    g.go(waits);
    g.go([] {});
    sim.run_for(1ms);
  }
  EXPECT_EQ(running, 10);
  g.cancel();
  sim.run_for(1ms);
  EXPECT_EQ(running, 0) << "each was told";
}

TEST_F(task_group_test, results_need_not_be_copyable_or_default_constructible) {
  struct only_moved {
    explicit only_moved(int n) : p(std::make_unique<int>(n)) {}
    std::unique_ptr<int> p;
  };
  const auto work = []() -> task<int> {
    task_group<only_moved> g;
    g.go([] { return only_moved(3); });
    g.go([] { return only_moved(4); });
    auto all = co_await g.all();
    co_return *all[0].p** all[1].p;
  };
  EXPECT_EQ(sim.run(work), 12);
}

// Or the thread that waits could find that not all have ended, and no bell would ring after that.
TEST(task_group, rings_the_bell_for_a_task_once_that_is_counted) {
  runtime rt({.processors = 1});
  detail::group_state<void> state(detail::scheduler_of(rt));
  auto& member = state.members.emplace_back();
  state.started = 1;
  std::atomic<pid_t> id{0};
  std::thread ends;
  {
    const std::lock_guard held(state.mutex);
    ends = std::thread([&] {
      id = ::gettid();
      state.end(member, true);
    });
    EXPECT_TRUE(test::eventually([&] { return id != 0 && test::is_asleep(id); }));
    EXPECT_FALSE(state.bell.try_recv());
  }
  ends.join();
  EXPECT_TRUE(state.bell.try_recv());
  EXPECT_TRUE(state.has_all_or_a_failure());
}

// Tasks on several processors end, fail and are cancelled while the group is waited for: whatever
// the order, no task runs when the wait is over.
TEST(task_group, no_task_runs_after_the_wait_whatever_the_order) {
  runtime rt({.processors = 4});
  std::atomic<int> running{0};
  const auto member = [&](int i) -> task<int> {
    struct count {
      std::atomic<int>& n;
      explicit count(std::atomic<int>& c) : n(c) { ++n; }
      ~count() { --n; }
      count(const count&) = delete;
      count& operator=(const count&) = delete;
    } const here(running);
    if (i % 3 == 0) co_await yield();
    if (i % 5 == 0) co_await sleep(1us * i);
    if (i % 7 == 6) throw std::runtime_error("seven");
    co_return i;
  };
  const auto round = [&](int n, bool all) -> task<> {
    task_group<int> g;
    for (int i = 0; i < 8; ++i) g.go(member, n + i);
    try {
      if (all) {
        co_await g.all();
      } else {
        co_await g.first();
      }
    } catch (const std::runtime_error&) {
    }
    EXPECT_EQ(running.load(), 0);
  };
  const int rounds = test::scale(2000, 200);
  for (int n = 0; n < rounds; ++n) rt.run(round(n, n % 2 == 0));
}

}  // namespace
