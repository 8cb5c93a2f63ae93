// SPDX-License-Identifier: Apache-2.0

// Lines 40 to 45: contexts.

#include <conformance/conformance.h>

#include <verge/context.h>

#include <array>
#include <atomic>
#include <barrier>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <support/contexts.h>

namespace verge::test {
namespace {

const std::error_code too_slow = std::make_error_code(std::errc::stream_timeout);
const std::error_code went_away = std::make_error_code(std::errc::connection_aborted);

/// Waits until it is done, in simulated time, and returns when that was.
time_point done_at(simulation& sim, const context& c) {
  EXPECT_FALSE(c.done().recv());
  EXPECT_TRUE(c.err());
  return sim.now();
}

// ---- 40: deadlines ------------------------------------------------------------------------------

TEST_P(conformance, L40_a_deadline_in_the_future_is_exceeded_when_it_comes) {
  simulation sim(simulated());
  const auto start = sim.now();
  auto [by_time, cancel_1] = with_deadline(background(), start + 50ms);
  auto [by_delay, cancel_2] = with_timeout(background(), 50ms);
  auto [in_double, cancel_3] =
      with_timeout(background(), std::chrono::duration<double, std::milli>(50));
  const context below = with_value(by_time, context_key<int>(), 1);
  EXPECT_EQ(by_time.deadline(), start + 50ms);
  EXPECT_GE(by_delay.deadline(), start + 50ms);
  EXPECT_EQ(below.deadline(), by_time.deadline());
  sim.run_for(49ms);
  for (const context& c : {by_time, by_delay, in_double, below}) EXPECT_FALSE(c.err());
  for (const context& c : {by_time, by_delay, in_double, below}) {
    EXPECT_TRUE(on_time(start + 50ms, done_at(sim, c), 2));
    EXPECT_EQ(c.err(), context_errc::deadline_exceeded);
    EXPECT_EQ(c.cause(), context_errc::deadline_exceeded);
  }
}

TEST_P(conformance, L40_a_deadline_that_has_passed_makes_a_context_that_is_done) {
  simulation sim(simulated());
  const auto start = sim.now();
  auto [in_the_past, cancel_1] = with_deadline(background(), start - 1s);
  auto [now, cancel_2] = with_deadline(background(), start);
  auto [zero, cancel_3] = with_timeout(background(), 0s);
  auto [negative, cancel_4] = with_timeout(background(), -1h);
  auto [most_negative, cancel_5] = with_timeout(background(), nanoseconds::min());
  for (const context& c : {in_the_past, now, zero, negative, most_negative}) {
    EXPECT_EQ(c.err(), context_errc::deadline_exceeded);
    EXPECT_TRUE(is_closed(c));
    ASSERT_TRUE(c.deadline());
    EXPECT_LE(*c.deadline(), start);
  }
  EXPECT_EQ(sim.jumps(), 0u);
}

TEST_P(conformance, L40_a_deadline_beyond_the_clock_is_never_exceeded) {
  simulation sim(simulated());
  auto [longest, cancel_1] = with_timeout(background(), nanoseconds::max());
  auto [in_hours, cancel_2] = with_timeout(background(), std::chrono::hours::max());
  auto [last, cancel_3] = with_deadline(background(), time_point::max());
  sim.run_for(up_to(24h * 365 * 50));
  for (const context& c : {longest, in_hours, last}) {
    EXPECT_FALSE(c.err());
    EXPECT_EQ(c.deadline(), time_point::max());
  }
  cancel_1();
  EXPECT_EQ(longest.err(), context_errc::cancelled);
}

TEST_P(conformance, L40_no_deadline_is_exceeded_early_in_real_time) {
  for (const unsigned processors : {1U, 2U, 4U}) {
    runtime rt(live(processors));
    as_default here(rt);
    for (const nanoseconds d : {1ns, 999ns, 50'000ns, 1'000'000ns, 20'000'000ns}) {
      const auto start = clock::now();
      auto [ctx, cancel] = with_timeout(background(), d);
      EXPECT_FALSE(ctx.done().recv());
      EXPECT_GE(clock::now() - start, d);
      EXPECT_EQ(ctx.err(), context_errc::deadline_exceeded);
    }
  }
}

// ---- 41: parents and children -------------------------------------------------------------------

TEST_P(conformance, L41_an_earlier_deadline_of_the_parent_wins) {
  simulation sim(simulated());
  const auto start = sim.now();
  auto [parent, cancel_parent] = with_timeout(background(), 1s, too_slow);
  auto [later, cancel_later] = with_timeout(parent, 30s);
  auto [earlier, cancel_earlier] = with_timeout(parent, 500ms);
  EXPECT_EQ(later.deadline(), parent.deadline());
  EXPECT_LT(*earlier.deadline(), *parent.deadline());
  EXPECT_TRUE(on_time(start + 500ms, done_at(sim, earlier)));
  EXPECT_FALSE(later.err());
  EXPECT_TRUE(on_time(start + 1s, done_at(sim, later)));
  EXPECT_EQ(later.err(), context_errc::deadline_exceeded);
  EXPECT_EQ(later.cause(), too_slow);
}

TEST_P(conformance, L41_cancelling_the_parent_finishes_every_child) {
  simulation sim(simulated());
  cancellable root = with_cancel(background());
  std::vector<cancellable> all;
  for (int i = 0; i < 100; ++i) {
    const context& parent = i < 10 ? root.ctx : all[static_cast<std::size_t>(i) / 2].ctx;
    switch (i % 3) {
      case 0:
        all.push_back(with_cancel(parent));
        break;
      case 1:
        all.push_back(with_timeout(parent, minutes(1)));
        break;
      default:
        all.push_back(with_cancel(with_value(parent, context_key<int>(), i)));
    }
  }
  root.cancel();
  for (const cancellable& c : all) {
    EXPECT_EQ(c.ctx.err(), context_errc::cancelled);
    EXPECT_TRUE(is_closed(c.ctx));
  }
  const auto born_late = with_timeout(root.ctx, 1s);
  EXPECT_EQ(born_late.ctx.err(), context_errc::cancelled);
  EXPECT_EQ(sim.jumps(), 0u);
}

TEST_P(conformance, L41_cancelling_a_child_leaves_the_parent_and_its_other_children_alone) {
  simulation sim(simulated());
  auto [parent, cancel_parent] = with_cancel(background());
  auto [child, cancel_child] = with_timeout(parent, 1s);
  auto [sibling, cancel_sibling] = with_timeout(parent, 1s);
  cancel_child();
  EXPECT_TRUE(child.err());
  EXPECT_FALSE(parent.err());
  EXPECT_FALSE(sibling.err());
  sim.run_for(2s);
  EXPECT_EQ(child.err(), context_errc::cancelled);
  EXPECT_EQ(sibling.err(), context_errc::deadline_exceeded);
  EXPECT_FALSE(parent.err());
}

// ---- 42: cancel before the deadline -------------------------------------------------------------

TEST_P(conformance, L42_cancel_before_the_deadline_is_synchronous_and_says_cancelled) {
  simulation sim(simulated());
  auto [ctx, cancel] = with_timeout(background(), minutes(1), too_slow);
  auto [child, cancel_child] = with_cancel(ctx);
  sim.run_for(1s);
  cancel();
  for (const context& c : {ctx, child}) {
    EXPECT_EQ(c.err(), context_errc::cancelled);
    EXPECT_EQ(c.cause(), context_errc::cancelled);
    EXPECT_TRUE(is_closed(c));
  }
  sim.run_for(minutes(2));
  EXPECT_EQ(ctx.err(), context_errc::cancelled) << "it does not change";
}

// ---- 43: layers, and concurrent cancels ---------------------------------------------------------

/// Thirty contexts, each derived from the one before, of all kinds.
std::vector<cancellable> layers(std::mt19937& random, nanoseconds deadline) {
  std::vector<cancellable> all;
  context parent;
  for (int i = 0; i < 30; ++i) {
    switch (random() % 3) {
      case 0:
        all.push_back(with_cancel(parent));
        break;
      case 1:
        all.push_back(with_timeout(parent, deadline * (30 - i)));
        break;
      default:
        all.push_back(with_cancel(with_value(parent, context_key<int>(), i)));
    }
    parent = all.back().ctx;
  }
  all.push_back(with_timeout(parent, deadline));
  return all;
}

TEST_P(conformance, L43_thirty_random_layers_time_out) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    simulation sim(simulated(seed));
    std::mt19937 random(seed);
    const auto start = sim.now();
    const std::vector<cancellable> all = layers(random, 200ms);
    EXPECT_TRUE(on_time(start + 200ms, done_at(sim, all.back().ctx)));
    EXPECT_EQ(all.back().ctx.err(), context_errc::deadline_exceeded);
    all[random() % 30].cancel();
    all.front().cancel();
    for (const cancellable& c : all) {
      EXPECT_TRUE(c.ctx.err());
      EXPECT_TRUE(is_closed(c.ctx));
    }
  }
}

TEST_P(conformance, L43_simultaneous_cancels_do_not_deadlock) {
  for (const unsigned processors : {1U, 2U, 4U}) {
    runtime rt(live(processors));
    as_default here(rt);
    std::mt19937 random(1);
    cancellable root = with_cancel(background());
    std::vector<cancellable> all;
    for (int i = 0; i < scale(2000, 300); ++i) {
      const context& parent = i == 0 ? root.ctx : all[random() % all.size()].ctx;
      all.push_back(i % 2 == 0 ? with_cancel(parent) : with_timeout(parent, 30s));
    }
    constexpr int threads = 4;
    std::barrier together(threads);
    std::vector<std::jthread> cancelling;
    for (std::size_t t = 0; t < threads; ++t) {
      cancelling.emplace_back([&, t] {
        together.arrive_and_wait();
        for (std::size_t i = t; i < all.size(); i += threads) {
          all[t % 2 == 0 ? i : all.size() - 1 - i].cancel();
        }
      });
    }
    cancelling.clear();
    for (const cancellable& c : all) EXPECT_TRUE(is_closed(c.ctx));
    EXPECT_FALSE(root.ctx.err());
  }
}

TEST_P(conformance, L43_interlocked_cancels_do_not_deadlock) {
  simulation sim(simulated());
  sim.run([]() -> task<> {
    auto [parent, cancel_parent] = with_cancel(background());
    auto [child, cancel_child] = with_cancel(parent);
    // Each cancels the other as soon as it is done.
    auto up = go([c = child, stop = std::move(cancel_parent)]() -> task<> {
      co_await recv(c.done());
      stop();
    });
    auto down = go([p = parent, stop = std::move(cancel_child)]() -> task<> {
      co_await recv(p.done());
      stop();
    });
    co_await verge::sleep(1ms);
    EXPECT_FALSE(parent.err());
    auto [other, cancel_other] = with_cancel(child);
    up.cancel();  // which destroys the parent's canceller
    co_await recv(other.done());
    co_await down;
    EXPECT_TRUE(parent.err());
  });
}

// ---- 44: errors and causes ----------------------------------------------------------------------

TEST_P(conformance, L44_there_is_an_error_if_and_only_if_done_is_closed) {
  for (const unsigned processors : {1U, 2U, 4U}) {
    runtime rt(live(processors));
    as_default here(rt);
    const int rounds = tick() == 0ns ? scale(2000, 200) : 100;
    for (int i = 0; i < rounds; ++i) {
      auto [parent, cancel] = with_timeout(background(), 10us);
      auto [ctx, cancel_child] = with_cancel(parent);
      std::jthread other;
      if (i % 10 == 0) {
        other = std::jthread([c = ctx] {
          while (!c.done().closed()) std::this_thread::yield();
          EXPECT_TRUE(c.err());
        });
      }
      receiver<context_done> done;
      if (i % 2 == 0) done = ctx.done();
      while (!ctx.err()) std::this_thread::yield();
      EXPECT_TRUE(done ? done.closed() : is_closed(ctx));
    }
  }
}

TEST_P(conformance, L44_the_cause_is_kept_through_layers) {
  simulation sim(simulated());
  auto [root, cancel_root] = with_cancel_cause(background());
  auto [middle, cancel_middle] = with_timeout(root, minutes(1), too_slow);
  auto [leaf, cancel_leaf] = with_cancel(middle);
  auto [other, cancel_other] = with_timeout(root, 1s, too_slow);
  auto [below_other, cancel_below_other] = with_cancel(other);
  for (const context& c : {root, middle, leaf, other}) EXPECT_FALSE(c.cause());

  sim.run_for(2s);
  EXPECT_EQ(below_other.err(), context_errc::deadline_exceeded);
  EXPECT_EQ(below_other.cause(), too_slow) << "the deadline's own";

  cancel_root(went_away);
  for (const context& c : {root, middle, leaf}) {
    EXPECT_EQ(c.err(), context_errc::cancelled);
    EXPECT_EQ(c.cause(), went_away);
  }
  EXPECT_EQ(other.cause(), too_slow) << "the first cause stays";
  const auto born_late = with_timeout(root, 1s, too_slow);
  EXPECT_EQ(born_late.ctx.cause(), went_away);
}

// ---- 45: after_func -----------------------------------------------------------------------------

TEST_P(conformance, L45_a_callback_is_called_after_cancel) {
  simulation sim(simulated());
  auto [ctx, cancel] = with_cancel(background());
  int called = 0;
  auto f = after_func(ctx, [&] { ++called; });
  auto g = after_func(with_value(ctx, context_key<int>(), 1), [&] { ++called; });
  sim.run_for(1s);
  EXPECT_EQ(called, 0);
  cancel();
  sim.run_for(1s);
  EXPECT_EQ(called, 2);
  EXPECT_FALSE(f.stop());
  cancel();
  sim.run_for(1s);
  EXPECT_EQ(called, 2);
}

TEST_P(conformance, L45_a_callback_is_called_after_the_deadline) {
  simulation sim(simulated());
  const auto start = sim.now();
  auto [ctx, cancel] = with_timeout(background(), 1s);
  std::optional<time_point> called;
  const auto f = after_func(ctx, [&, c = ctx] {
    called = sim.now();
    EXPECT_EQ(c.err(), context_errc::deadline_exceeded);
  });
  sim.run_for(2s);
  ASSERT_TRUE(called);
  EXPECT_TRUE(on_time(start + 1s, *called));
}

TEST_P(conformance, L45_a_callback_on_a_context_that_is_done_is_called_at_once) {
  simulation sim(simulated());
  auto [ctx, cancel] = with_cancel(background());
  cancel();
  bool called = false;
  auto f = after_func(ctx, [&] { called = true; });
  EXPECT_FALSE(called) << "as a separate task";
  EXPECT_FALSE(f.stop());
  sim.run_for(1ns);
  EXPECT_TRUE(called);
}

TEST_P(conformance, L45_a_callback_that_is_stopped_is_not_called) {
  simulation sim(simulated());
  auto [ctx, cancel] = with_timeout(background(), 1s);
  auto f = after_func(ctx, [] { FAIL(); });
  EXPECT_TRUE(f.stop());
  EXPECT_FALSE(f.stop());
  sim.run_for(2s);
  EXPECT_TRUE(ctx.err());
}

TEST_P(conformance, L45_stop_says_whether_the_callback_is_called_in_a_race) {
  for (const unsigned processors : {1U, 2U, 4U}) {
    runtime rt(live(processors));
    as_default here(rt);
    const int rounds = scale(500, 50);
    std::atomic<int> called{0};
    int stopped = 0;
    {
      std::vector<context_callback> all;
      for (int i = 0; i < rounds; ++i) {
        auto [ctx, cancel] = with_cancel(background());
        all.push_back(after_func(ctx, [&] { ++called; }));
        std::jthread other([&, c = &cancel] { (*c)(); });
        stopped += all.back().stop();
      }
      EXPECT_TRUE(eventually([&] { return called + stopped == rounds; }));
    }
    EXPECT_EQ(called + stopped, rounds);
  }
}

}  // namespace
}  // namespace verge::test
