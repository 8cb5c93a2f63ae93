// SPDX-License-Identifier: Apache-2.0

// Tasks: results, exceptions, ownership, concurrency.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <verge/chan.h>
#include <verge/runtime.h>
#include <verge/simulation.h>
#include <verge/task.h>
#include <verge/time.h>

#include <sched/live_scheduler.h>
#include "support/allocations.h"
#include "support/patience.h"
#include "support/scale.h"
#include "support/stepper.h"
#include "support/token.h"

namespace {

using namespace verge;
using test::allocations;
using test::stepper;
using test::token;
using testing::ElementsAre;
using testing::HasSubstr;

task<int> answer() { co_return 42; }
task<int> fail() {
  throw std::runtime_error("no answer");
  co_return 0;
}
task<void> nothing() { co_return; }

std::string text_of(const std::exception_ptr& e) {
  try {
    std::rethrow_exception(e);
  } catch (const std::exception& x) {
    return x.what();
  }
}

// ---- Awaiting -----------------------------------------------------------------------------------

TEST(task, passes_its_result_to_the_awaiter) {
  stepper s;
  EXPECT_EQ(go([]() -> task<int> { co_return co_await answer() + 1; }).join(), 43);
}

TEST(task, passes_its_exception_to_the_awaiter) {
  stepper s;
  auto h = go([]() -> task<std::string> {
    try {
      co_await fail();
    } catch (const std::runtime_error& e) {
      co_return e.what();
    }
    co_return "nothing was thrown";
  });
  EXPECT_EQ(h.join(), "no answer");
}

TEST(task, may_return_what_cannot_be_copied) {
  stepper s;
  auto h = go([]() -> task<std::unique_ptr<int>> {
    auto inner = []() -> task<std::unique_ptr<int>> { co_return std::make_unique<int>(7); };
    co_return co_await inner();
  });
  EXPECT_EQ(*h.join(), 7);
}

/// Throws when it is moved for the last of so many times, and counts on.
struct moved_so_often {
  moved_so_often() = default;
  moved_so_often(moved_so_often&& /*from*/) {
    if (--left == 0) throw left;
  }
  moved_so_often& operator=(moved_so_often&&) = default;
  inline static int left = 0;
};

/// On the way out of the coroutine, into the record of the task, and to the one that joins it.
TEST(task, whose_result_throws_when_it_is_moved_ends_with_that_exception) {
  stepper s;
  int thrown = 0;
  for (bool throws = true; throws; thrown += throws ? 1 : 0) {
    moved_so_often::left = thrown + 1;
    throws = false;
    try {
      go([]() -> task<moved_so_often> { co_return moved_so_often(); }).join();
    } catch (int) {
      throws = true;
    }
  }
  EXPECT_GE(thrown, 3);
}

TEST(task, may_return_a_reference) {
  stepper s;
  int there = 1;
  auto h = go([&]() -> task<int&> {
    auto inner = [](int& n) -> task<int&> { co_return n; };
    co_return co_await inner(there);
  });
  EXPECT_EQ(&h.join(), &there);
}

TEST(task, does_nothing_until_it_is_awaited) {
  stepper s;
  bool ran = false;
  auto make = [](bool& r) -> task<void> {
    r = true;
    co_return;
  };
  auto h = go([&]() -> task<bool> {
    task<void> t = make(ran);
    co_await verge::yield();
    const bool before = ran;
    co_await std::move(t);
    co_return before;
  });
  EXPECT_FALSE(h.join());
  EXPECT_TRUE(ran);
}

TEST(task, that_is_never_run_is_destroyed_with_its_parameters) {
  auto f = [](token) -> task<void> { co_return; };
  {
    auto t = f(token(1));
    EXPECT_EQ(token::alive(), 1);
    auto other = std::move(t);
    EXPECT_FALSE(t);  // NOLINT(bugprone-use-after-move): promised to be empty
    EXPECT_TRUE(other);
  }
  EXPECT_EQ(token::alive(), 0);
}

TEST(task, that_is_empty_cannot_be_awaited_or_run) {
  stepper s;
  auto h = go([]() -> task<void> { co_await task<int>(); });
  EXPECT_THROW(h.join(), std::logic_error);
  EXPECT_THROW(go(task<int>()), std::logic_error);
  EXPECT_THROW(go([] { return task<int>(); }).join(), std::logic_error);
}

// The stack must not grow with the number of tasks that have been awaited: not without optimisation
// either, and not with a sanitizer, where a compiler makes no tail calls.
TEST(task, can_be_awaited_any_number_of_times_in_a_row) {
  stepper s;
  const int n = test::scale(1'000'000, 100'000);
  auto h = go(
      [](int times) -> task<long> {
        long sum = 0;
        for (int i = 0; i < times; ++i) sum += co_await answer();
        co_return sum;
      },
      n);
  EXPECT_EQ(h.join(), 42L * n);
}

// ---- Spawning -----------------------------------------------------------------------------------

TEST(go, runs_a_task_a_coroutine_function_or_a_plain_function) {
  stepper s;
  EXPECT_EQ(go(answer()).join(), 42);
  EXPECT_EQ(go(answer).join(), 42);
  EXPECT_EQ(go([] { return 42; }).join(), 42);
  go([] {}).join();
  go(nothing).join();
}

TEST(go, passes_arguments_on) {
  stepper s;
  auto add = [](int a, std::unique_ptr<int> b) -> task<int> { co_return a + *b; };
  EXPECT_EQ(go(add, 1, std::make_unique<int>(2)).join(), 3);
  EXPECT_EQ(go([](int a, int b) { return a * b; }, 6, 7).join(), 42);
}

TEST(go, keeps_a_lambda_and_the_arguments_alive_while_their_coroutine_runs) {
  stepper s;
  auto h = go(
      [owned = token(1)](const token& argument) -> task<int> {
        co_await verge::yield();
        co_await verge::yield();
        co_return owned.number() + argument.number();
      },
      token(2));
  EXPECT_EQ(h.join(), 3);
  EXPECT_EQ(token::alive(), 0);
}

TEST(go, returns_before_the_task_has_begun) {
  stepper s;
  bool begun = false;
  auto h = go([&] { begun = true; });
  EXPECT_FALSE(begun);
  EXPECT_FALSE(h.done());
  s.run();
  EXPECT_TRUE(begun);
  EXPECT_TRUE(h.done());
  h.join();
}

TEST(go, allocates_one_frame_and_one_record) {
  stepper s;
  s.run();
  go(answer).join();  // the scheduler's own vectors are warm
  const auto before = allocations();
  go(answer).join();
  EXPECT_EQ(allocations() - before, 2u);
  const auto between = allocations();
  go([] {}).join();
  EXPECT_EQ(allocations() - between, 1u);
}

// ---- Joining ------------------------------------------------------------------------------------

TEST(join_handle, passes_an_exception_to_a_joining_coroutine) {
  stepper s;
  auto h = go([]() -> task<int> {
    auto child = go(fail);
    co_return co_await child;
  });
  EXPECT_THROW(h.join(), std::runtime_error);
}

TEST(join_handle, passes_the_exception_of_a_plain_function) {
  stepper s;
  EXPECT_THROW(go([] { throw std::runtime_error("x"); }).join(), std::runtime_error);
}

TEST(join_handle, can_be_joined_once) {
  stepper s;
  auto h = go(answer);
  EXPECT_TRUE(h);
  EXPECT_EQ(h.join(), 42);
  EXPECT_FALSE(h);
  try {
    h.join();
    FAIL() << "joined twice";
  } catch (const std::logic_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("was joined, detached or moved from"));
  }
  EXPECT_THROW(join_handle<int>().join(), std::logic_error);
  auto moved = std::move(h);
  EXPECT_THROW(h.join(), std::logic_error);  // NOLINT(bugprone-use-after-move): that is the point
}

TEST(join_handle, is_joined_after_the_task_is_destroyed) {
  stepper s;
  auto h = go(
      [t = token(1)](token) -> task<void> {
        token local(3);
        co_return;
      },
      token(2));
  s.run();
  EXPECT_TRUE(h.done());
  EXPECT_EQ(token::alive(), 0);
  h.join();
}

TEST(join_handle, can_be_joined_by_a_thread_that_belongs_to_no_scheduler) {
  runtime rt({.processors = 2});
  for (int i = 0; i < 100; ++i) {
    auto h = rt.spawn([i]() -> task<int> {
      co_await verge::yield();
      co_return i;
    });
    EXPECT_EQ(h.join(), i);
  }
}

TEST(join_handle, that_is_dropped_lets_the_task_continue) {
  stepper s;
  bool done = false;
  go([&]() -> task<void> {
    co_await verge::yield();
    done = true;
  }).detach();
  s.run();
  EXPECT_TRUE(done);
}

TEST(join_handle, that_is_dropped_leaves_the_exception_to_the_scheduler) {
  stepper s;
  go(fail).detach();
  s.run();
  auto taken = s.take_unhandled();
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(text_of(taken[0]), "no answer");
}

TEST(join_handle, that_is_dropped_after_the_end_leaves_the_exception_to_the_scheduler) {
  stepper s;
  auto h = go(fail);
  s.run();
  EXPECT_TRUE(s.take_unhandled().empty()) << "it could still be joined";
  h.detach();
  EXPECT_EQ(s.take_unhandled().size(), 1u);
}

/// Or a runtime that has nothing left to do could end before.
TEST(join_handle, that_is_dropped_leaves_the_exception_before_the_task_counts_as_ended) {
  detail::scheduler* home = nullptr;
  std::atomic<std::size_t> live{99};
  runtime rt({.processors = 1, .on_exception = [&](const std::exception_ptr&) {
                live = static_cast<detail::live_scheduler*>(home)->jobs().live();
              }});
  home = &detail::scheduler_of(rt);
  const chan<int> go_on;
  rt.spawn([&go_on]() -> task<> {
      co_await recv(go_on);
      throw std::runtime_error("lost");
    }).detach();
  go_on.close();
  EXPECT_TRUE(test::eventually([&] { return live != 99; }));
  EXPECT_EQ(live, 1U);
}

TEST(join_handle, shows_in_the_job_what_is_waited_for) {
  stepper s;
  chan<int> ch;
  auto child = go([&]() -> task<void> { co_await verge::recv(ch); });
  s.run();
  ASSERT_EQ(s.live().size(), 1u);
  EXPECT_STREQ(s.live()[0]->waiting_for, "chan receive");
  auto parent = go([&]() -> task<void> { co_await child; });
  s.run();
  ASSERT_EQ(s.live().size(), 2u);
  EXPECT_STREQ(s.live()[1]->waiting_for, "join");
  ch.send(1);
  parent.join();
  EXPECT_TRUE(s.live().empty());
}

// ---- Yielding -----------------------------------------------------------------------------------

TEST(yield, lets_everything_else_run_first) {
  stepper s;
  std::vector<std::string> seen;
  auto walk = [&](std::string name) -> task<void> {
    for (int i = 0; i < 3; ++i) {
      seen.push_back(name + std::to_string(i));
      co_await verge::yield();
    }
  };
  go(walk, "a").detach();
  go(walk, "b").detach();
  s.run();
  EXPECT_THAT(seen, ElementsAre("a0", "b0", "a1", "b1", "a2", "b2"));
}

TEST(yield, lets_others_run_while_a_thread_waits) {
  stepper s;
  bool ran = false;
  go([&] { ran = true; }).detach();
  verge::yield().wait();
  EXPECT_TRUE(ran);
}

TEST(yield, is_harmless_on_a_thread_that_no_scheduler_knows) { verge::yield().wait(); }

// ---- The end of a scheduler ---------------------------------------------------------------------

TEST(scheduler_that_ends, destroys_what_is_suspended) {
  chan<int> ch;
  {
    stepper s;
    auto outer = [&](token) -> task<void> {
      auto inner = [&](token) -> task<void> {
        token local;
        co_await verge::recv(ch);
      };
      token local;
      co_await inner(token());
    };
    go(outer, token()).detach();
    s.run();
    EXPECT_GE(token::alive(), 4);
  }
  EXPECT_EQ(token::alive(), 0);
  EXPECT_FALSE(ch.try_send(1)) << "a destroyed waiter is still registered";
}

TEST(scheduler_that_ends, destroys_what_has_not_begun) {
  {
    stepper s;
    go([t = token()] {}).detach();
    go([t = token()]() -> task<void> { co_return; }).detach();
    EXPECT_EQ(token::alive(), 2);
  }
  EXPECT_EQ(token::alive(), 0);
}

TEST(scheduler_that_ends, tells_the_joiners) {
  chan<int> ch;
  join_handle<void> h;
  {
    stepper s;
    h = go([&]() -> task<void> { co_await verge::recv(ch); });
    s.run();
  }
  EXPECT_TRUE(h.done());
  EXPECT_THROW(h.join(), cancelled);
}

TEST(scheduler_that_ends, destroys_tasks_that_join_one_another) {
  chan<int> ch;
  {
    stepper s;
    auto child = go([&]() -> task<void> { co_await verge::recv(ch); });
    go([](join_handle<void> c, token) -> task<void> { co_await c; }, std::move(child), token())
        .detach();
    s.run();
    EXPECT_EQ(s.live().size(), 2u);
  }
  EXPECT_EQ(token::alive(), 0);
}

// ---- Coroutines of other kinds ------------------------------------------------------------------

// A coroutine type that does not use verge can await verge's operations.
struct stranger {
  struct promise_type {
    stranger get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const noexcept { std::terminate(); }
  };
};

TEST(coroutine_of_another_kind, can_await_a_channel_and_a_task) {
  stepper s;
  chan<int> ch;
  int got = 0;
  [](chan<int> from, int& to) -> stranger {
    to = *co_await verge::recv(from);
    co_await verge::yield();
    to += co_await answer();
  }(ch, got);
  ch.send(1);
  s.run();
  EXPECT_EQ(got, 43);
}

/// What resumes a coroutine on this thread later is told that there is no loop, and becomes one.
TEST(a_thread, that_has_run_tasks_is_in_no_loop_of_coroutines) {
  ASSERT_EQ(detail::current_loop, nullptr);
  stepper s;
  const auto nested = []() -> task<int> { co_return co_await answer(); };
  auto h = go([&]() -> task<int> {
    EXPECT_NE(detail::current_loop, nullptr);
    co_return co_await nested();
  });
  s.run();
  EXPECT_EQ(h.join(), 42);
  EXPECT_EQ(detail::current_loop, nullptr);
}

/// As the coroutines of another library do.
struct resumed_by_hand {
  std::coroutine_handle<>& handle;
  static bool await_ready() noexcept { return false; }
  void await_suspend(std::coroutine_handle<> h) const noexcept { handle = h; }
  static void await_resume() noexcept {}
};

TEST(a_task, that_other_code_resumes_ends_and_is_joined) {
  stepper s;
  std::coroutine_handle<> handle;
  std::vector<int> order;
  const auto inner = [&]() -> task<int> {
    co_await resumed_by_hand{handle};
    order.push_back(1);
    co_return 20;
  };
  auto h = go([&]() -> task<int> {
    const int got = co_await inner();
    order.push_back(2);
    co_return got + co_await answer();
  });
  s.run();
  ASSERT_TRUE(handle);
  EXPECT_FALSE(h.done());
  ASSERT_EQ(detail::current_job(), nullptr);
  handle.resume();
  EXPECT_THAT(order, ElementsAre(1, 2));
  EXPECT_TRUE(h.done());
  EXPECT_EQ(h.join(), 62);
  EXPECT_EQ(detail::current_loop, nullptr);
}

/// A task that has suspended is not what the thread runs next.
TEST(a_callback, that_runs_after_a_part_of_a_task_is_no_part_of_it) {
  using namespace std::chrono_literals;
  simulation sim;
  const chan<int> c(1);
  std::vector<const detail::job*> seen;
  std::vector<timer> timers;
  for (int i = 1; i <= 3; ++i) {
    timers.push_back(after_func(i * 2ms, [&] { seen.push_back(detail::current_job()); }));
  }
  sim.run([&]() -> task<> {
    co_await verge::sleep(1ms);
    EXPECT_NE(detail::current_job(), nullptr);
    co_await verge::sleep(2ms);
    co_await verge::yield();
    co_await verge::sleep(2ms);
    c.try_send(1);
    static_cast<void>(co_await verge::recv(c));
    co_await verge::sleep(2ms);
  });
  EXPECT_THAT(seen, testing::Each(nullptr));
  EXPECT_EQ(seen.size(), 3U);
}

}  // namespace
