// Contexts: what is theirs alone. What they share with Go's is in conformance/context_test.cc,
// waiting under one in under_test.cc, everybody at once in context_race_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <verge/context.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/simulation.h>
#include <verge/under.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <context/scope.h>
#include <support/allocations.h>
#include <support/as_default.h>
#include <support/engines.h>
#include <support/patience.h>
#include <support/scale.h>
#include <support/thread_state.h>
#include <support/token.h>

namespace {

using namespace verge;
using namespace std::chrono_literals;
using test::as_default;
using test::eventually;
using test::is_asleep;
using test::scale;
using test::token;

const std::error_code out_of_paper = std::make_error_code(std::errc::no_space_on_device);

bool is_closed(const context& c) { return c.done().closed(); }

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

TEST(canceller, cancels_when_it_goes) {
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

TEST(canceller, lets_the_context_go_on_when_it_is_detached) {
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

TEST(context, is_cancelled_when_nobody_holds_it_any_more) {
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
  EXPECT_EQ(d.value(host), nullptr) << "of the same type, and another key";
  EXPECT_EQ(*d.value(depth), 2) << "the last one counts";
  EXPECT_EQ(*c.value(depth), 1);
}

TEST(context_value, goes_when_the_last_context_that_has_it_goes) {
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

TEST(stop_token, leaves_a_context_alone_that_has_gone) {
  std::stop_source source;
  { auto [ctx, cancel] = with_stop_token(background(), source.get_token()); }
  source.request_stop();
}

TEST(stop_token, goes_through_a_context_from_one_side_to_the_other) {
  std::stop_source source;
  auto [ctx, cancel] = with_stop_token(background(), source.get_token());
  std::jthread other([t = ctx.stop_token()] {
    while (!t.stop_requested()) std::this_thread::yield();
  });
  source.request_stop();
}

// ---- after_func ---------------------------------------------------------------------------------

TEST(context_callback, on_the_background_waits_for_ever) {
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

TEST(context_callback, is_not_called_once_its_handle_is_gone) {
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

TEST(context_callback, that_is_detached_is_called_and_goes) {
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

// ---- What it costs ------------------------------------------------------------------------------

/// What f allocates, once everything is warm.
template <class F>
std::size_t allocations_of(F&& f) {
  for (int i = 0; i < 100; ++i) f();
  const std::size_t before = test::allocations();
  f();
  return test::allocations() - before;
}

TEST(context_cost, is_one_allocation_and_no_more) {
  for (const auto& e : test::engines) {
    SCOPED_TRACE(e.name);
    simulation sim({.engine = e.engine});
    auto [parent, cancel_parent] = with_cancel(background());
    EXPECT_EQ(allocations_of([&, p = parent] { auto [ctx, cancel] = with_cancel(p); }), 1u);
    EXPECT_EQ(allocations_of([&, p = parent] {
                auto [ctx, cancel] = with_timeout(p, 1s);
                cancel();
              }),
              1u);
    EXPECT_EQ(allocations_of([&, p = parent] { with_value(p, depth, 1); }), 1u);
    EXPECT_EQ(allocations_of([&, p = parent] { without_cancel(p); }), 1u);
  }
}

TEST(context_cost, of_a_wait_under_it_is_nothing) {
  simulation sim;
  auto [ctx, cancel] = with_cancel(background());
  chan<int> ch(1);
  EXPECT_EQ(
      allocations_of([&, c = ctx] {
        EXPECT_THROW(verge::timeout(under(c, verge::recv(ch)), 1s).wait(), timed_out);
      }),
      allocations_of([&] { EXPECT_THROW(verge::timeout(verge::recv(ch), 1s).wait(), timed_out); }));
}

TEST(context_cost, a_context_that_is_done_is_off_the_tree) {
  simulation sim;
  auto [parent, cancel_parent] = with_cancel(background());
  auto [child, cancel_child] = with_cancel(parent);
  auto [late, cancel_late] = with_timeout(parent, 1s);
  EXPECT_FALSE(parent.scope()->is_leaf());
  cancel_child();
  EXPECT_FALSE(parent.scope()->is_leaf());
  sim.run_for(2s);
  EXPECT_TRUE(late.err());
  EXPECT_TRUE(parent.scope()->is_leaf());
}

TEST(context_cost, of_timers_is_given_back_whatever_becomes_of_the_context) {
  for (const auto& e : test::engines) {
    SCOPED_TRACE(e.name);
    const context_key<token> key;
    runtime rt({.processors = 2, .engine = e.engine});
    const as_default here(rt);
    const int n = scale(20'000, 2'000);
    const context root = with_value(background(), key, token());
    std::vector<cancellable> all;
    for (int i = 0; i < n; ++i) {
      // Some fire, some are cancelled as they fire, some long before, and some just go.
      all.push_back(with_timeout(root, i % 3 == 0 ? 1s : i % 3 * 500us));
      if (i % 5 == 0) all.back().cancel();
      if (i % 7 == 0) all.back().cancel.detach();
      if (i % 11 == 0) all.pop_back();
    }
    all.clear();
    EXPECT_TRUE(eventually([&] { return rt.stats().total.timers_live == 0; }));
  }
  EXPECT_TRUE(eventually([&] { return token::alive() == 0; })) << "a parent is still held";
}

TEST(context_cost, a_chain_of_any_length_is_cancelled_and_ended_without_recursion) {
  const int n = scale(300'000, 50'000);
  cancellable root = with_cancel(background());
  context end = root.ctx;
  for (int i = 0; i < n; ++i) {
    cancellable next = with_cancel(end);
    next.cancel.detach();
    end = i % 2 == 0 ? next.ctx : with_value(next.ctx, depth, i);
  }
  const auto done = end.done();
  root.cancel();
  EXPECT_TRUE(done.closed());
  root = {};
  end = context();
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

TEST(context, refuses_a_deadline_that_the_engine_cannot_keep_and_leaves_nothing_behind) {
  simulation sim({.engine = engine::simple_wheel});
  const context_key<token> key;
  {
    const context root = with_value(background(), key, token());
    EXPECT_THAT([&] { auto c = with_timeout(root, 24h); },
                testing::ThrowsMessage<std::invalid_argument>(testing::HasSubstr("the span")));
  }
  EXPECT_EQ(token::alive(), 0);
}

}  // namespace
