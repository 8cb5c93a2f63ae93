// SPDX-License-Identifier: Apache-2.0

// Channels: order, blocking, closing, both ends, and misuse, one step after the other. Many tasks
// and threads on them at once are in chan_crowd_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <verge/chan.h>
#include <verge/runtime.h>
#include <verge/task.h>
#include "support/allocations.h"
#include "support/patience.h"
#include "support/stepper.h"
#include "support/thread_state.h"
#include "support/token.h"

namespace {

using namespace verge;
using test::allocations;
using test::stepper;
using test::token;
using testing::ElementsAre;
using testing::HasSubstr;

task<void> send_all(sender<int> to, int first, int last) {
  for (int i = first; i < last; ++i) co_await verge::send(to, i);
}

task<void> receive_into(receiver<int> from, std::vector<int>& to) {
  while (auto v = co_await verge::recv(from)) to.push_back(*v);
}

// ---- Values and their order ---------------------------------------------------------------------

TEST(chan, delivers_values_in_the_order_they_were_sent) {
  chan<int> ch(3);
  ch.send(1);
  ch.send(2);
  EXPECT_EQ(ch.recv(), 1);
  ch.send(3);
  ch.send(4);  // the ring wraps
  EXPECT_EQ(ch.size(), 3u);
  EXPECT_EQ(ch.capacity(), 3u);
  EXPECT_EQ(ch.recv(), 2);
  EXPECT_EQ(ch.recv(), 3);
  EXPECT_EQ(ch.recv(), 4);
  EXPECT_EQ(ch.size(), 0u);
}

TEST(chan, makes_a_sender_wait_while_it_is_full) {
  stepper s;
  chan<int> ch(2);
  auto h = go(send_all, sender<int>(ch), 0, 5);
  s.run();
  EXPECT_FALSE(h.done());
  EXPECT_EQ(ch.size(), 2u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(ch.recv(), i);
  h.join();
}

TEST(chan, makes_a_receiver_wait_while_it_is_empty) {
  stepper s;
  chan<int> ch(2);
  std::vector<int> got;
  auto h = go([&]() -> task<void> { co_await receive_into(ch, got); });
  s.run();
  EXPECT_FALSE(h.done());
  ch.send(1);
  ch.send(2);
  ch.send(3);
  s.run();
  EXPECT_THAT(got, ElementsAre(1, 2, 3));
  ch.close();
  h.join();
}

TEST(unbuffered_chan, makes_sender_and_receiver_meet) {
  stepper s;
  chan<int> ch;
  EXPECT_EQ(ch.capacity(), 0u);
  EXPECT_FALSE(ch.try_send(1)) << "no receiver waits";
  EXPECT_EQ(ch.try_recv(), std::nullopt);
  auto h = go(send_all, sender<int>(ch), 7, 8);
  s.run();
  EXPECT_FALSE(h.done());
  EXPECT_EQ(ch.size(), 0u);
  EXPECT_EQ(ch.try_recv(), 7);
  s.run();
  EXPECT_TRUE(h.done());
}

TEST(chan, serves_receivers_in_the_order_they_came) {
  stepper s;
  chan<int> ch;
  std::vector<std::string> got;
  auto take = [&](std::string name) -> task<void> {
    auto v = co_await verge::recv(ch);
    got.push_back(name + std::to_string(*v));
  };
  for (const char* name : {"a", "b", "c"}) go(take, name).detach();
  s.run();
  for (int i = 0; i < 3; ++i) {
    ch.send(i);
    s.run();
  }
  EXPECT_THAT(got, ElementsAre("a0", "b1", "c2"));
}

TEST(chan, serves_senders_in_the_order_they_came) {
  for (const std::size_t capacity : {0, 1}) {
    stepper s;
    chan<int> ch(capacity);
    for (int i = 0; i < 4; ++i) go(send_all, sender<int>(ch), i, i + 1).detach();
    s.run();
    for (int i = 0; i < 4; ++i) EXPECT_EQ(ch.recv(), i);
  }
}

TEST(chan, passes_a_value_directly_to_a_waiting_receiver) {
  stepper s;
  chan<int> ch(1);
  int got = 0;
  go([&]() -> task<void> { got = *co_await verge::recv(ch); }).detach();
  s.run();
  ch.send(5);
  EXPECT_EQ(ch.size(), 0u) << "the value is not in the ring: another receiver could take it there";
  s.run();
  EXPECT_EQ(got, 5);
}

TEST(chan, runs_the_receiver_of_a_value_next) {
  stepper s;
  chan<int> ch;
  std::vector<std::string> order;
  go([&]() -> task<void> {
    co_await verge::recv(ch);
    order.emplace_back("receiver");
  }).detach();
  s.run();
  go([&] { order.emplace_back("other"); }).detach();
  ch.send(1);
  s.run();
  EXPECT_THAT(order, ElementsAre("receiver", "other"));
}

TEST(chan, moves_values_and_never_copies_them) {
  stepper s;
  for (const std::size_t capacity : {0, 1, 5}) {
    chan<std::unique_ptr<int>> ch(capacity);
    auto h = go(
        [](auto to) -> task<void> {
          for (int i = 0; i < 10; ++i) co_await verge::send(to, std::make_unique<int>(i));
        },
        ch);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(**ch.recv(), i);
    h.join();
  }
}

TEST(chan, makes_no_more_and_no_fewer_values_than_are_sent) {
  {
    stepper s;
    chan<token> ch(2);
    auto h = go(
        [](chan<token> to) -> task<void> {
          for (int i = 0; i < 6; ++i) co_await verge::send(to, token(i));
        },
        ch);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(ch.recv()->number(), i);
    s.run();
    EXPECT_EQ(ch.size(), 2u);
    EXPECT_FALSE(h.done());
  }
  EXPECT_EQ(token::alive(), 0) << "values in the ring, and one whose sender waited";
}

TEST(chan, can_carry_what_is_aligned_more_than_memory_is) {
  struct alignas(64) wide {
    std::string text;
  };
  chan<wide> ch(3);
  for (int i = 0; i < 3; ++i) ch.send(wide{"x"});
  for (int i = 0; i < 3; ++i) {
    auto v = ch.recv();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&*v) % 64, 0u);
    EXPECT_EQ(v->text, "x");
  }
}

TEST(chan, allocates_when_it_is_made_and_never_again) {
  stepper s;
  auto before = allocations();
  chan<int> ch(4);
  EXPECT_EQ(allocations() - before, 1u);
  chan<int> unbuffered;
  std::size_t during = 0;
  auto h = go([&]() -> task<void> {
    for (int i = 0; i < 100; ++i) {
      co_await verge::send(ch, i);
      co_await verge::recv(ch);
      co_await verge::send(unbuffered, i);
    }
  });
  s.run();
  before = allocations();
  for (int i = 0; i < 100; ++i) unbuffered.recv();
  during = allocations() - before;
  h.join();
  EXPECT_LE(during, 2u) << "the scheduler of this test may let its queue grow; a channel may not";
}

// ---- try_send, try_recv -------------------------------------------------------------------------

TEST(try_send, leaves_the_value_alone_if_there_is_no_room) {
  chan<std::unique_ptr<int>> ch(1);
  auto a = std::make_unique<int>(1);
  auto b = std::make_unique<int>(2);
  EXPECT_TRUE(ch.try_send(std::move(a)));
  EXPECT_FALSE(ch.try_send(std::move(b)));
  EXPECT_EQ(a, nullptr);  // NOLINT(bugprone-use-after-move): that is the point
  ASSERT_NE(b, nullptr);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(**ch.try_recv(), 1);
  EXPECT_FALSE(ch.try_recv().has_value());
}

TEST(try_send, copies_what_can_be_copied) {
  chan<std::string> ch(1);
  const std::string text = "a text that is too long for the string itself";
  EXPECT_TRUE(ch.try_send(text));
  EXPECT_EQ(ch.try_recv(), text);
}

TEST(try_recv, lets_a_waiting_sender_proceed) {
  stepper s;
  chan<int> ch(1);
  auto h = go(send_all, sender<int>(ch), 0, 3);
  s.run();
  EXPECT_EQ(ch.try_recv(), 0);
  EXPECT_EQ(ch.size(), 1u) << "the next value took the place at once";
  s.run();
  EXPECT_EQ(ch.try_recv(), 1);
  EXPECT_EQ(ch.try_recv(), 2);
  EXPECT_EQ(ch.try_recv(), std::nullopt);
  h.join();
}

// ---- Closing ------------------------------------------------------------------------------------

TEST(closed_chan, delivers_what_was_sent_before_and_then_nothing) {
  chan<int> ch(3);
  ch.send(1);
  ch.send(2);
  EXPECT_FALSE(ch.closed());
  ch.close();
  EXPECT_TRUE(ch.closed());
  EXPECT_EQ(ch.recv(), 1);
  EXPECT_EQ(ch.try_recv(), 2);
  EXPECT_EQ(ch.recv(), std::nullopt);
  EXPECT_EQ(ch.recv(), std::nullopt);
  EXPECT_EQ(ch.try_recv(), std::nullopt);
}

TEST(closed_chan, wakes_every_receiver_with_nothing) {
  stepper s;
  chan<int> ch;
  std::vector<join_handle<bool>> waiting;
  for (int i = 0; i < 5; ++i)
    waiting.push_back(
        go([&]() -> task<bool> { co_return (co_await verge::recv(ch)).has_value(); }));
  s.run();
  ch.close();
  for (auto& h : waiting) EXPECT_FALSE(h.join());
}

TEST(closed_chan, throws_in_every_sender) {
  stepper s;
  chan<token> ch(1);
  std::vector<join_handle<void>> waiting;
  for (int i = 0; i < 5; ++i)
    waiting.push_back(go([&](int n) -> task<void> { co_await verge::send(ch, token(n)); }, i));
  s.run();
  ch.close();
  waiting[0].join();  // this one's value was in the channel before
  for (std::size_t i = 1; i < waiting.size(); ++i) EXPECT_THROW(waiting[i].join(), chan_closed);
  EXPECT_EQ(ch.recv()->number(), 0);
  EXPECT_FALSE(ch.recv().has_value());
  EXPECT_EQ(token::alive(), 0);
}

TEST(closed_chan, takes_no_more_values_and_says_what_to_do) {
  chan<int> ch(1);
  ch.close();
  EXPECT_FALSE(ch.try_send(1));
  try {
    ch.send(1);
    FAIL() << "sent";
  } catch (const chan_closed& e) {
    EXPECT_THAT(e.what(), HasSubstr("close a channel only when every sender is done"));
  }
  EXPECT_THROW(verge::send(ch, 1).wait(), std::logic_error);
  EXPECT_THROW(ch.close(), chan_closed);
}

TEST(chan, can_be_walked_through_until_it_is_closed) {
  runtime rt({.processors = 1});
  chan<int> ch(2);
  rt.spawn([&]() -> task<void> {
      co_await send_all(ch, 0, 10);
      ch.close();
    }).detach();
  std::vector<int> got;
  for (int n : ch) got.push_back(n);
  EXPECT_EQ(got.size(), 10u);
  EXPECT_TRUE(std::is_sorted(got.begin(), got.end()));
}

TEST(chan, can_be_walked_through_when_its_values_only_move) {
  chan<token> ch(2);
  ch.send(token(1));
  ch.send(token(2));
  ch.close();
  int sum = 0;
  for (const token& t : receiver<token>(ch)) sum += t.number();
  EXPECT_EQ(sum, 3);
}

// ---- Handles ------------------------------------------------------------------------------------

TEST(chan_handle, means_the_same_channel_when_it_is_copied) {
  chan<int> a(1);
  chan<int> b = a;
  sender<int> to = a;
  receiver<int> from = b;
  EXPECT_TRUE(a == b);
  EXPECT_TRUE(to == from);
  EXPECT_FALSE(a == chan<int>(1));
  to.send(5);
  EXPECT_EQ(from.recv(), 5);
}

TEST(chan_handle, that_is_assigned_means_the_other_channel_and_lets_go_of_its_own) {
  const chan<int> a(1);
  const chan<int> b(1);
  receiver<int> from = a;
  sender<int> to = a;
  to = sender<int>(b);
  const receiver<int> of_b = b;
  from = of_b;
  EXPECT_TRUE(to.try_send(7));
  EXPECT_EQ(a.size(), 0U);
  EXPECT_EQ(from.try_recv(), 7);
  const sender<int> to_a = a;
  to = to_a;
  auto& itself = to;
  to = itself;
  EXPECT_TRUE(to.try_send(8));
  EXPECT_EQ(receiver<int>(a).try_recv(), 8);
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = kept;
  chan<std::shared_ptr<int>> full(1);
  full.try_send(std::move(kept));
  const chan<std::shared_ptr<int>> other(1);
  full = other;
  EXPECT_TRUE(watch.expired()) << "that was the last handle of its channel";
}

TEST(chan_handle, keeps_the_channel_while_one_is_left) {
  receiver<token> from;
  EXPECT_FALSE(from);
  {
    chan<token> ch(1);
    ch.send(token(9));
    from = ch;
  }
  EXPECT_EQ(token::alive(), 1);
  EXPECT_EQ(from.recv()->number(), 9);
}

TEST(chan_handle, may_be_a_temporary_in_a_wait) {
  stepper s;
  auto closed = [] {
    chan<int> ch;
    ch.close();
    return ch;
  };
  auto h = go([&]() -> task<bool> { co_return (co_await verge::recv(closed())).has_value(); });
  EXPECT_FALSE(h.join());
  auto later = verge::recv(closed());
  EXPECT_FALSE(later.wait().has_value()) << "the operation keeps its channel";
}

TEST(chan_handle, without_a_channel_throws) {
  chan<int> ch(1);
  const chan<int> moved = std::move(ch);
  // NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): the subject
  EXPECT_FALSE(ch);
  EXPECT_THROW(ch.send(1), std::logic_error);
  EXPECT_THROW(ch.recv(), std::logic_error);
  EXPECT_THROW(ch.try_recv(), std::logic_error);
  EXPECT_THROW(ch.try_send(1), std::logic_error);
  EXPECT_THROW(ch.close(), std::logic_error);
  EXPECT_THROW(static_cast<void>(ch.size()), std::logic_error);
  EXPECT_THROW(verge::recv(ch).wait(), std::logic_error);
  EXPECT_THROW(verge::send(ch, 1).wait(), std::logic_error);
  // NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
  EXPECT_THROW(receiver<int>().recv(), std::logic_error);
  try {
    chan<int>(nullptr).close();
    FAIL() << "closed";
  } catch (const std::logic_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("this handle has no channel"));
  }
}

TEST(chan, cannot_be_larger_than_memory) {
  EXPECT_THROW(chan<int>(static_cast<std::size_t>(-1)), std::invalid_argument);
  EXPECT_THROW(chan<int>(SIZE_MAX / 4), std::invalid_argument);
}

// ---- The internal interface of timers -----------------------------------------------------------

TEST(chan_state, can_be_filled_and_emptied_under_its_lock) {
  stepper s;
  chan<int> ch(1);
  auto& state = detail::chan_access::state(ch);
  int v = 1;
  state.lock();
  EXPECT_FALSE(state.drain_locked());
  EXPECT_EQ(state.try_send_locked(v).what, detail::chan_step::done);
  v = 2;
  EXPECT_EQ(state.try_send_locked(v).what, detail::chan_step::would_block);
  EXPECT_TRUE(state.drain_locked());
  state.unlock();
  EXPECT_EQ(ch.try_recv(), std::nullopt);

  auto h = go([&]() -> task<int> { co_return *co_await verge::recv(ch); });
  s.run();
  state.lock();
  const auto step = state.try_send_locked(v);
  state.unlock();
  ASSERT_NE(step.to_wake, nullptr) << "a receiver waits for it";
  step.to_wake->wake();
  EXPECT_EQ(h.join(), 2);
}

/// Another thread has its lock: it waits for that, in every way in which a channel is closed.
TEST(a_channel_that_is_closed, is_locked) {
  using state = verge::detail::chan_state<int>;
  for (const bool in_silence : {false, true}) {
    state* const c = state::make(1);
    c->lock();
    std::atomic<pid_t> id{0};
    std::atomic<bool> closed{false};
    std::thread other([&] {
      id = ::gettid();
      if (in_silence) {
        EXPECT_EQ(c->close_in_silence(), nullptr);
      } else {
        c->close();
      }
      closed = true;
    });
    EXPECT_TRUE(
        verge::test::eventually([&] { return closed || (id != 0 && verge::test::is_asleep(id)); }));
    EXPECT_FALSE(closed);
    c->unlock();
    other.join();
    state::drop(c);
  }
}

}  // namespace
