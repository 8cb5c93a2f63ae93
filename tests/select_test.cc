// SPDX-License-Identifier: Apache-2.0

// select: which case takes place, what happens to the others, fairness, and concurrency.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <verge/chan.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/task.h>
#include "support/allocations.h"
#include "support/scale.h"
#include "support/stepper.h"
#include "support/token.h"

namespace {

using namespace verge;
using test::allocations;
using test::stepper;
using test::token;
using testing::ElementsAre;

const auto unexpected = [] { FAIL() << "this case must not take place"; };

// ---- One case takes place -----------------------------------------------------------------------

TEST(select, receives_from_the_channel_that_has_something) {
  chan<int> a(1);
  chan<std::string> b(1);
  b.send("here");
  std::optional<std::string> got;
  const auto index =
      select(verge::recv(a, unexpected),
             verge::recv(b, [&](std::optional<std::string> v) { got = std::move(v); }))
          .wait();
  EXPECT_EQ(index, 1u);
  EXPECT_EQ(got, "here");
}

TEST(select, sends_to_the_channel_that_has_room) {
  chan<int> full(1);
  chan<int> room(1);
  full.send(0);
  bool sent = false;
  const auto index = select(verge::send(full, 1, unexpected),  //
                            verge::send(room, 2, [&] { sent = true; }))
                         .wait();
  EXPECT_EQ(index, 1u);
  EXPECT_TRUE(sent);
  EXPECT_EQ(full.size(), 1u);
  EXPECT_EQ(room.recv(), 2);
}

TEST(select, waits_until_one_of_its_channels_is_ready_in_a_coroutine) {
  stepper s;
  chan<int> a;
  chan<int> b;
  auto h = go([&]() -> task<int> {
    int got = 0;
    co_await verge::select(verge::recv(a, [&](std::optional<int> v) { got = *v; }),
                           verge::recv(b, [&](std::optional<int> v) { got = 10 * *v; }));
    co_return got;
  });
  s.run();
  EXPECT_FALSE(h.done());
  EXPECT_STREQ(s.live()[0]->waiting_for, "select");
  b.send(5);
  EXPECT_EQ(h.join(), 50);
  EXPECT_FALSE(a.try_send(1)) << "it still waits at the other channel";
}

TEST(select, waits_until_one_of_its_channels_is_ready_on_a_thread) {
  chan<int> a;
  chan<int> b;
  std::thread other([&] { b.send(3); });
  int got = 0;
  EXPECT_EQ(
      select(verge::recv(a, unexpected), verge::recv(b, [&](std::optional<int> v) { got = *v; }))
          .wait(),
      1u);
  EXPECT_EQ(got, 3);
  other.join();
  EXPECT_FALSE(a.try_send(1)) << "it still waits at the other channel";
}

TEST(select, needs_no_handlers) {
  chan<int> a(1);
  chan<int> b(1);
  EXPECT_EQ(select(verge::recv(a), verge::send(b, 7)).wait(), 1u);
  EXPECT_EQ(select(verge::recv(b), verge::recv(a)).wait(), 0u);
}

TEST(select, accepts_handlers_that_ignore_the_value) {
  chan<int> a(1);
  a.send(1);
  bool called = false;
  select(verge::recv(a, [&] { called = true; })).wait();
  EXPECT_TRUE(called);
}

TEST(select, receives_into_a_variable) {
  stepper s;
  chan<int> numbers;
  chan<int> stop;
  auto h = go([&]() -> task<int> {
    int sum = 0;
    std::optional<int> n;
    while (co_await verge::select(verge::recv(numbers, n), verge::recv(stop)) == 0) sum += *n;
    co_return sum;
  });
  for (int i = 1; i <= 4; ++i) numbers.send(i);
  stop.close();
  EXPECT_EQ(h.join(), 10);
}

TEST(select, runs_its_handler_where_it_was_called) {
  stepper s;
  chan<int> ch;
  const detail::job* inside = nullptr;
  auto h = go([&]() -> task<void> {
    co_await verge::select(verge::recv(ch, [&] { inside = detail::current_job(); }));
  });
  s.run();
  const detail::job* const job = s.live()[0];
  ch.send(1);
  h.join();
  EXPECT_EQ(inside, job);
}

TEST(select, propagates_its_handlers_exceptions) {
  stepper s;
  chan<int> ch(1);
  ch.send(1);
  EXPECT_THROW(select(verge::recv(ch, [] { throw std::runtime_error("x"); })).wait(),
               std::runtime_error);
  auto h = go([&]() -> task<void> {
    co_await verge::select(verge::recv(ch, [] { throw std::runtime_error("x"); }));
  });
  ch.send(2);
  EXPECT_THROW(h.join(), std::runtime_error);
}

// ---- Cases without a channel --------------------------------------------------------------------

TEST(select, a_case_without_a_channel_is_never_ready) {
  chan<int> ready(1);
  ready.send(7);
  const chan<int> none(nullptr);
  std::optional<int> got;
  EXPECT_EQ(select(verge::recv(receiver<int>(), unexpected), verge::send(none, 1, unexpected),
                   verge::recv(ready, got), verge::recv(none))
                .wait(),
            2u);
  EXPECT_EQ(got, 7);
  EXPECT_EQ(select(verge::recv(none, unexpected), otherwise()).wait(), 1u);
}

TEST(select, waits_with_a_case_without_a_channel) {
  stepper s;
  chan<int> a;
  auto h = go([&]() -> task<std::size_t> {
    co_return co_await verge::select(verge::recv(receiver<int>()), verge::recv(a),
                                     verge::send(chan<int>(nullptr), 1));
  });
  s.run();
  EXPECT_FALSE(h.done());
  a.send(1);
  EXPECT_EQ(h.join(), 1u);
}

TEST(select, with_only_cases_without_a_channel_waits_until_it_is_cancelled) {
  stepper s;
  auto h = go([]() -> task<> { co_await verge::select(verge::recv(receiver<int>())); });
  s.run();
  EXPECT_FALSE(h.done());
  h.cancel();
  s.run();
  EXPECT_THROW(h.join(), cancelled);
}

// ---- otherwise ----------------------------------------------------------------------------------

TEST(select, does_otherwise_if_nothing_is_ready) {
  chan<int> a;
  chan<int> b(1);
  bool idle = false;
  EXPECT_EQ(select(verge::recv(a, unexpected), otherwise([&] { idle = true; }),
                   verge::recv(b, unexpected))
                .wait(),
            1u);
  EXPECT_TRUE(idle);
  EXPECT_FALSE(a.try_send(1)) << "it has not waited";
  EXPECT_EQ(select(otherwise()).wait(), 0u);
}

TEST(select, does_not_do_otherwise_if_something_is_ready) {
  chan<int> a(1);
  a.send(1);
  EXPECT_EQ(select(otherwise(unexpected), verge::recv(a)).wait(), 1u);
}

TEST(select, counts_its_cases_as_they_are_written) {
  chan<int> a;
  chan<int> b(1);
  b.send(1);
  EXPECT_EQ(select(otherwise(), verge::recv(a), verge::recv(b)).wait(), 2u);
  b.send(1);
  EXPECT_EQ(select(verge::recv(b), otherwise(), verge::recv(a)).wait(), 0u);
}

// ---- Closed channels ----------------------------------------------------------------------------

TEST(select, receives_nothing_from_a_closed_channel_at_once) {
  chan<int> a;
  chan<int> done;
  done.close();
  std::optional<int> got = 1;
  EXPECT_EQ(select(verge::recv(a, unexpected), verge::recv(done, got)).wait(), 1u);
  EXPECT_EQ(got, std::nullopt);
}

TEST(select, is_woken_when_a_channel_is_closed) {
  stepper s;
  chan<int> a;
  chan<int> done;
  auto h = go([&]() -> task<std::size_t> {
    co_return co_await verge::select(verge::recv(a), verge::recv(done));
  });
  s.run();
  done.close();
  EXPECT_EQ(h.join(), 1u);
}

TEST(select, throws_if_the_send_it_chose_finds_the_channel_closed) {
  stepper s;
  chan<int> a;
  chan<int> to;
  auto h = go([&]() -> task<void> {
    co_await verge::select(verge::recv(a), verge::send(to, 1, unexpected));
  });
  s.run();
  to.close();
  EXPECT_THROW(h.join(), chan_closed);
  EXPECT_THROW(select(verge::send(to, 1)).wait(), chan_closed);
}

// ---- Special cases ------------------------------------------------------------------------------

TEST(select, may_name_a_channel_more_than_once) {
  stepper s;
  chan<int> ch;
  std::vector<int> got;
  auto h = go([&]() -> task<void> {
    const auto note = [&](std::optional<int> v) { got.push_back(*v); };
    for (int i = 0; i < 3; ++i)
      co_await verge::select(verge::recv(ch, note), verge::recv(ch, note), verge::recv(ch, note));
  });
  for (int i = 0; i < 3; ++i) ch.send(i);
  h.join();
  EXPECT_THAT(got, ElementsAre(0, 1, 2));
  EXPECT_FALSE(ch.try_send(1)) << "it still waits";
}

TEST(select, does_not_send_to_itself) {
  stepper s;
  chan<int> ch;
  auto h = go([&]() -> task<std::size_t> {
    co_return co_await verge::select(verge::send(ch, 1), verge::recv(ch));
  });
  s.run();
  EXPECT_FALSE(h.done());
  EXPECT_EQ(ch.try_recv(), 1);
  EXPECT_EQ(h.join(), 0u);
}

TEST(select, can_meet_another_select) {
  stepper s;
  chan<int> a;
  chan<int> b;
  auto left = go([&]() -> task<std::size_t> {
    co_return co_await verge::select(verge::send(a, 1), verge::recv(b));
  });
  auto right = go([&]() -> task<std::size_t> {
    co_return co_await verge::select(verge::recv(a), verge::send(b, 2));
  });
  EXPECT_EQ(left.join(), right.join());
}

TEST(select, without_cases_waits_forever_and_can_be_cancelled) {
  stepper s;
  auto h = go([]() -> task<void> { co_await verge::select(); });
  s.run();
  EXPECT_FALSE(h.done());
  EXPECT_STREQ(s.live()[0]->waiting_for, "select without cases, so forever");
  h.cancel();
  EXPECT_THROW(h.join(), cancelled);
}

TEST(select, moves_values_and_leaves_none_behind) {
  {
    stepper s;
    chan<token> a;
    chan<token> b;
    int got = 0;
    auto h = go([&]() -> task<void> {
      co_await verge::select(verge::send(a, token(1)), verge::send(b, token(2)));
    });
    s.run();
    select(verge::recv(b, [&](std::optional<token> v) { got = v.value().number(); })).wait();
    h.join();
    EXPECT_EQ(got, 2);
    EXPECT_EQ(token::alive(), 0) << "the value that was not sent is destroyed as well";
    go([&]() -> task<void> {
      co_await verge::select(verge::send(a, token(1)), verge::recv(b));
    }).detach();
    s.run();
  }
  EXPECT_EQ(token::alive(), 0);
}

TEST(select, allocates_nothing) {
  stepper s;
  chan<int> a;
  chan<int> b(1);
  auto h = go([&]() -> task<void> {
    for (int i = 0; i < 100; ++i) {
      co_await verge::select(verge::recv(a, [] {}), verge::recv(b, [](std::optional<int>) {}),
                             verge::send(a, 1));
    }
  });
  s.run();
  const auto before = allocations();
  for (int i = 0; i < 100; ++i) {
    select(verge::send(b, i, [] {}), otherwise([] {})).wait();
    s.run();
  }
  EXPECT_LE(allocations() - before, 2u) << "the stepper's queue may grow; a select may not";
  h.join();
}

// ---- Fairness -----------------------------------------------------------------------------------

// With n choices of equal probability out of k, a count is off by more than five standard
// deviations once in a million runs; the seed is fixed, so it is either never or always.
void expect_even(const std::vector<int>& counts, int n) {
  const double k = static_cast<double>(counts.size());
  const double expected = n / k;
  const double deviation = std::sqrt(n * (1 / k) * (1 - 1 / k));
  for (std::size_t i = 0; i < counts.size(); ++i)
    EXPECT_NEAR(counts[i], expected, 5 * deviation) << "case " << i << " of " << counts.size();
}

TEST(select, chooses_each_ready_case_equally_often) {
  stepper s(42);
  const int n = 10'000;
  std::array<chan<int>, 4> ch{chan<int>(1), chan<int>(1), chan<int>(1), chan<int>(1)};
  std::vector<int> counts(4);
  for (auto& c : ch) c.send(0);
  for (int i = 0; i < n; ++i) {
    const auto index =
        select(verge::recv(ch[0]), verge::recv(ch[1]), verge::recv(ch[2]), verge::recv(ch[3]))
            .wait();
    ++counts[index];
    ch[index].send(0);
  }
  expect_even(counts, n);
}

// The ready cases are adjacent among others that are not ready: a scan from a random position would
// choose the first of them more often.
TEST(select, chooses_equally_among_the_ready_ones_at_any_position) {
  stepper s(43);
  const int n = 10'000;
  chan<int> never;
  chan<int> closed;
  closed.close();
  std::vector<int> counts(6);
  for (int i = 0; i < n; ++i) {
    ++counts[select(verge::recv(never), verge::recv(never), verge::recv(closed),
                    verge::recv(closed), verge::recv(never), verge::recv(closed))
                 .wait()];
  }
  EXPECT_EQ(counts[0] + counts[1] + counts[4], 0);
  expect_even({counts[2], counts[3], counts[5]}, n);
}

TEST(select, makes_the_same_choices_for_the_same_seed) {
  const auto choices = [](std::uint64_t seed) {
    stepper s(seed);
    chan<int> closed;
    closed.close();
    std::vector<std::size_t> made;
    for (int i = 0; i < 50; ++i)
      made.push_back(select(verge::recv(closed), verge::recv(closed), verge::recv(closed)).wait());
    return made;
  };
  EXPECT_EQ(choices(7), choices(7));
  EXPECT_NE(choices(7), choices(8));
}

// ---- Many at once -------------------------------------------------------------------------------

// Every task selects over the same channels, in either direction, so that selects meet selects.
TEST(selects_in_a_crowd, deliver_every_value_exactly_once) {
  const int parties = 4;
  const int each = test::scale(20'000, 2'000);
  std::array<chan<int>, 3> ch{chan<int>(0), chan<int>(0), chan<int>(2)};
  std::vector<std::atomic<int>> seen(static_cast<std::size_t>(parties * each));
  const auto note = [&](std::optional<int> v) {
    if (v) seen[static_cast<std::size_t>(*v)].fetch_add(1);
  };
  // Sends its own values to any receiver, and receives what others send meanwhile.
  const auto exchange = [&](int first) -> task<void> {
    for (int v = first; v < first + each;) {
      const auto index = co_await verge::select(verge::send(ch[0], v), verge::send(ch[1], v),
                                                verge::send(ch[2], v), verge::recv(ch[0], note),
                                                verge::recv(ch[1], note), verge::recv(ch[2], note));
      if (index < 3) ++v;
    }
  };
  chan<int> stop;
  {
    runtime rt({.processors = 3});
    std::vector<join_handle<void>> senders;
    for (int i = 0; i < parties; ++i)
      senders.push_back(rt.spawn([&, i]() -> task<void> { co_await exchange(i * each); }));
    // Receives the last values, when all the others are done.
    std::thread rest([&] {
      while (select(verge::recv(ch[2], note), verge::recv(ch[1], note), verge::recv(stop),
                    verge::recv(ch[0], note))
                 .wait() != 2) {
      }
      while (auto v = ch[2].try_recv()) note(v);
    });
    for (auto& h : senders) h.join();
    stop.close();
    rest.join();
  }
  const auto wrong = std::count_if(seen.begin(), seen.end(), [](auto& n) { return n != 1; });
  EXPECT_EQ(wrong, 0) << "of " << seen.size() << " values were lost or came twice";
}

}  // namespace
