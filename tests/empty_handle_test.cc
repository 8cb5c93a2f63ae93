// SPDX-License-Identifier: Apache-2.0

// One rule for empty handles: they can be moved, assigned to, swapped, tested and destroyed;
// cancelling through one does nothing, as cancelling is allowed any number of times. Everything
// else throws std::logic_error, with a text that says what to do. (Sockets return net_errc::closed,
// as all their errors are error codes: net_test.cc.)

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <utility>

#include <verge/context.h>
#include <verge/task.h>
#include <verge/time.h>

namespace {

using namespace verge;
using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::ThrowsMessage;

const auto refuses = [](const char* text) {
  return ThrowsMessage<std::logic_error>(HasSubstr(text));
};

template <class Handle>
void can_be_moved_and_destroyed() {
  Handle a;
  EXPECT_FALSE(a);
  Handle b = std::move(a);
  a = std::move(b);
  a.swap(b);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): that is the point
}

TEST(empty_handle, can_be_moved_asked_and_destroyed) {
  can_be_moved_and_destroyed<timer>();
  can_be_moved_and_destroyed<ticker>();
  can_be_moved_and_destroyed<canceller>();
  can_be_moved_and_destroyed<context_callback>();
  can_be_moved_and_destroyed<join_handle<int>>();
  can_be_moved_and_destroyed<task<int>>();
}

TEST(empty_handle, of_a_timer_throws) {
  timer t;
  EXPECT_THAT([&] { t.stop(); }, refuses("it was never given one"));
  EXPECT_THAT([&] { t.reset(1s); }, refuses("it was never given one"));
  EXPECT_THAT([&] { t.reset_at(clock::now()); }, refuses("it was never given one"));
  EXPECT_THAT([&] { t.detach(); }, refuses("it was never given one"));
  EXPECT_THAT([&] { t.c(); }, refuses("it was never given one"));
}

TEST(empty_handle, of_a_timer_that_was_detached_throws) {
  timer t = after_func(1h, [] {});
  t.detach();
  EXPECT_FALSE(t);
  EXPECT_THROW(t.stop(), std::logic_error);
  EXPECT_THROW(t.detach(), std::logic_error);
}

TEST(empty_handle, of_a_ticker_throws) {
  ticker t;
  EXPECT_THAT([&] { t.stop(); }, refuses("it was never given one"));
  EXPECT_THAT([&] { t.reset(1s); }, refuses("it was never given one"));
  EXPECT_THAT([&] { t.detach(); }, refuses("it was never given one"));
  EXPECT_THAT([&] { t.c(); }, refuses("it was never given one"));
}

TEST(empty_handle, cancels_nothing) {
  join_handle<>().cancel();
  canceller()();
  canceller()(make_error_code(context_errc::cancelled));
  static_assert(noexcept(join_handle<>().cancel())&& noexcept(canceller()()));
}

TEST(empty_handle, of_a_canceller_throws) {
  canceller c;
  EXPECT_THAT([&] { c.detach(); }, refuses("this canceller is empty"));
}

TEST(empty_handle, of_a_contexts_callback_throws) {
  context_callback c;
  EXPECT_THAT([&] { c.stop(); }, refuses("this context_callback is empty"));
  EXPECT_THAT([&] { c.detach(); }, refuses("this context_callback is empty"));
}

TEST(empty_handle, of_a_task_throws) {
  join_handle<> h;
  EXPECT_FALSE(h.done());
  EXPECT_THAT([&] { h.join(); }, refuses("this join_handle has no task"));
  EXPECT_THAT([&] { h.detach(); }, refuses("this join_handle has no task"));
  EXPECT_THAT([&] { go(task<>()).detach(); }, refuses("this task is empty"));
}

}  // namespace
