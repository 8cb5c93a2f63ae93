// SPDX-License-Identifier: Apache-2.0

// Contexts: what is specific to verge. Common behaviour with Go is in conformance/context_test.cc,
// waiting under one in under_test.cc, after_func in context_callback_test.cc, costs in
// context_cost_test.cc, races in context_race_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <verge/context.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/simulation.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include <engine/clockwork.h>
#include <support/as_default.h>
#include <support/contexts.h>
#include <support/engines.h>
#include <support/token.h>

namespace {

using namespace verge;
using namespace std::chrono_literals;
using test::as_default;
using test::is_closed;
using test::token;

const std::error_code out_of_paper = std::make_error_code(std::errc::no_space_on_device);

// ---- Handles ------------------------------------------------------------------------------------

TEST(context, the_background_is_never_done_and_has_nothing) {
  const context c = background();
  EXPECT_FALSE(c.err());
  EXPECT_FALSE(c.cause());
  EXPECT_FALSE(c.deadline());
  EXPECT_FALSE(is_closed(c));
  EXPECT_FALSE(c.stop_token().stop_possible());
  EXPECT_EQ(c, context());
}

TEST(context, is_done_when_it_is_cancelled) {
  auto [ctx, cancel] = with_cancel(background());
  EXPECT_FALSE(ctx.err());
  EXPECT_FALSE(is_closed(ctx));
  cancel();
  EXPECT_EQ(ctx.err(), context_errc::cancelled);
  EXPECT_EQ(ctx.cause(), context_errc::cancelled);
  EXPECT_TRUE(is_closed(ctx));
}

/// Those that are there, and those that come too late, of one that was cancelled or was late.
TEST(context, passes_on_why_it_is_done) {
  const auto why = std::make_error_code(std::errc::address_in_use);
  auto [ctx, cancel] = with_cancel(background());
  auto [child, cancel_child] = with_cancel(ctx);
  auto [below, cancel_below] = with_cancel(child);
  cancel(why);
  auto [late, cancel_late] = with_cancel(ctx);
  for (const context& c : {ctx, child, below, late}) {
    EXPECT_EQ(c.err(), context_errc::cancelled);
    EXPECT_EQ(c.cause(), why);
  }
  auto [timed, cancel_timed] = with_timeout(background(), 0s, why);
  auto [too_late, cancel_too_late] = with_cancel(timed);
  for (const context& c : {timed, too_late}) {
    EXPECT_EQ(c.err(), context_errc::deadline_exceeded);
    EXPECT_EQ(c.cause(), why);
  }
}

TEST(context, has_errors_that_equal_those_of_the_standard) {
  EXPECT_EQ(make_error_code(context_errc::cancelled), std::errc::operation_canceled);
  EXPECT_EQ(make_error_code(context_errc::deadline_exceeded), std::errc::timed_out);
  EXPECT_NE(make_error_code(context_errc::cancelled), std::errc::timed_out);
  EXPECT_STREQ(context_category().name(), "verge.context");
  EXPECT_THAT(context_category().message(1), testing::HasSubstr("cancelled"));
  EXPECT_THAT(context_category().message(2), testing::HasSubstr("deadline"));
  EXPECT_THAT(context_category().message(7), testing::HasSubstr("7"));
}

TEST(context, can_be_cancelled_any_number_of_times_and_the_first_counts) {
  auto [ctx, cancel] = with_cancel_cause(background());
  cancel(out_of_paper);
  cancel();
  cancel(std::make_error_code(std::errc::io_error));
  EXPECT_EQ(ctx.err(), context_errc::cancelled);
  EXPECT_EQ(ctx.cause(), out_of_paper);
}

TEST(canceller, cancels_when_it_is_destroyed) {
  context kept;
  {
    auto [ctx, cancel] = with_cancel(background());
    kept = ctx;
    EXPECT_FALSE(kept.err());
  }
  EXPECT_EQ(kept.err(), context_errc::cancelled);
}

TEST(canceller, cancels_what_it_had_when_it_is_given_another) {
  auto [first, cancel] = with_cancel(background());
  auto [second, other] = with_cancel(background());
  cancel = std::move(other);
  EXPECT_TRUE(first.err());
  EXPECT_FALSE(second.err());
  cancel = canceller();
  EXPECT_TRUE(second.err());
  EXPECT_FALSE(static_cast<bool>(cancel));
  cancel();  // nothing to cancel, nothing happens
}

TEST(canceller, keeps_the_context_when_it_is_detached) {
  simulation sim;
  context ctx;
  {
    cancellable made = with_timeout(background(), 1s);
    made.cancel.detach();
    ctx = made.ctx;
  }
  EXPECT_FALSE(ctx.err());
  sim.run_for(2s);
  EXPECT_EQ(ctx.err(), context_errc::deadline_exceeded);
}

TEST(context, with_the_shortest_timeout_is_not_done_before_that_is_over) {
  simulation sim;
  auto [now, cancel_now] = with_timeout(background(), 0ns);
  auto [past, cancel_past] = with_timeout(background(), -1ns);
  auto [soon, cancel_soon] = with_timeout(background(), 1ns);
  auto [next, cancel_next] = with_timeout(background(), 2ns);
  EXPECT_EQ(now.err(), context_errc::deadline_exceeded);
  EXPECT_EQ(past.err(), context_errc::deadline_exceeded);
  EXPECT_FALSE(soon.err());
  sim.run_for(1ns);
  EXPECT_EQ(soon.err(), context_errc::deadline_exceeded);
  EXPECT_FALSE(next.err());
}

TEST(context, is_cancelled_when_its_last_copy_is_destroyed) {
  simulation sim;
  cancellable made = with_timeout(background(), 1h);
  const auto done = made.ctx.done();
  const std::stop_token stopped = made.ctx.stop_token();
  made.cancel.detach();
  EXPECT_FALSE(done.closed());
  made.ctx = context();
  EXPECT_TRUE(done.closed());
  EXPECT_TRUE(stopped.stop_requested());
}

TEST(context, is_held_by_what_is_derived_from_it) {
  cancellable parent = with_cancel(background());
  const context child = with_value(parent.ctx, context_key<int>(), 1);
  auto [grandchild, cancel] = with_cancel(child);
  parent.ctx = context();
  EXPECT_FALSE(grandchild.err());
  parent.cancel();
  EXPECT_TRUE(grandchild.err());
  EXPECT_TRUE(child.err());
}

// ---- Values -------------------------------------------------------------------------------------

const context_key<std::string> user;
const context_key<std::string> host;
const context_key<int> depth;

TEST(context_value, is_found_by_its_key_and_by_no_other) {
  const context a = with_value(background(), user, "ann");
  const context b = with_value(a, depth, 1);
  auto [c, cancel] = with_cancel(b);
  const context d = with_value(c, depth, 2);
  EXPECT_EQ(background().value(user), nullptr);
  ASSERT_NE(d.value(user), nullptr);
  EXPECT_EQ(*d.value(user), "ann");
  EXPECT_EQ(d.value(host), nullptr) << "of the same type, but another key";
  EXPECT_EQ(*d.value(depth), 2) << "the last one counts";
  EXPECT_EQ(*c.value(depth), 1);
}

TEST(context_value, is_destroyed_with_the_last_context_that_has_it) {
  const context_key<token> key;
  {
    auto [ctx, cancel] = with_cancel(with_value(background(), key, token(7)));
    const context below = with_value(ctx, depth, 1);
    EXPECT_EQ(below.value(key)->number(), 7);
    EXPECT_EQ(token::alive(), 1);
  }
  EXPECT_EQ(token::alive(), 0);
}

TEST(without_cancel, keeps_the_values_and_nothing_else) {
  simulation sim;
  auto [ctx, cancel] = with_timeout(with_value(background(), user, "ann"), 1s);
  const context on = without_cancel(ctx);
  auto [below, cancel_below] = with_cancel(on);
  sim.run_for(2s);
  EXPECT_TRUE(ctx.err());
  EXPECT_FALSE(on.err());
  EXPECT_FALSE(on.deadline());
  EXPECT_FALSE(is_closed(on));
  EXPECT_FALSE(below.err());
  EXPECT_EQ(*on.value(user), "ann");
}

// ---- done() -------------------------------------------------------------------------------------

TEST(done, is_the_same_channel_every_time) {
  auto [ctx, cancel] = with_cancel(background());
  EXPECT_EQ(ctx.done(), ctx.done());
  const context below = with_value(ctx, depth, 1);
  EXPECT_EQ(below.done(), ctx.done());
}

TEST(done, ends_a_receive_and_a_select_in_tasks_and_on_threads) {
  runtime rt({.processors = 2});
  auto [ctx, cancel] = with_cancel(background());
  chan<int> never;
  std::atomic<int> woken{0};
  auto receives = rt.spawn([&, c = ctx]() -> task<> {
    EXPECT_FALSE(co_await recv(c.done()));
    EXPECT_TRUE(c.err());
    ++woken;
  });
  auto selects = rt.spawn([&, c = ctx]() -> task<> {
    EXPECT_EQ(co_await select(recv(never), recv(c.done())), 1u);
    EXPECT_TRUE(c.err());
    ++woken;
  });
  std::jthread waits([&, c = ctx] {
    EXPECT_FALSE(c.done().recv());
    EXPECT_TRUE(c.err());
    ++woken;
  });
  EXPECT_EQ(woken, 0);
  cancel();
  receives.join();
  selects.join();
  waits.join();
  EXPECT_EQ(woken, 3);
}

// ---- std::stop_token ----------------------------------------------------------------------------

TEST(stop_token, is_stopped_when_the_context_is_done) {
  auto [ctx, cancel] = with_cancel(background());
  const std::stop_token t = ctx.stop_token();
  bool called = false;
  std::stop_callback on_stop(t, [&, c = ctx] {
    called = true;
    EXPECT_TRUE(c.err());
    EXPECT_TRUE(is_closed(c));
  });
  EXPECT_TRUE(t.stop_possible());
  EXPECT_FALSE(t.stop_requested());
  cancel();
  EXPECT_TRUE(t.stop_requested());
  EXPECT_TRUE(called);
  EXPECT_TRUE(ctx.stop_token().stop_requested());
}

TEST(stop_token, is_the_same_each_time) {
  auto [ctx, cancel] = with_cancel(background());
  const std::stop_token first = ctx.stop_token();
  const std::stop_token second = ctx.stop_token();
  EXPECT_EQ(first, second);
  cancel();
  EXPECT_TRUE(first.stop_requested());
}

TEST(stop_token, of_a_context_that_is_done_is_stopped) {
  auto [ctx, cancel] = with_cancel(background());
  cancel();
  EXPECT_TRUE(ctx.stop_token().stop_requested());
}

TEST(stop_token, callbacks_run_when_all_beneath_is_done) {
  auto [ctx, cancel] = with_cancel(background());
  auto [child, cancel_child] = with_cancel(ctx);
  auto [grandchild, cancel_grandchild] = with_cancel(child);
  int called = 0;
  std::stop_callback above(ctx.stop_token(), [&, c = grandchild] {
    ++called;
    EXPECT_TRUE(c.err()) << "a callback may wait for it";
  });
  std::stop_callback below(grandchild.stop_token(), [&] { ++called; });
  cancel();
  EXPECT_EQ(called, 2);
}

TEST(stop_token, a_callback_may_drop_the_last_handles) {
  auto made = std::make_unique<cancellable>(with_cancel(background()));
  auto child = std::make_unique<cancellable>(with_cancel(made->ctx));
  std::stop_callback goes(child->ctx.stop_token(), [&] {
    child.reset();
    made.reset();
  });
  made->cancel();
  EXPECT_EQ(made, nullptr);
}

TEST(stop_token, makes_a_context_done) {
  std::stop_source source;
  auto [ctx, cancel] = with_stop_token(background(), source.get_token());
  auto [below, cancel_below] = with_cancel(ctx);
  EXPECT_FALSE(below.err());
  source.request_stop();
  EXPECT_EQ(ctx.err(), context_errc::cancelled);
  EXPECT_TRUE(below.err());
}

TEST(stop_token, that_is_stopped_makes_a_context_that_is_done) {
  std::stop_source source;
  source.request_stop();
  auto [ctx, cancel] = with_stop_token(background(), source.get_token());
  EXPECT_TRUE(ctx.err());
}

TEST(stop_token, does_not_touch_a_context_that_was_freed) {
  std::stop_source source;
  { auto [ctx, cancel] = with_stop_token(background(), source.get_token()); }
  source.request_stop();
}

/// The address sanitizer would find what is left: a callback, and the memory that it is in.
TEST(stop_token, is_dropped_by_a_context_that_is_done_before_it_stops) {
  std::stop_source source;
  { auto [ctx, cancel] = with_stop_token(background(), source.get_token()); }
  auto [ctx, cancel] = with_stop_token(background(), source.get_token());
  cancel();
  EXPECT_TRUE(ctx.err());
}

TEST(stop_token, passes_a_stop_through_a_context) {
  std::stop_source source;
  auto [ctx, cancel] = with_stop_token(background(), source.get_token());
  std::jthread other([t = ctx.stop_token()] {
    while (!t.stop_requested()) std::this_thread::yield();
  });
  source.request_stop();
}

// ---- Ends ---------------------------------------------------------------------------------------

TEST(context, outlives_the_runtime_of_its_deadline) {
  for (const auto& e : test::engines) {
    SCOPED_TRACE(e.name);
    const context_key<token> key;
    cancellable kept;
    cancellable dropped;
    {
      runtime rt({.processors = 1, .engine = e.engine});
      const as_default here(rt);
      const context root = with_value(background(), key, token());
      kept = with_timeout(root, 30s);
      dropped = with_timeout(root, 30s);
    }
    EXPECT_FALSE(kept.ctx.err());
    kept.cancel();
    EXPECT_EQ(kept.ctx.err(), context_errc::cancelled);
  }
  EXPECT_EQ(token::alive(), 0);
}

TEST(context, with_no_time_left_is_done_at_once) {
  const auto none = with_timeout(background(), 0s);
  EXPECT_EQ(none.ctx.err(), context_errc::deadline_exceeded);
  const auto less = with_timeout(background(), -1ns);
  EXPECT_EQ(less.ctx.err(), context_errc::deadline_exceeded);
}

TEST(context, with_the_deadline_of_its_parent_needs_no_timer) {
  runtime rt({.processors = 1});
  const as_default here(rt);
  const auto when = clock::now() + 1h;
  const auto parent = with_deadline(background(), when);
  const auto same = with_deadline(parent.ctx, when);
  const auto later = with_deadline(parent.ctx, when + 1ns);
  EXPECT_EQ(rt.stats().total.timers_live, 1U);
  const auto earlier = with_deadline(parent.ctx, when - 1ns);
  EXPECT_EQ(rt.stats().total.timers_live, 2U);
  EXPECT_EQ(later.ctx.deadline(), when);
}

TEST(context, refuses_a_deadline_that_the_engine_cannot_keep_and_leaves_nothing_behind) {
  simulation sim({.engine = engine::simple_wheel});
  const context_key<token> key;
  const auto nodes = [] { return detail::current_scheduler()->timers().memory().nodes_live; };
  const auto before = nodes();
  {
    const context root = with_value(background(), key, token());
    EXPECT_THAT([&] { auto c = with_timeout(root, 24h); },
                testing::ThrowsMessage<std::invalid_argument>(testing::HasSubstr("the span")));
  }
  EXPECT_EQ(token::alive(), 0);
  EXPECT_EQ(nodes(), before);
}

}  // namespace
