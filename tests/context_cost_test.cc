// SPDX-License-Identifier: Apache-2.0

// The cost of contexts: allocations, timers, places in the tree, stack.

#include <gtest/gtest.h>
#include <verge/context.h>
#include <verge/runtime.h>
#include <verge/simulation.h>
#include <verge/timeout.h>
#include <verge/under.h>

#include <chrono>
#include <vector>

#include <context/scope.h>
#include <support/allocations.h>
#include <support/as_default.h>
#include <support/engines.h>
#include <support/patience.h>
#include <support/scale.h>
#include <support/token.h>

namespace {

using namespace verge;
using namespace std::chrono_literals;
using test::as_default;
using test::eventually;
using test::scale;
using test::token;

const context_key<int> depth;

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
    EXPECT_EQ(allocations_of([&, p = parent] { static_cast<void>(with_value(p, depth, 1)); }), 1u);
    EXPECT_EQ(allocations_of([&, p = parent] { static_cast<void>(without_cancel(p)); }), 1u);
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
  EXPECT_FALSE(detail::context_access::scope(parent)->is_leaf());
  cancel_child();
  EXPECT_FALSE(detail::context_access::scope(parent)->is_leaf());
  sim.run_for(2s);
  EXPECT_TRUE(late.err());
  EXPECT_TRUE(detail::context_access::scope(parent)->is_leaf());
}

TEST(context_cost, of_timers_is_freed_however_the_context_ends) {
  for (const auto& e : test::engines) {
    SCOPED_TRACE(e.name);
    const context_key<token> key;
    runtime rt({.processors = 2, .engine = e.engine});
    const as_default here(rt);
    const int n = scale(20'000, 2'000);
    const context root = with_value(background(), key, token());
    std::vector<cancellable> all;
    for (int i = 0; i < n; ++i) {
      // Some fire, some are cancelled as they fire, some long before, and some are only destroyed.
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

}  // namespace
