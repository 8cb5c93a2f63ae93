// SPDX-License-Identifier: Apache-2.0

// after_func(ctx, f): when f is called, what waits for it, and what is freed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <verge/context.h>
#include <verge/runtime.h>
#include <verge/simulation.h>
#include <verge/time.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include <support/as_default.h>
#include <support/patience.h>
#include <support/thread_state.h>
#include <support/token.h>

namespace {

using namespace verge;
using namespace std::chrono_literals;
using test::as_default;
using test::eventually;
using test::is_asleep;
using test::token;

TEST(context_callback, on_the_background_is_never_called) {
  runtime rt({.processors = 1});
  const as_default here(rt);
  auto f = after_func(background(), [] { FAIL(); });
  EXPECT_TRUE(f.stop());
  EXPECT_FALSE(f.stop());
  after_func(background(), [t = std::make_shared<token>()] { FAIL(); }).detach();
  EXPECT_EQ(token::alive(), 0);
}

TEST(context_callback, can_be_a_coroutine) {
  simulation sim;
  auto [ctx, cancel] = with_timeout(background(), 1s);
  time_point called;
  const auto f = after_func(ctx, [&]() -> task<> {
    co_await verge::sleep(1s);
    called = sim.now();
  });
  const auto start = sim.now();
  sim.run_for(3s);
  EXPECT_EQ(called - start, 2s);
}

TEST(context_callback, is_not_called_once_its_handle_is_destroyed) {
  simulation sim;
  auto [ctx, cancel] = with_cancel(background());
  {
    const auto f = after_func(ctx, [t = std::make_shared<token>()] { FAIL(); });
  }
  EXPECT_EQ(token::alive(), 0);
  {
    const auto f = after_func(ctx, [] { FAIL(); });
    cancel();
  }
  sim.run_for(1s);
}

TEST(context_callback, that_runs_is_waited_for_by_its_handle) {
  runtime rt({.processors = 2});
  const as_default here(rt);
  auto [ctx, cancel] = with_cancel(background());
  const pid_t destroys = ::gettid();
  std::atomic<bool> begun{false};
  std::atomic<bool> go_on{false};
  std::atomic<bool> ended{false};
  {
    const auto f = after_func(ctx, [&] {
      begun = true;
      while (!go_on) std::this_thread::yield();
      EXPECT_TRUE(eventually([&] { return is_asleep(destroys); })) << "the handle waits";
      ended = true;
    });
    cancel();
    ASSERT_TRUE(eventually([&] { return begun.load(); }));
    go_on = true;
  }
  EXPECT_TRUE(ended);
}

/// The handle of one that has been called keeps its memory: no timer that comes later shares it.
TEST(context_callback, of_a_context_that_has_ended_is_its_handles_until_that_ends) {
  runtime rt({.processors = 1});
  const as_default here(rt);
  auto [ctx, cancel] = with_cancel(background());
  cancel();
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> called = false;
    auto f = std::make_unique<context_callback>(after_func(ctx, [&] { called = true; }));
    ASSERT_TRUE(eventually([&] { return called.load(); }));
    constexpr int some = 64;
    std::atomic<int> fired = 0;
    std::vector<timer> timers;
    const auto start_some = [&] {
      for (int i = 0; i < some; ++i) timers.push_back(after_func(1ms, [&] { ++fired; }));
    };
    // Where the callback has run and ended, which is where its memory would be free.
    rt.run(start_some);
    f.reset();
    rt.run(start_some);
    ASSERT_TRUE(eventually([&] { return fired == 2 * some; })) << fired;
    for (timer& t : timers) EXPECT_FALSE(t.stop());
  }
}

TEST(context_callback, that_is_detached_is_called_and_freed) {
  simulation sim;
  int called = 0;
  {
    auto [ctx, cancel] = with_cancel(background());
    after_func(ctx, [&, t = std::make_shared<token>()] { ++called; }).detach();
    after_func(ctx, [&] { ++called; }).detach();
    sim.run_for(1s);
    EXPECT_EQ(called, 0);
  }
  sim.run_for(1s);
  EXPECT_EQ(called, 2);
  EXPECT_EQ(token::alive(), 0);
}

TEST(context_callback, of_a_runtime_that_has_ended_is_not_called) {
  cancellable made = with_cancel(background());
  context_callback f;
  {
    runtime rt({.processors = 1});
    const as_default here(rt);
    f = after_func(made.ctx, [t = std::make_shared<token>()] { FAIL(); });
  }
  made.cancel();
  EXPECT_FALSE(f.stop());
  f = context_callback();
  EXPECT_EQ(token::alive(), 0);
}

TEST(context_callback, that_is_not_there_cannot_be_stopped) {
  context_callback none;
  EXPECT_FALSE(static_cast<bool>(none));
  EXPECT_THAT([&] { none.stop(); },
              testing::ThrowsMessage<std::logic_error>(testing::HasSubstr("after_func(ctx, f)")));
}

}  // namespace
