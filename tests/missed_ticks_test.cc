// SPDX-License-Identifier: Apache-2.0

// What a ticker does with ticks that are not received in time: the three policies, as drawn in
// verge/time.h, exact to the nanosecond.

#include <gtest/gtest.h>
#include <unistd.h>
#include <verge/simulation.h>
#include <verge/time.h>

#include <array>
#include <atomic>
#include <exception>
#include <new>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <thread>
#include <vector>

#include <engine/clockwork.h>
#include <support/counting_waiter.h>
#include <support/fake_engine.h>
#include <support/lone_engine.h>
#include <support/patience.h>
#include <support/thread_state.h>
#include <timer/channel_timer.h>

namespace verge {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

/// A tick as it was received: when, and the time that it carries, in milliseconds from the start.
struct tick_seen {
  std::int64_t at;
  std::int64_t carries;
  friend bool operator==(const tick_seen&, const tick_seen&) = default;
  friend std::ostream& operator<<(std::ostream& out, const tick_seen& t) {
    return out << t.at << '(' << t.carries << ')';
  }
};

class missed_ticks_test : public testing::Test {
 protected:
  void receive(const receiver<time_point>& c, int n) {
    for (int i = 0; i < n; ++i) {
      const auto tick = *c.recv();
      seen_.push_back({since_start(sim_.now()), since_start(tick)});
    }
  }
  std::int64_t since_start(time_point t) const {
    return std::chrono::duration_cast<milliseconds>(t - start_).count();
  }
  std::size_t timers_in_use() { return detail::scheduler_of(sim_).timers().memory().nodes_live; }
  /// The drawing: every 10, the first tick is received at once, and no other until 34.
  void draw(missed_ticks policy, int after_34) {
    const ticker tk(10ms, policy);
    receive(tk.c(), 1);
    sim_.run_for(24ms);
    receive(tk.c(), after_34);
  }

  simulation sim_;
  const time_point start_ = sim_.now();
  std::vector<tick_seen> seen_;
};

using drawing = std::vector<tick_seen>;

TEST_F(missed_ticks_test, skip_keeps_one_tick_and_the_grid) {
  draw(missed_ticks::skip, 3);
  EXPECT_EQ(seen_, (drawing{{10, 10}, {34, 20}, {40, 40}, {50, 50}}));
}

TEST_F(missed_ticks_test, skip_is_the_default) {
  const ticker tk(10ms);
  receive(tk.c(), 1);
  sim_.run_for(24ms);
  receive(tk.c(), 2);
  EXPECT_EQ(seen_, (drawing{{10, 10}, {34, 20}, {40, 40}}));
}

TEST_F(missed_ticks_test, burst_delivers_every_tick_late_ones_at_once) {
  draw(missed_ticks::burst, 4);
  EXPECT_EQ(seen_, (drawing{{10, 10}, {34, 20}, {34, 30}, {40, 40}, {50, 50}}));
}

TEST_F(missed_ticks_test, delay_continues_a_full_period_after_the_late_tick_is_received) {
  draw(missed_ticks::delay, 3);
  EXPECT_EQ(seen_, (drawing{{10, 10}, {34, 20}, {44, 44}, {54, 54}}));
}

TEST_F(missed_ticks_test, a_long_burst_loses_nothing) {
  const ticker tk(1ms, missed_ticks::burst);
  sim_.run_for(10s);
  for (int i = 1; i <= 10'000; ++i) {
    const auto tick = tk.c().try_recv();
    ASSERT_TRUE(tick) << i;
    ASSERT_EQ(since_start(*tick), i);
  }
  EXPECT_FALSE(tk.c().try_recv());
  receive(tk.c(), 1);
  EXPECT_EQ(seen_, (drawing{{10'001, 10'001}}));
}

TEST_F(missed_ticks_test, several_receivers_share_the_ticks_of_any_policy) {
  for (const auto policy : {missed_ticks::skip, missed_ticks::burst, missed_ticks::delay}) {
    const ticker tk(10ms, policy);
    std::vector<join_handle<time_point>> waiting;
    for (int i = 0; i < 3; ++i) {
      waiting.push_back(sim_.thread([c = tk.c()] { return *c.recv(); }));
    }
    const auto begin = sim_.now();
    std::vector<time_point> got;
    for (auto& h : waiting) got.push_back(h.join());
    std::sort(got.begin(), got.end());
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(got[static_cast<std::size_t>(i)], begin + (i + 1) * 10ms);
    }
  }
}

TEST_F(missed_ticks_test, nothing_waits_after_stop_or_reset_whatever_the_policy) {
  for (const auto policy : {missed_ticks::skip, missed_ticks::burst, missed_ticks::delay}) {
    SCOPED_TRACE(static_cast<int>(policy));
    ticker tk(10ms, policy);
    sim_.run_for(55ms);
    EXPECT_TRUE(tk.stop());
    EXPECT_FALSE(tk.c().try_recv());
    sim_.run_for(55ms);
    EXPECT_FALSE(tk.c().try_recv());
    EXPECT_FALSE(tk.stop());

    EXPECT_FALSE(tk.reset(20ms));
    sim_.run_for(50ms);
    EXPECT_TRUE(tk.reset(10ms));
    EXPECT_FALSE(tk.c().try_recv());
    const auto begin = sim_.now();
    EXPECT_EQ(*tk.c().recv(), begin + 10ms);
    EXPECT_EQ(*tk.c().recv(), begin + 20ms);
  }
}

TEST_F(missed_ticks_test, a_channel_that_outlives_its_ticker_delivers_nothing_more) {
  for (const auto policy : {missed_ticks::skip, missed_ticks::burst, missed_ticks::delay}) {
    receiver<time_point> c;
    {
      const ticker tk(10ms, policy);
      c = tk.c();
      EXPECT_TRUE(c.recv());
      sim_.run_for(35ms);
    }
    EXPECT_FALSE(c.try_recv());
    sim_.run_for(1s);
    EXPECT_FALSE(c.try_recv());
  }
}

TEST_F(missed_ticks_test,
       a_ticker_without_a_handle_continues_though_its_ticks_were_not_received_in_time) {
  for (const auto policy : {missed_ticks::skip, missed_ticks::burst, missed_ticks::delay}) {
    ticker tk(10ms, policy);
    const auto c = tk.c();
    tk.detach();
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(c.recv());
      sim_.run_for(35ms);
    }
  }
}

/// As with tick(). Whichever is destroyed last, the handle or the receivers, and also if a tick is
/// unreceived.
TEST_F(missed_ticks_test, a_ticker_without_a_handle_ends_with_its_last_receiver) {
  const std::size_t before = timers_in_use();
  for (const auto policy : {missed_ticks::skip, missed_ticks::burst, missed_ticks::delay}) {
    for (const bool a_tick_waits : {false, true}) {
      for (const bool handle_goes_first : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << static_cast<int>(policy) << a_tick_waits << handle_goes_first);
        ticker tk(10ms, policy);
        {
          auto copy = tk.c();
          const auto c = copy;
          if (handle_goes_first) tk.detach();
          copy = {};
          EXPECT_TRUE(c.recv());
          sim_.run_for(a_tick_waits ? 35ms : 5ms);
          EXPECT_EQ(timers_in_use(), before + 1);
        }
        if (!handle_goes_first) tk.detach();
        EXPECT_EQ(timers_in_use(), before);
      }
    }
  }
}

/// The same drawing with a function: the first call, at 10, takes until 34.
class missed_calls : public missed_ticks_test {
 protected:
  using times = std::vector<std::int64_t>;

  /// When calls began until 55, if the first one takes 24 ms.
  times calls(missed_ticks policy) {
    times begun;
    const auto e = every(
        10ms,
        [&] {
          begun.push_back(since_start(sim_.now()));
          if (begun.size() == 1) verge::sleep(24ms).wait();
        },
        policy);
    sim_.run_for(55ms);
    return begun;
  }
};

TEST_F(missed_calls, skip_calls_once_for_what_was_missed_and_keeps_the_grid) {
  EXPECT_EQ(calls(missed_ticks::skip), (times{10, 34, 40, 50}));
}

TEST_F(missed_calls, burst_calls_for_each) {
  EXPECT_EQ(calls(missed_ticks::burst), (times{10, 34, 34, 40, 50}));
}

TEST_F(missed_calls, delay_continues_a_full_period_after_the_late_call_has_begun) {
  EXPECT_EQ(calls(missed_ticks::delay), (times{10, 34, 44, 54}));
}

TEST_F(missed_calls, skip_is_the_default) {
  times begun;
  const auto e = every(10ms, [&] {
    begun.push_back(since_start(sim_.now()));
    verge::sleep(25ms).wait();
  });
  sim_.run_for(90ms);
  EXPECT_EQ(begun, (times{10, 35, 60, 85}));
}

TEST_F(missed_calls, a_long_burst_loses_none) {
  int called = 0;
  const auto e = every(
      1ms,
      [&] {
        if (++called == 1) verge::sleep(100s).wait();
      },
      missed_ticks::burst);
  sim_.run_for(101s);
  EXPECT_EQ(called, 101'000);
}

TEST_F(missed_calls, none_begins_after_stop_for_a_tick_that_waited) {
  for (const auto policy : {missed_ticks::skip, missed_ticks::burst, missed_ticks::delay}) {
    SCOPED_TRACE(static_cast<int>(policy));
    int called = 0;
    bool stopped = false;
    ticker e = every(
        10ms,
        [&] {
          ++called;
          verge::sleep(35ms).wait();
          stopped = e.stop();
        },
        policy);
    sim_.run_for(1s);
    EXPECT_TRUE(stopped);
    EXPECT_EQ(called, 1);
    EXPECT_FALSE(e.stop());
  }
}

TEST_F(missed_calls, reset_drops_the_ticks_that_waited_and_begins_a_new_grid) {
  for (const auto policy : {missed_ticks::skip, missed_ticks::burst, missed_ticks::delay}) {
    SCOPED_TRACE(static_cast<int>(policy));
    const auto begin = since_start(sim_.now());
    times begun;
    ticker e = every(
        10ms,
        [&] {
          begun.push_back(since_start(sim_.now()) - begin);
          if (begun.size() == 1) {
            verge::sleep(35ms).wait();
            EXPECT_TRUE(e.reset(20ms));
          }
        },
        policy);
    sim_.run_for(90ms);
    EXPECT_EQ(begun, (times{10, 65, 85}));
  }
}

TEST_F(missed_calls, of_a_detached_ticker_continue) {
  std::array<int, 3> called{};
  for (const auto policy : {missed_ticks::skip, missed_ticks::burst, missed_ticks::delay}) {
    every(
        10ms, [&n = called[static_cast<std::size_t>(policy)]] { ++n; }, policy)
        .detach();
  }
  sim_.run_for(105ms);
  EXPECT_EQ(called, (std::array{10, 10, 10}));
}

TEST_F(missed_calls, an_unknown_policy_is_rejected) {
  EXPECT_THROW(static_cast<void>(every(
                   1ms, [] {}, static_cast<missed_ticks>(3))),
               std::invalid_argument);
}

/// Accepts one timer, and has no memory to restart it.
class engine_without_memory final : public test::fake_engine {
 public:
  void start(detail::timer_node& t, std::int64_t when, std::int64_t) override {
    t.refs.fetch_add(1, std::memory_order_relaxed);
    due_ = when;
    waits_ = &t;
  }
  bool stop(detail::timer_node&) noexcept override { return false; }
  bool reset(detail::timer_node&, std::int64_t, std::int64_t) override { throw std::bad_alloc(); }
  void fire() {
    waits_->does.load(std::memory_order_relaxed)->fire(*waits_, due_);
    detail::clockwork::of(*waits_).release(*waits_);
  }

 private:
  std::int64_t due_{0};
  detail::timer_node* waits_{nullptr};
};

/// By the runtime's handler, which is user code and may use the same channel.
TEST(a_ticker_that_cannot_continue_for_lack_of_memory, reports_it_without_a_lock) {
  for (const bool somebody_waits : {false, true}) {
    receiver<time_point> c;
    std::atomic<int> said{0};
    test::clockwork_on<engine_without_memory> clockwork(1, [&](const std::exception_ptr& e) {
      EXPECT_FALSE(c.try_recv());
      EXPECT_THROW(std::rethrow_exception(e), std::bad_alloc);
      ++said;
    });
    detail::timer_node* const t =
        detail::start_ticker(clockwork.timers(), 1, static_cast<std::uint8_t>(missed_ticks::delay));
    c = detail::channel_of(t);
    std::thread waits;
    if (somebody_waits) {
      std::atomic<pid_t> thread{0};
      waits = std::thread([&] {
        thread = ::gettid();
        EXPECT_TRUE(c.recv());
      });
      EXPECT_TRUE(test::eventually([&] { return thread != 0 && test::is_asleep(thread); }));
    }
    clockwork.engine().fire();
    if (somebody_waits) {
      waits.join();
    } else {
      EXPECT_TRUE(c.try_recv());
    }
    EXPECT_TRUE(test::eventually([&] { return said == 1; }));
    detail::destroy_timer(*t);
  }
}

TEST(a_delayed_ticker_that_cannot_continue_for_lack_of_memory, makes_its_call_and_reports_it) {
  std::atomic<int> said{0};
  std::atomic<int> called{0};
  test::clockwork_on<engine_without_memory> clockwork(1, [&](const std::exception_ptr& e) {
    EXPECT_THROW(std::rethrow_exception(e), std::bad_alloc);
    ++said;
  });
  detail::timer_node* const t = detail::make_function_ticker(
      clockwork.timers(), 1, [&] { ++called; }, static_cast<std::uint8_t>(missed_ticks::delay));
  clockwork.engine().fire();
  EXPECT_TRUE(test::eventually([&] { return said == 1; }));
  EXPECT_EQ(called, 1);
  detail::destroy_timer(*t);
}

class lone_ticker : public testing::Test, public test::lone_engine {
 protected:
  lone_ticker() : lone_engine(verge::engine::hybrid) {}
};

/// While a tick waits in the channel it refers to itself, as no queue does. Once it is reset the
/// queue does again.
TEST_F(lone_ticker, that_is_reset_while_a_tick_waits_refers_to_itself_no_longer) {
  constexpr auto delay = static_cast<std::uint8_t>(missed_ticks::delay);
  detail::timer_node* const t = detail::start_ticker(timers(), test::second, delay);
  const std::uint32_t armed = t->refs;
  now_ += test::second;
  EXPECT_EQ(engine().check_timers(0, now_, true).ran, 1U);
  EXPECT_EQ(t->refs, armed) << "the queue's, and its own instead";
  EXPECT_TRUE(detail::reset_ticker(t, test::second));
  EXPECT_EQ(t->refs, armed);
  detail::destroy_timer(*t);
}

TEST_F(lone_ticker, with_a_channel_does_not_tick_for_a_firing_that_comes_too_late) {
  for (const auto policy : {missed_ticks::skip, missed_ticks::burst, missed_ticks::delay}) {
    detail::timer_node* const t =
        detail::start_ticker(timers(), test::second, static_cast<std::uint8_t>(policy));
    const auto channel = detail::channel_of(t);
    const auto ticks_at = [&](std::int64_t after) {
      t->does.load()->fire(*t, now_ + after * test::second);
      return channel.try_recv().has_value();
    };
    EXPECT_TRUE(detail::stop_timer(t));
    EXPECT_FALSE(ticks_at(2)) << "it was stopped";
    EXPECT_FALSE(detail::reset_ticker(t, 10 * test::second));
    EXPECT_FALSE(ticks_at(2)) << "it was put off";
    EXPECT_TRUE(ticks_at(10));
    detail::destroy_timer(*t);
  }
}

/// A worker has found that it is due, and fires it after it was started again: for a time in the
/// past, which is now.
TEST_F(lone_ticker, or_timer_does_not_send_for_a_firing_from_before_a_reset) {
  detail::timer_node* const t = detail::start_channel_timer(timers(), test::second, 0, {});
  const auto channel = detail::channel_of(t);
  const std::int64_t found = now_ += test::second;
  now_ += test::ms;
  EXPECT_TRUE(detail::reset_timer_at(t, found - 10 * test::second, 0));
  t->does.load()->fire(*t, found);
  EXPECT_FALSE(channel.try_recv());
  t->does.load()->fire(*t, now_);
  EXPECT_TRUE(channel.try_recv());
  detail::destroy_timer(*t);
}

/// Three receivers wait when a worker comes late: each tick that is owed wakes another one.
TEST_F(lone_ticker, gives_each_of_several_receivers_one_of_the_ticks_that_it_owes) {
  struct receiver_of_one : test::counting_waiter {
    detail::wait_node place;
    std::optional<time_point> got;
  };
  constexpr auto burst = static_cast<std::uint8_t>(missed_ticks::burst);
  detail::timer_node* const t = detail::start_ticker(timers(), test::second, burst);
  detail::tick_state* const channel = detail::share_channel(*t);
  std::array<receiver_of_one, 3> waiting;
  for (receiver_of_one& w : waiting) {
    channel->receivers.push(w.place, w, detail::waiter::by_event, &w.got);
  }
  const std::int64_t begin = now_;
  now_ += 3 * test::second;
  engine().check_timers(0, now_, true);
  for (std::int64_t i = 0; i < 3; ++i) {
    const receiver_of_one& w = waiting[static_cast<std::size_t>(i)];
    EXPECT_EQ(w.woken, 1) << i;
    ASSERT_TRUE(w.got) << i;
    EXPECT_EQ(w.got->time_since_epoch().count(), begin + (i + 1) * test::second);
  }
  detail::destroy_timer(*t);
  detail::tick_state::drop(channel);
}

/// The last reference was dropped, and the thread that destroys the node has yet to take it off the
/// channel, whose last receiver is destroyed at that moment.
TEST_F(lone_ticker, that_is_being_destroyed_is_not_stopped_by_its_last_receiver) {
  detail::timer_node& t =
      detail::make_channel_timer(timers(), detail::channel_kind::one_shot, false, {});
  {
    const auto receives =
        detail::chan_access::handle<receiver<clock::time_point>>(detail::share_channel(t));
    t.refs = 0;
  }
  EXPECT_EQ(t.refs, 0U);
  timers().bury(t);
}

/// A worker may take a ticker off a queue just before it is stopped or reset, and fire it after.
TEST_F(lone_ticker, does_not_tick_for_a_firing_that_comes_too_late) {
  for (const auto policy : {missed_ticks::skip, missed_ticks::burst, missed_ticks::delay}) {
    int calls = 0;
    detail::timer_node* const t = detail::make_function_ticker(
        timers(), test::second, [&calls] { ++calls; }, static_cast<std::uint8_t>(policy));
    const auto fire = [&](std::int64_t after) {
      t->does.load()->fire(*t, now_ + after * test::second);
      return calls;
    };
    EXPECT_TRUE(detail::stop_timer(t));
    EXPECT_EQ(fire(2), 0) << "it was stopped";
    EXPECT_FALSE(detail::reset_ticker(t, 10 * test::second));
    EXPECT_EQ(fire(2), 0) << "it was put off";
    EXPECT_EQ(fire(10), 1);
    detail::destroy_timer(*t);
  }
}

}  // namespace
}  // namespace verge
