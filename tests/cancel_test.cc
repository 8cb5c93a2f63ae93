// SPDX-License-Identifier: Apache-2.0

// Cancellation: a waiting task stops waiting, whatever it waits for, and nothing is lost.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
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
#include <verge/simulation.h>
#include <verge/task.h>
#include <verge/time.h>
#include <verge/timeout.h>
#include "support/as_default.h"
#include "support/counting_waiter.h"
#include "support/fake_engine.h"
#include "support/patience.h"
#include "support/scale.h"
#include "support/stepper.h"
#include "support/token.h"

namespace {

using namespace verge;
using namespace std::chrono_literals;
using test::stepper;
using test::token;

// ---- What can be cancelled ----------------------------------------------------------------------

TEST(cancelled_task, stops_receiving) {
  stepper s;
  chan<int> ch;
  auto h = go([&]() -> task<void> { co_await verge::recv(ch); });
  s.run();
  h.cancel();
  EXPECT_THROW(h.join(), cancelled);
  EXPECT_FALSE(ch.try_send(1)) << "it still waits";
}

/// Otherwise a timer stays behind for each of them, for an hour.
TEST(cancelled_task, that_slept_leaves_no_timer_behind) {
  runtime rt({.processors = 1});
  for (int i = 0; i < 20; ++i) {
    auto h = rt.spawn([]() -> task<void> { co_await verge::sleep(1h); });
    ASSERT_TRUE(test::eventually([&] { return rt.stats().total.timers_live == 1; }));
    h.cancel();
    EXPECT_THROW(h.join(), cancelled);
    ASSERT_TRUE(test::eventually([&] { return rt.stats().total.timers_live == 0; }))
        << rt.stats().total.timers_live;
  }
}

/// A worker has taken the timer off its queue when the sleep is withdrawn, and fires it after that.
TEST(a_sleep_that_is_withdrawn, is_not_ended_by_its_timer_any_more) {
  class engine_without_queue final : public test::fake_engine {
   public:
    void start(detail::timer_node& t, std::int64_t, std::int64_t) override { started = &t; }
    bool stop(detail::timer_node&) noexcept override { return false; }
    detail::timer_node* started = nullptr;
  };
  test::clockwork_on<engine_without_queue> clockwork(1);
  for (const bool pauses : {false, true}) {
    detail::sleep_action nap(detail::sleep_operation::for_delay(1'000, &clockwork.timers()));
    test::counting_waiter w;
    ASSERT_TRUE(nap.start(w, detail::waiter::by_event));
    detail::timer_node& t = *clockwork.engine().started;
    pauses ? nap.pause() : nap.withdraw();
    t.does.load()->fire(t, clockwork.scheduler().now());
    EXPECT_EQ(w.woken, 0);
    EXPECT_EQ(w.winner(), detail::waiter::no_event);
  }
}

TEST(cancelled_task, stops_sending_and_its_value_is_destroyed) {
  stepper s;
  chan<token> ch;
  auto h = go([&]() -> task<void> { co_await verge::send(ch, token()); });
  s.run();
  h.cancel();
  EXPECT_THROW(h.join(), cancelled);
  EXPECT_FALSE(ch.try_recv().has_value()) << "it still waits";
  EXPECT_EQ(token::alive(), 0);
}

TEST(cancelled_task, stops_selecting) {
  stepper s;
  chan<int> a;
  chan<int> b;
  auto h = go([&]() -> task<void> { co_await verge::select(verge::recv(a), verge::send(b, 1)); });
  s.run();
  h.cancel();
  EXPECT_THROW(h.join(), cancelled);
  EXPECT_FALSE(a.try_send(1)) << "it still waits";
  EXPECT_FALSE(b.try_recv()) << "it still waits";
}

TEST(cancelled_task, stops_joining_and_leaves_the_other_task_alone) {
  stepper s;
  chan<int> ch;
  auto child = go([&]() -> task<int> { co_return *co_await verge::recv(ch); });
  auto h = go([&]() -> task<void> { co_await child; });
  s.run();
  h.cancel();
  EXPECT_THROW(h.join(), cancelled);
  EXPECT_FALSE(child.done());
  ch.send(5);
  EXPECT_EQ(child.join(), 5) << "the handle can still be joined";
}

TEST(cancelled_task, stops_sleeping) {
  simulation sim;
  auto h = go([]() -> task<void> { co_await verge::sleep(24h); });
  const auto start = sim.now();
  verge::sleep(1s).wait();
  h.cancel();
  EXPECT_THROW(h.join(), cancelled);
  EXPECT_EQ(sim.now() - start, 1s);
}

TEST(cancelled_task, stops_waiting_on_a_thread) {
  runtime rt({.processors = 2});
  chan<int> ch;
  chan<int> begun;
  auto h = rt.spawn([&] {
    begun.send(1);
    ch.recv();
  });
  begun.recv();
  h.cancel();
  EXPECT_THROW(h.join(), cancelled);
}

TEST(cancelled_task, is_cancelled_however_deep_it_waits) {
  stepper s;
  chan<int> ch;
  bool unwound = false;
  auto inner = [&]() -> task<void> {
    token local;
    try {
      co_await verge::recv(ch);
    } catch (const cancelled&) {
      unwound = true;
      throw;
    }
  };
  auto middle = [&]() -> task<void> {
    token local;
    co_await inner();
  };
  auto h = go([&]() -> task<void> { co_await middle(); });
  s.run();
  h.cancel();
  EXPECT_THROW(h.join(), cancelled);
  EXPECT_TRUE(unwound);
  EXPECT_EQ(token::alive(), 0);
}

// ---- Time-outs of operations --------------------------------------------------------------------

TEST(timeout_of_an_operation, leaves_no_timer_when_it_has_completed) {
  runtime rt({.processors = 1});
  const chan<int> ch;
  const auto pending = [&] { return rt.stats().total.timers_live; };
  auto waits =
      rt.spawn([&]() -> task<int> { co_return (co_await timeout(verge::recv(ch), 1h)).value(); });
  ASSERT_TRUE(test::eventually([&] { return pending() == 1; }));
  ch.send(1);
  EXPECT_EQ(waits.join(), 1);
  EXPECT_EQ(pending(), 0U);

  // The same on a plain thread, and for one that is cancelled.
  std::thread blocks([&] {
    const test::as_default here(rt);
    EXPECT_EQ(timeout(verge::recv(ch), 1h).wait(), 2);
  });
  ASSERT_TRUE(test::eventually([&] { return pending() == 1; }));
  ch.send(2);
  blocks.join();
  EXPECT_EQ(pending(), 0U);
  auto cancels =
      rt.spawn([&]() -> task<> { static_cast<void>(co_await timeout(verge::recv(ch), 1h)); });
  ASSERT_TRUE(test::eventually([&] { return pending() == 1; }));
  cancels.cancel();
  EXPECT_THROW(cancels.join(), cancelled);
  EXPECT_EQ(pending(), 0U);
}

// ---- Time-outs of tasks -------------------------------------------------------------------------

TEST(timeout_of_a_task, returns_the_result_of_a_task_that_is_in_time) {
  simulation sim;
  const int got = sim.run([]() -> task<int> {
    auto work = []() -> task<int> {
      co_await verge::sleep(1s);
      co_return 7;
    };
    co_return co_await verge::timeout(work(), 2s);
  });
  EXPECT_EQ(got, 7);
}

TEST(timeout_of_a_task, propagates_its_exception) {
  simulation sim;
  const auto fails = []() -> task<void> {
    throw std::runtime_error("x");
    co_return;
  };
  EXPECT_THROW(sim.run([&]() -> task<void> { co_await verge::timeout(fails(), 2s); }),
               std::runtime_error);
}

TEST(timeout_of_a_task, cancels_one_that_is_late_and_waits_until_it_has_ended) {
  simulation sim;
  bool unwound = false;
  const auto late = [&]() -> task<void> {
    try {
      co_await verge::sleep(1h);
    } catch (const cancelled&) {
      unwound = true;
      throw;
    }
  };
  const auto start = sim.now();
  EXPECT_THROW(sim.run([&]() -> task<void> { co_await verge::timeout(late(), 2s); }), timed_out);
  EXPECT_TRUE(unwound);
  EXPECT_EQ(sim.now() - start, 2s);
}

TEST(timeout_of_a_task, passes_a_cancellation_on_and_waits_until_it_has_ended) {
  simulation sim;
  bool unwound = false;
  auto h = go([&]() -> task<void> {
    const auto work = [](bool& u) -> task<void> {
      try {
        co_await verge::sleep(1h);
      } catch (const cancelled&) {
        u = true;
        throw;
      }
    };
    co_await verge::timeout(work(unwound), 2h);
  });
  verge::sleep(1s).wait();
  h.cancel();
  EXPECT_THROW(h.join(), cancelled);
  EXPECT_TRUE(unwound) << "no part of it still runs";
}

// ---- When ---------------------------------------------------------------------------------------

TEST(cancelled_task, never_begins_if_it_has_not_begun) {
  stepper s;
  bool begun = false;
  auto h = go([&, t = token()]() -> task<void> {
    begun = true;
    co_return;
  });
  h.cancel();
  EXPECT_THROW(h.join(), cancelled);
  EXPECT_FALSE(begun);
  EXPECT_EQ(token::alive(), 0);
}

TEST(cancelled_task, stays_cancelled) {
  stepper s;
  chan<int> ready(10);
  chan<int> never;
  int thrown = 0;
  auto h = go([&]() -> task<void> {
    const auto try_it = [&](auto make) -> task<void> {
      try {
        co_await make();
      } catch (const cancelled&) {
        ++thrown;
      }
    };
    EXPECT_FALSE(is_cancelled());
    co_await try_it([&] { return verge::recv(never); });
    EXPECT_TRUE(is_cancelled());
    co_await try_it([&] { return verge::recv(never); });
    co_await try_it([&] { return verge::send(ready, 1); });
    co_await try_it([&] { return verge::select(verge::recv(ready), otherwise()); });
    co_await try_it([&] { return verge::yield(); });
    try {
      ready.send(1);
    } catch (const cancelled&) {
      ++thrown;
    }
    try {
      verge::yield().wait();
    } catch (const cancelled&) {
      ++thrown;
    }
    EXPECT_TRUE(ready.try_send(1)) << "what never waits is not affected";
  });
  s.run();
  h.cancel();
  h.join();
  EXPECT_EQ(thrown, 7);
  EXPECT_EQ(ready.size(), 1u);
}

TEST(cancelled_task, gets_what_it_waited_for_if_that_came_first) {
  stepper s;
  chan<int> ch;
  auto h = go([&]() -> task<int> {
    const int got = *co_await verge::recv(ch);
    EXPECT_TRUE(is_cancelled());
    co_return got;
  });
  s.run();
  ASSERT_TRUE(ch.try_send(7));
  h.cancel();  // too late for this wait
  EXPECT_EQ(h.join(), 7);
}

TEST(cancel, may_be_called_again_after_the_end_and_on_an_empty_handle) {
  stepper s;
  auto h = go([] { return 1; });
  h.cancel();
  h.cancel();
  s.run();
  h.cancel();
  EXPECT_THROW(h.join(), cancelled);
  h.cancel();
  join_handle<int>().cancel();
  auto other = go([] { return 2; });
  s.run();
  other.cancel();
  EXPECT_EQ(other.join(), 2) << "it had ended before";
}

TEST(cancelled_task, may_cancel_itself_through_its_handle) {
  stepper s;
  chan<int> ch(1);
  join_handle<void> h;
  h = go([&]() -> task<void> {
    h.cancel();
    co_await verge::send(ch, 1);
  });
  EXPECT_THROW(h.join(), cancelled);
}

TEST(cancelled_task, that_is_not_joined_is_not_reported) {
  stepper s;
  chan<int> ch;
  auto h = go([&]() -> task<void> { co_await verge::recv(ch); });
  s.run();
  h.cancel();
  h.detach();
  s.run();
  EXPECT_TRUE(s.take_unhandled().empty());
}

// Waits for a task that may have been cancelled before it began.
void end_of(join_handle<void>& h) {
  try {
    h.join();
  } catch (const cancelled&) {
  }
}

// ---- Races --------------------------------------------------------------------------------------

// Tasks wait for one value each while other threads send, close and cancel: each ends, and whatever
// was sent was received by a task that reports it or is still in the channel.
TEST(cancellation_in_a_crowd, loses_no_value) {
  const int rounds = test::scale(3'000, 300);
  const int tasks = 8;
  runtime rt({.processors = 2});
  for (int round = 0; round < rounds; ++round) {
    chan<token> ch(static_cast<std::size_t>(round % 3));
    chan<int> other;
    std::atomic<int> received{0};
    std::vector<join_handle<void>> handles;
    for (int i = 0; i < tasks; ++i) {
      handles.push_back(rt.spawn([&, i]() -> task<void> {
        try {
          if (i % 2 == 0) {
            if ((co_await verge::recv(ch)).has_value()) received.fetch_add(1);
          } else {
            std::optional<token> v;
            co_await verge::select(verge::recv(other), verge::recv(ch, v));
            if (v.has_value()) received.fetch_add(1);
          }
        } catch (const cancelled&) {
          EXPECT_TRUE(is_cancelled());
        }
      }));
    }
    int sent = 0;
    std::thread sending([&] {
      for (int i = 0; i < tasks; ++i)
        if (ch.try_send(token(i))) ++sent;
    });
    std::thread cancelling([&] {
      for (int i = 0; i < tasks; i += 1 + round % 2) handles[static_cast<std::size_t>(i)].cancel();
    });
    sending.join();
    cancelling.join();
    ch.close();
    for (auto& h : handles) end_of(h);
    int left = 0;
    while (ch.try_recv()) ++left;
    ASSERT_EQ(received + left, sent) << "in round " << round;
  }
  EXPECT_EQ(token::alive(), 0);
}

// The same for tasks that wait to send: a value was either received, or its send failed.
TEST(cancellation_in_a_crowd, sends_exactly_what_it_says_it_sent) {
  const int rounds = test::scale(3'000, 300);
  const int tasks = 8;
  runtime rt({.processors = 2});
  for (int round = 0; round < rounds; ++round) {
    chan<token> ch(static_cast<std::size_t>(round % 2));
    chan<token> other;
    std::atomic<int> sent{0};
    std::vector<join_handle<void>> handles;
    for (int i = 0; i < tasks; ++i) {
      handles.push_back(rt.spawn([&, i]() -> task<void> {
        if (i % 2 == 0) {
          co_await verge::send(ch, token(i));
        } else {
          co_await verge::select(verge::send(ch, token(i)), verge::recv(other));
        }
        sent.fetch_add(1);
      }));
    }
    int received = 0;
    std::thread receiving([&] {
      for (int i = 0; i < tasks; ++i)
        if (ch.try_recv()) ++received;
    });
    std::thread cancelling([&] {
      for (auto& h : handles) h.cancel();
    });
    receiving.join();
    cancelling.join();
    for (auto& h : handles) end_of(h);
    while (ch.try_recv()) ++received;
    ASSERT_EQ(received, sent) << "in round " << round;
  }
  EXPECT_EQ(token::alive(), 0);
}

// Cancelling must not access a waiter whose owner has resumed, even if the owner waits again and
// again at the same address.
TEST(cancellation_in_a_crowd, races_with_tasks_that_wait_all_the_time) {
  const int rounds = test::scale(200, 50);
  runtime rt({.processors = 2});
  for (int round = 0; round < rounds; ++round) {
    chan<int> ping;
    chan<int> pong;
    auto left = rt.spawn([&]() -> task<void> {
      for (int i = 0;; ++i) {
        co_await verge::send(ping, i);
        co_await verge::recv(pong);
      }
    });
    auto right = rt.spawn([&]() -> task<void> {
      for (;;) {
        co_await verge::select(verge::recv(ping), verge::recv(pong));
        co_await verge::select(verge::send(pong, 1), verge::send(ping, 1));
        co_await verge::yield();
      }
    });
    for (int i = 0; i < round % 50; ++i) verge::yield().wait();
    std::thread second([&] { right.cancel(); });
    left.cancel();
    second.join();
    end_of(left);
    end_of(right);
  }
}

// A join races with the end of the joined task, and with the cancellation of both.
TEST(cancellation_in_a_crowd, races_with_tasks_that_join) {
  const int rounds = test::scale(5'000, 500);
  runtime rt({.processors = 2});
  int ended = 0;
  for (int round = 0; round < rounds; ++round) {
    chan<int> ch;
    auto child = rt.spawn([&]() -> task<int> { co_return (co_await verge::recv(ch)).value_or(0); });
    auto parent = rt.spawn([&]() -> task<void> { co_await child; });
    std::thread closing([&] { ch.close(); });
    std::thread cancelling([&] { child.cancel(); });
    parent.cancel();
    closing.join();
    cancelling.join();
    end_of(parent);
    if (!child) continue;  // the parent has joined it
    try {
      child.join();
      ++ended;
    } catch (const cancelled&) {
    }
  }
  EXPECT_LE(ended, rounds);
}

// A runtime that ends destroys waiting tasks, and they are on no channel afterwards.
TEST(runtime_that_ends, removes_its_tasks_from_channels_that_others_use) {
  const int rounds = test::scale(300, 30);
  for (int round = 0; round < rounds; ++round) {
    chan<token> ch(1);
    {
      runtime rt({.processors = 2});
      for (int i = 0; i < 10; ++i)
        rt.spawn([&]() -> task<void> {
            for (;;) co_await verge::recv(ch);
          }).detach();
      for (int i = 0; i < 20; ++i) ch.send(token(i));
    }
    while (ch.try_send(token())) {
    }
    EXPECT_EQ(ch.size(), 1u) << "a destroyed task has received something";
  }
  EXPECT_EQ(token::alive(), 0);
}

// Other threads are waking its tasks while it ends.
TEST(runtime_that_ends, may_end_while_others_send_to_its_tasks) {
  const int rounds = test::scale(300, 50);
  for (int round = 0; round < rounds; ++round) {
    chan<int> ch;
    std::atomic<bool> stop{false};
    auto rt = std::make_unique<runtime>(runtime_options{.processors = 1});
    for (int i = 0; i < 3; ++i)
      rt->spawn([&]() -> task<void> {
          for (;;) co_await verge::recv(ch);
        }).detach();
    std::vector<std::thread> senders;
    for (int i = 0; i < 2; ++i)
      senders.emplace_back([&] {
        while (!stop.load()) static_cast<void>(ch.try_send(1));
      });
    ch.send(1);
    rt.reset();
    stop.store(true);
    for (auto& t : senders) t.join();
  }
}

}  // namespace
