// SPDX-License-Identifier: Apache-2.0

// The time API beyond the conformance list: what may be called, what is thrown, where exceptions
// are reported, and the lifetime of handles and functions.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <verge/runtime.h>
#include <verge/simulation.h>
#include <verge/time.h>
#include <verge/timeout.h>

#include <array>
#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <support/as_default.h>
#include <support/patience.h>
#include <support/scale.h>

namespace verge {
namespace {

using namespace std::chrono_literals;
using test::as_default;
using test::eventually;
using testing::ElementsAre;
using testing::StrEq;
using testing::ThrowsMessage;

// ---- What may be called -------------------------------------------------------------------------

TEST(after_func, spawns_a_coroutine_function) {
  simulation sim;
  const auto start = sim.now();
  std::vector<time_point> reached;
  {
    const auto t = after_func(10ms, [&]() -> task<> {
      reached.push_back(sim.now());
      co_await verge::sleep(20ms);
      reached.push_back(sim.now());
    });
    sim.run_for(15ms);
  }
  // The handle is destroyed; what it started continues.
  sim.run_for(1s);
  EXPECT_THAT(reached, ElementsAre(start + 10ms, start + 30ms));
}

TEST(after_func, keeps_the_captures_of_the_coroutine_until_it_ends) {
  simulation sim;
  auto kept = std::make_shared<int>(7);
  std::weak_ptr<int> watch = kept;
  int seen = 0;
  after_func(10ms, [kept = std::move(kept), &seen]() -> task<> {
    co_await verge::sleep(20ms);
    seen = *kept;
  }).detach();
  sim.run_for(20ms);
  EXPECT_FALSE(watch.expired());
  sim.run_for(1s);
  EXPECT_EQ(seen, 7);
  EXPECT_TRUE(watch.expired());
}

TEST(every, spawns_a_coroutine_each_time) {
  simulation sim;
  const auto start = sim.now();
  std::vector<time_point> ended;
  const auto e = every(10ms, [&]() -> task<> {
    co_await verge::sleep(25ms);
    ended.push_back(sim.now());
  });
  sim.run_for(60ms);
  EXPECT_THAT(ended, ElementsAre(start + 35ms, start + 45ms, start + 55ms));
}

TEST(after_func, accepts_a_move_only_function) {
  simulation sim;
  int seen = 0;
  const auto t = after_func(1ms, [p = std::make_unique<int>(5), &seen] { seen = *p; });
  sim.run_for(1s);
  EXPECT_EQ(seen, 5);
}

/// Its handle waits for it as for one that returns nothing.
TEST(after_func, discards_what_its_function_returns) {
  std::atomic<bool> begun = false;
  std::atomic<bool> go_on = false;
  std::atomic<bool> ended = false;
  std::thread helper;
  {
    const auto t = after_func(1ms, [&] {
      begun = true;
      while (!go_on) std::this_thread::yield();
      ended = true;
      return 1;
    });
    ASSERT_TRUE(eventually([&] { return begun.load(); }));
    helper = std::thread([&] {
      std::this_thread::sleep_for(20ms);
      go_on = true;
    });
  }
  EXPECT_TRUE(ended) << "the handle is destroyed, and its callback runs";
  helper.join();
}

TEST(every, calls_a_function_that_returns_something_once_at_a_time) {
  std::atomic<int> running = 0;
  std::atomic<int> most = 0;
  std::atomic<int> calls = 0;
  const auto e = every(1ms, [&]() -> bool {
    const int now = ++running;
    if (now > most) most = now;
    std::this_thread::sleep_for(3ms);
    --running;
    ++calls;
    return true;
  });
  ASSERT_TRUE(eventually([&] { return calls >= 10; }));
  EXPECT_EQ(most, 1);
}

/// Counts its instances.
struct counted {
  static inline std::atomic<int> alive = 0;
  counted() { ++alive; }
  counted(const counted&) { ++alive; }
  counted(counted&&) noexcept { ++alive; }
  ~counted() { --alive; }
};

TEST(after_func, destroys_the_captures_of_its_function_with_the_handle) {
  simulation sim;
  const std::array<char, 200> much{};
  {
    const auto small = after_func(1ms, [c = counted()] {});
    const auto large = after_func(1ms, [c = counted(), much] { static_cast<void>(much); });
    const auto pending = after_func(1h, [c = counted()] {});
    auto stopped = after_func(1h, [c = counted()] {});
    EXPECT_EQ(counted::alive, 4);
    sim.run_for(1s);
    stopped.stop();
    EXPECT_EQ(counted::alive, 4) << "they can be started again";
  }
  EXPECT_EQ(counted::alive, 0);
  after_func(1ms, [c = counted(), much] { static_cast<void>(much); }).detach();
  EXPECT_EQ(counted::alive, 1);
  sim.run_for(1s);
  EXPECT_EQ(counted::alive, 0);
}

// ---- Handles ------------------------------------------------------------------------------------

TEST(timer, that_is_detached_fires_without_a_handle) {
  simulation sim;
  int fired = 0;
  auto t = after_func(10ms, [&] { ++fired; });
  t.detach();
  EXPECT_FALSE(t);
  auto e = every(10ms, [&] { ++fired; });
  e.detach();
  sim.run_for(100ms);
  EXPECT_EQ(fired, 11);
}

TEST(timer, that_is_assigned_to_stops_its_old_timer) {
  simulation sim;
  std::string fired;
  auto t = after_func(10ms, [&] { fired += 'a'; });
  t = after_func(20ms, [&] { fired += 'b'; });
  auto u = std::move(t);
  EXPECT_FALSE(t);  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(u);
  t = after_func(30ms, [&] { fired += 'c'; });
  t.swap(u);
  t = verge::timer();
  sim.run_for(1s);
  EXPECT_EQ(fired, "c");
}

TEST(tick, ends_when_its_last_receiver_is_dropped) {
  runtime rt;
  as_default here(rt);
  for (int i = 0; i < test::scale(300, 100); ++i) {
    auto c = tick(1h);
    auto d = c;
    EXPECT_EQ(rt.stats().total.timers_live, 1u);
    std::atomic<bool> go{false};
    std::thread other([&, mine = std::move(d)]() mutable {
      while (!go) std::this_thread::yield();
      mine = {};
    });
    go = true;
    c = {};
    other.join();
    ASSERT_EQ(rt.stats().total.timers_live, 0u) << "in round " << i;
  }
}

TEST(after, ends_when_its_channel_is_dropped) {
  runtime rt;
  as_default here(rt);
  { const auto c = after(1h); }
  EXPECT_EQ(rt.stats().total.timers_live, 0u);
}

TEST(sleep, accepts_any_clock_with_the_same_count_and_any_unit) {
  const auto start = std::chrono::steady_clock::now();
  verge::sleep_until(start + 2ms).wait();
  EXPECT_GE(std::chrono::steady_clock::now(), start + 2ms);
  verge::sleep(std::chrono::duration<double, std::milli>(1.5)).wait();
  EXPECT_GE(std::chrono::steady_clock::now(), start + 3500us);
}

// ---- Errors -------------------------------------------------------------------------------------

TEST(after_func, accepts_a_time_point_of_any_clock_with_the_same_count) {
  simulation sim;
  const auto start = sim.now();
  std::vector<time_point> reached;
  const auto note = [&] { reached.push_back(sim.now()); };
  const timer a = after_func(start + 20ms, note);
  const timer b = after_func(std::chrono::steady_clock::time_point(start.time_since_epoch()) + 30ms,
                             note, {.slack = 0ns});
  const timer past = after_func(start - 1h, note);
  const timer never = after_func(time_point::max(), note);
  sim.run_for(1h);
  EXPECT_THAT(reached, ElementsAre(start, start + 20ms, start + 30ms));
}

TEST(timer, accepts_a_time_point) {
  simulation sim;
  const auto start = sim.now();
  EXPECT_EQ(timer(start + 20ms).c().recv(), start + 20ms);
  EXPECT_EQ(timer(start - 1h).c().recv(), start + 20ms) << "the time at which it fired";
}

TEST(after_func, rejects_an_empty_function) {
  simulation sim;
  const auto refused =
      ThrowsMessage<std::invalid_argument>(StrEq("verge: a timer needs a function to call"));
  void (*none)() = nullptr;
  EXPECT_THAT([&] { static_cast<void>(after_func(1s, none)); }, refused);
  EXPECT_THAT([&] { static_cast<void>(after_func(1s, std::function<void()>())); }, refused);
  EXPECT_THAT([&] { static_cast<void>(every(1s, std::function<void()>())); }, refused);
}

TEST(timer, with_a_function_has_no_channel) {
  simulation sim;
  const auto t = after_func(1s, [] {});
  EXPECT_THAT([&] { t.c(); }, ThrowsMessage<std::logic_error>(
                                  StrEq("verge: this timer calls a function and has no channel")));
}

TEST(ticker, rejects_an_unknown_policy) {
  simulation sim;
  EXPECT_THAT([] { static_cast<void>(verge::ticker(1s, static_cast<missed_ticks>(9))); },
              ThrowsMessage<std::invalid_argument>(StrEq(
                  "verge: no such policy for missed ticks; there are skip, burst and delay")));
}

TEST(ticker, names_the_period_that_it_rejects) {
  simulation sim;
  EXPECT_THAT([] { static_cast<void>(verge::ticker(-5us)); },
              ThrowsMessage<std::invalid_argument>(
                  StrEq("verge: the period of a ticker must be positive, and this one is -5000 "
                        "ns")));
}

// ---- Exceptions ---------------------------------------------------------------------------------

/// Collects the exceptions passed to a runtime's handler.
class heard {
 public:
  std::function<void(std::exception_ptr)> handler() {
    return [this](const std::exception_ptr& e) {
      std::lock_guard held(lock_);
      try {
        std::rethrow_exception(e);
      } catch (const std::exception& what) {
        texts_.emplace_back(what.what());
      } catch (...) {
        texts_.emplace_back("something");
      }
    };
  }
  std::vector<std::string> texts() {
    std::lock_guard held(lock_);
    return texts_;
  }

 private:
  std::mutex lock_;
  std::vector<std::string> texts_;
};

TEST(exceptions, from_callbacks_reach_the_handler_and_harm_no_other) {
  heard h;
  simulation sim({.on_exception = h.handler()});
  int others = 0;
  auto thrower = after_func(10ms, [] { throw std::runtime_error("callback"); });
  int ticks = 0;
  const auto e = every(10ms, [&] {
    ++ticks;
    throw std::runtime_error("tick " + std::to_string(ticks));
  });
  const auto other = every(10ms, [&] { ++others; });
  after_func(5ms, []() -> task<> {
    co_await verge::sleep(1ms);
    throw std::runtime_error("coroutine");
  }).detach();
  after_func(7ms, [] { throw 7; }).detach();
  sim.run_for(35ms);
  EXPECT_EQ(others, 3);
  EXPECT_THAT(h.texts(), testing::UnorderedElementsAre("coroutine", "something", "callback",
                                                       "tick 1", "tick 2", "tick 3"));
  EXPECT_FALSE(thrower.reset(1ms)) << "and it can be started again";
  sim.run_for(2ms);
  EXPECT_EQ(h.texts().size(), 7u);
}

TEST(exceptions, from_tasks_reach_the_joiner_or_else_the_handler) {
  heard h;
  runtime rt({.processors = 2, .on_exception = h.handler()});
  EXPECT_THAT([&] { rt.run([]() -> task<> { throw std::runtime_error("joined"); }); },
              ThrowsMessage<std::runtime_error>(StrEq("joined")));
  EXPECT_THAT([&] { rt.run([] { throw std::runtime_error("a call"); }); },
              ThrowsMessage<std::runtime_error>(StrEq("a call")));
  EXPECT_TRUE(h.texts().empty());
  rt.spawn([]() -> task<> { throw std::runtime_error("detached"); }).detach();
  EXPECT_TRUE(eventually([&] { return h.texts().size() == 1; }));
  EXPECT_THAT(h.texts(), ElementsAre("detached"));

  auto cancelled_one = rt.spawn([]() -> task<> { co_await verge::sleep(1h); });
  cancelled_one.cancel();
  EXPECT_THROW(cancelled_one.join(), cancelled);
}

TEST(unhandled_exceptions, terminate_the_program_with_their_text) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        runtime rt;
        as_default here(rt);
        after_func(0s, [] { throw std::runtime_error("the reason"); }).detach();
        verge::sleep(test::patience).wait();
      },
      "an exception of a task or callback was not caught: the reason");
}

// ---- Callbacks that misbehave -------------------------------------------------------------------

TEST(a_callback_that_blocks_forever, delays_no_other_timer) {
  for (const unsigned processors : {1U, 2U}) {
    runtime rt({.processors = processors});
    as_default here(rt);
    std::latch over(1);
    std::atomic<int> blocked{0};
    std::vector<verge::timer> blockers;
    for (int i = 0; i < 3; ++i) {
      blockers.push_back(after_func(0s, [&] {
        ++blocked;
        over.wait();
      }));
    }
    EXPECT_TRUE(eventually([&] { return blocked == 3; })) << blocked << " of 3 have begun";
    std::atomic<int> ticks{0};
    const auto e = every(1ms, [&] { ++ticks; });
    EXPECT_TRUE(eventually([&] { return ticks >= 20; })) << ticks;
    EXPECT_GE(*after(1ms).recv(), time_point());
    over.count_down();
  }
}

TEST(a_callback_that_destroys_its_own_handle, ends_the_ticker_from_within) {
  simulation sim;
  int ticks = 0;
  verge::ticker t;
  t = every(1ms, [&, c = counted()] {
    if (++ticks == 3) t = verge::ticker();
    EXPECT_EQ(counted::alive, 1) << "its own captures live until it returns";
  });
  sim.run_for(1s);
  EXPECT_EQ(ticks, 3);
  EXPECT_EQ(counted::alive, 0);
}

/// Such a timer may still be in a queue, if it was restarted. The thread that removes it from there
/// destroys its captures, but only after it has released all locks.
TEST(a_callback_that_destroys_its_own_handle, leaves_its_captures_to_the_next_start_of_a_timer) {
  for (const engine e : engines()) {
    runtime rt({.processors = 1, .engine = e});
    const as_default here(rt);
    std::vector<verge::timer> others(8);  // with so many it does not look for stopped ones
    for (auto& t : others) t = after_func(50s, [] {});
    std::atomic<bool> in_place{false};
    std::atomic<bool> over{false};
    verge::timer t;
    t = after_func(0s, [&, c = counted()] {
      while (!in_place) std::this_thread::yield();
      t.reset(30s);
      t = verge::timer();
      over = true;
    });
    in_place = true;
    ASSERT_TRUE(eventually([&] { return over.load(); }));
    rt.run([] {});  // its callback has returned
    const verge::timer later(40s);
    EXPECT_TRUE(eventually([] { return counted::alive == 0; })) << name_of(e);
  }
}

// ---- Time-outs ----------------------------------------------------------------------------------

TEST(timeout, of_an_operation_that_does_not_complete_withdraws_it) {
  simulation sim;
  chan<int> c;
  const auto start = sim.now();
  EXPECT_THAT([&] { verge::timeout(verge::recv(c), 50ms).wait(); },
              ThrowsMessage<timed_out>(StrEq("verge: not done in time")));
  EXPECT_EQ(sim.now(), start + 50ms);
  EXPECT_FALSE(c.try_send(1)) << "no receiver is left";
  EXPECT_THROW(verge::timeout(verge::send(c, 1), 50ms).wait(), timed_out);
  EXPECT_FALSE(c.try_recv());
}

TEST(timeout, of_an_operation_that_completes_returns_its_result) {
  simulation sim;
  chan<int> c(1);
  c.send(1);
  EXPECT_EQ(verge::timeout(verge::recv(c), 0s).wait(), 1)
      << "what is available at once is received";
  EXPECT_THROW(verge::timeout(verge::recv(c), 0s).wait(), timed_out);
  sim.thread([=]() -> task<> {
       co_await verge::sleep(20ms);
       co_await verge::send(c, 2);
     })
      .detach();
  const auto start = sim.now();
  EXPECT_EQ(verge::timeout(verge::recv(c), 1h).wait(), 2);
  EXPECT_EQ(sim.now(), start + 20ms);
}

TEST(timeout, of_a_task_cancels_it_and_waits_for_its_end) {
  simulation sim;
  const auto start = sim.now();
  bool cleaned_up = false;
  const auto work = [&]() -> task<int> {
    try {
      co_await verge::sleep(1h);
    } catch (const cancelled&) {
      cleaned_up = true;
      throw;
    }
    co_return 1;
  };
  EXPECT_THROW(sim.run(verge::timeout(work(), 50ms)), timed_out);
  EXPECT_TRUE(cleaned_up);
  EXPECT_EQ(sim.now(), start + 50ms);
  const auto quick = []() -> task<int> {
    co_await verge::sleep(1ms);
    co_return 42;
  };
  EXPECT_EQ(sim.run(verge::timeout(quick(), 50ms)), 42);
  EXPECT_THAT(
      [&] {
        sim.run(verge::timeout(
            []() -> task<> {
              throw std::runtime_error("its own");
              co_return;
            }(),
            1s));
      },
      ThrowsMessage<std::runtime_error>(StrEq("its own")));
}

/// A callable that owns nothing is destroyed with its node. The destructor takes the short way if
/// the timer is armed, as it is again here, and must still wait for the call.
TEST(a_handle, waits_for_a_callback_that_owns_nothing_and_has_armed_its_timer_again) {
  struct {
    verge::timer handle;
    std::atomic<bool> is_set{false};
    std::atomic<bool> begun{false};
    std::atomic<bool> go_on{false};
    std::atomic<bool> ended{false};
  } s;
  static auto* now = &s;
  now = &s;
  s.handle = after_func(1ms, [] {
    while (!now->is_set) std::this_thread::yield();
    now->handle.reset(1h);
    now->begun = true;
    while (!now->go_on) std::this_thread::sleep_for(1ms);
    now->ended = true;
  });
  s.is_set = true;
  ASSERT_TRUE(eventually([&] { return s.begun.load(); }));
  std::thread helper([&] {
    std::this_thread::sleep_for(50ms);
    s.go_on = true;
  });
  { const verge::timer last = std::move(s.handle); }
  EXPECT_TRUE(s.ended) << "the handle is destroyed, and its callback runs";
  s.go_on = true;
  helper.join();
  EXPECT_TRUE(eventually([&] { return s.ended.load(); }));
}

}  // namespace
}  // namespace verge
