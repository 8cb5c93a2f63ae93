// SPDX-License-Identifier: Apache-2.0

// Timers, tasks, sleeps and contexts on a runtime passed by the caller, from a thread that is not
// its worker.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>

#include <support/patience.h>
#include <verge/context.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/task.h>
#include <verge/time.h>

namespace {

using namespace verge;
using namespace std::chrono_literals;

class chosen_runtime : public testing::Test {
 protected:
  std::uint64_t pending() const { return rt.stats().total.timers_live; }
  std::uint64_t fired() const { return rt.stats().total.timers_fired; }
  bool is_here() { return detail::current_scheduler() == &detail::scheduler_of(rt); }
  time_point in_an_hour() const { return clock::now() + 1h; }

  runtime rt{{.processors = 1}};
};

TEST_F(chosen_runtime, calls_functions_of_timers_and_tickers) {
  chan<bool> here(8);
  const auto tell = [&] { here.try_send(is_here()); };
  const timer a = after_func(rt, 1ms, tell);
  EXPECT_EQ(here.recv(), true);
  const timer b = after_func(rt, clock::now() + 1ms, tell);
  EXPECT_EQ(here.recv(), true);
  const ticker c = every(rt, 1ms, tell);
  EXPECT_EQ(here.recv(), true);
}

TEST_F(chosen_runtime, has_the_timers_that_send_to_channels) {
  EXPECT_EQ(pending(), 0u);
  const timer a(rt, 1h);
  const timer b(rt, in_an_hour(), {.slack = 1s});
  const ticker c(rt, 1h);
  const auto d = after(rt, 1h);
  const auto e = tick(rt, 1h);
  EXPECT_EQ(pending(), 5u);
  EXPECT_TRUE(timer(rt, 1ms).c().recv().has_value());
  EXPECT_TRUE(after(rt, 1ms).recv().has_value());
}

TEST_F(chosen_runtime, has_none_of_them_once_they_have_fired) {
  const timer a(rt, 1ms);
  const timer b(rt, clock::now() + 1ms);
  const auto c = after(rt, 1ms);
  EXPECT_TRUE(a.c().recv().has_value());
  EXPECT_TRUE(b.c().recv().has_value());
  EXPECT_TRUE(c.recv().has_value());
  EXPECT_TRUE(test::eventually([&] { return pending() == 0; })) << pending();
}

TEST_F(chosen_runtime, times_sleeps_of_other_threads) {
  sleep(rt, 1ms).wait();
  EXPECT_EQ(fired(), 1u);
  sleep_until(rt, clock::now() + 1ms).wait();
  EXPECT_EQ(fired(), 2u);
}

TEST_F(chosen_runtime, times_the_sleep_of_a_task_that_resumes_where_it_was) {
  runtime other{{.processors = 1}};
  EXPECT_TRUE(other.run([&]() -> task<bool> {
    co_await sleep(rt, 1ms);
    co_return detail::current_scheduler() == &detail::scheduler_of(other);
  }));
  EXPECT_EQ(fired(), 1u);
}

TEST_F(chosen_runtime, runs_tasks_and_functions_with_arguments) {
  EXPECT_EQ(go(
                rt, [this](int n) { return is_here() ? n : 0; }, 7)
                .join(),
            7);
  auto coroutine = [this](int n) -> task<int> { co_return is_here() ? n : 0; };
  EXPECT_EQ(go(rt, coroutine, 8).join(), 8);
  EXPECT_EQ(go(rt, coroutine(9)).join(), 9);
}

TEST_F(chosen_runtime, keeps_the_deadlines_of_contexts) {
  auto [a, cancel_a] = with_timeout(rt, background(), 1h);
  auto [b, cancel_b] = with_deadline(rt, background(), in_an_hour());
  EXPECT_EQ(pending(), 2u);
  auto [c, cancel_c] = with_timeout(rt, background(), 1ms);
  EXPECT_FALSE(c.done().recv().has_value());
  EXPECT_EQ(c.err(), context_errc::deadline_exceeded);
}

TEST_F(chosen_runtime, calls_functions_of_contexts) {
  chan<bool> here(1);
  auto [ctx, cancel] = with_cancel(background());
  const context_callback called = after_func(rt, ctx, [&] { here.send(is_here()); });
  cancel();
  EXPECT_EQ(here.recv(), true);
}

TEST_F(chosen_runtime, refuses_in_the_child_of_a_fork) {
  const pid_t child = ::fork();
  ASSERT_NE(child, -1);
  if (child == 0) {
    int refused = 0;
    const auto count = [&](auto start) {
      try {
        start();
      } catch (const std::logic_error&) {
        ++refused;
      }
    };
    count([&] { after_func(rt, 1s, [] {}).detach(); });
    count([&] { timer(rt, 1s).detach(); });
    count([&] { every(rt, 1s, [] {}).detach(); });
    count([&] { sleep(rt, 1s).wait(); });
    count([&] { go(rt, [] {}).detach(); });
    count([&] { with_timeout(rt, background(), 1s).cancel.detach(); });
    ::_exit(refused);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 6);
}

}  // namespace
