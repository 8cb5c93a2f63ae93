// SPDX-License-Identifier: Apache-2.0
// The tests of verge's timers for Asio, for either of its two homes. asio_test.cc and
// boost_asio_test.cc define `net`, `timer` and `error_code`, and include this.

using namespace std::chrono_literals;
using net::io_context;

/// What the handlers of a test saw.
struct outcomes {
  int success = 0;
  int aborted = 0;
  auto handler() {
    return [this](error_code e) {
      EXPECT_TRUE(!e || e == net::error::operation_aborted) << e.message();
      ++(e ? aborted : success);
    };
  }
};

TEST(asio_timer, calls_its_handler_once_and_not_early) {
  io_context io;
  timer t(io, 2ms);
  int called = 0;
  t.async_wait([&](error_code e) {
    EXPECT_FALSE(e);
    EXPECT_GE(verge::clock::now(), t.expiry());
    ++called;
  });
  EXPECT_EQ(called, 0) << "not inside async_wait";
  io.run();
  EXPECT_EQ(called, 1);
}

// asio::steady_timer says 0 here, and the second handler sees success.
TEST(asio_timer, that_is_cancelled_by_another_that_is_due_in_the_same_turn_is_cancelled) {
  io_context io;
  timer first(io, -1s);
  timer second(io, -1s);
  timer third(io, 1ms);
  timer fourth(io, third.expiry() + 1ns);
  std::vector<std::size_t> said;
  outcomes seen;
  first.async_wait([&](error_code) { said.push_back(second.cancel()); });
  second.async_wait(seen.handler());
  third.async_wait([&](error_code) { said.push_back(fourth.cancel()); });
  fourth.async_wait(seen.handler());
  // Two are due at once; the others become due before the context runs, and fire in one turn.
  while (verge::clock::now() < fourth.expiry()) std::this_thread::yield();
  io.run();
  EXPECT_EQ(said, (std::vector<std::size_t>{1, 1}));
  EXPECT_EQ(seen.aborted, 2);
  EXPECT_EQ(seen.success, 0);
}

TEST(asio_timer, keeps_its_promise_for_a_handler_that_waits_for_its_turn) {
  io_context io;
  timer t(io, -1s);
  outcomes seen;
  t.async_wait(seen.handler());  // is due: the handler is queued
  EXPECT_EQ(t.expires_after(1h), 1u);
  EXPECT_EQ(t.cancel(), 0u) << "it was counted before";
  io.run();
  EXPECT_EQ(seen.aborted, 1);
  EXPECT_EQ(seen.success, 0);
}

TEST(asio_timer, cancels_several_waits_and_the_oldest_first) {
  io_context io;
  timer t(io, 1h);
  std::vector<int> aborted;
  for (int i = 0; i < 4; ++i) t.async_wait([&, i](error_code e) { aborted.push_back(e ? i : -1); });
  EXPECT_EQ(t.cancel_one(), 1u);
  io.poll();
  EXPECT_EQ(aborted, std::vector{0});
  EXPECT_EQ(t.cancel(), 3u);
  EXPECT_EQ(t.cancel(), 0u);
  io.run();
  EXPECT_EQ(aborted, (std::vector{0, 1, 2, 3}));
}

// A pending wait is work; nothing else of the timers is.
TEST(asio_timer, keeps_the_context_running_as_long_as_a_wait_is_pending) {
  io_context io;
  timer far(io, 1h);
  timer never(io, verge::clock::time_point::max());
  EXPECT_EQ(io.run(), 0u);
  io.restart();
  outcomes seen;
  far.async_wait(seen.handler());
  never.async_wait(seen.handler());
  EXPECT_EQ(io.poll(), 0u);
  EXPECT_FALSE(io.stopped());
  std::thread other([&] {
    far.cancel();
    never.cancel();
  });
  io.run();  // returns now, not in an hour
  other.join();
  EXPECT_EQ(seen.aborted, 2);
}

TEST(asio_timer, takes_any_expiry) {
  io_context io;
  outcomes seen;
  timer past(io, std::chrono::hours::min());
  timer before(io, verge::clock::time_point::min());
  timer never(io, std::chrono::hours::max());
  timer unknown(io, std::chrono::duration<double>(std::numeric_limits<double>::infinity()));
  timer unset(io);
  for (timer* t : {&past, &before, &never, &unknown, &unset}) t->async_wait(seen.handler());
  io.poll();
  EXPECT_EQ(seen.success, 3);
  EXPECT_EQ(never.expiry(), verge::clock::time_point::max());
  EXPECT_EQ(never.cancel() + unknown.cancel(), 2u);
  io.run();
  EXPECT_EQ(seen.aborted, 2);
}

TEST(asio_timer, takes_its_waits_along_when_it_is_moved) {
  io_context io;
  outcomes seen;
  timer a(io, 1h);
  a.async_wait(seen.handler());
  a.async_wait(seen.handler());
  timer b(std::move(a));
  EXPECT_EQ(a.cancel(), 0u);  // NOLINT: a timer without waits
  timer c(io, 1h);
  c.async_wait(seen.handler());
  c = std::move(b);
  EXPECT_EQ(c.cancel(), 2u);
  io.run();
  EXPECT_EQ(seen.aborted, 3) << "the waits of a timer that is assigned to are cancelled";
}

TEST(asio_timer, that_is_destroyed_cancels_its_waits) {
  io_context io;
  outcomes seen;
  {
    timer t(io, 1h);
    t.async_wait(seen.handler());
    timer due(io, -1s);
    due.async_wait(seen.handler());
  }
  io.run();
  EXPECT_EQ(seen.aborted, 2);
}

TEST(asio_timer, handlers_are_destroyed_uncalled_with_the_context) {
  const auto kept = std::make_shared<int>();
  {
    io_context io;
    for (const auto expiry : {-1s, 3600s, std::chrono::seconds::max()}) {
      // Each handler owns its timer, which is destroyed while the context is.
      auto t = std::make_shared<timer>(io, expiry);
      t->async_wait([t, kept](error_code) { FAIL() << "the context has not run"; });
    }
    EXPECT_EQ(kept.use_count(), 4);
  }
  EXPECT_EQ(kept.use_count(), 1);
}

// The memory of a wait is free before its handler runs, as Asio promises.
TEST(asio_timer, can_be_started_again_by_its_handler) {
  io_context io;
  timer t(io);
  int left = 100;
  std::function<void(error_code)> again = [&](error_code e) {
    ASSERT_FALSE(e);
    if (--left == 0) return;
    EXPECT_EQ(t.expires_after(10us), 0u);
    t.async_wait(again);
  };
  t.async_wait(again);
  io.run();
  EXPECT_EQ(left, 0);
}

TEST(asio_timer, blocks_until_its_expiry) {
  io_context io;
  const timer t(io, 2ms);
  t.wait();
  EXPECT_GE(verge::clock::now(), t.expiry());
}

TEST(asio_timer, completes_a_future) {
  io_context io;
  timer t(io, 1ms);
  timer cancelled(io, 1h);
  auto done = t.async_wait(net::use_future);
  auto never = cancelled.async_wait(net::use_future);
  cancelled.cancel();
  io.run();
  done.get();
  EXPECT_THROW(never.get(), std::exception);
}

TEST(asio_timer, calls_its_handler_through_the_associated_executor) {
  io_context io;
  io_context other;
  auto strand = net::make_strand(other);
  int called = 0;
  const auto wait_with_strand = [&](timer& t) {
    t.async_wait(net::bind_executor(strand, [&](error_code) {
      EXPECT_TRUE(strand.running_in_this_thread());
      ++called;
    }));
  };
  timer far(io, 1h);
  wait_with_strand(far);
  EXPECT_EQ(other.poll(), 0u);
  EXPECT_FALSE(other.stopped()) << "the wait is work of both contexts";
  far.cancel();
  timer t(io, 1ms);
  wait_with_strand(t);
  io.run();
  EXPECT_EQ(called, 0);
  other.restart();
  other.run();
  EXPECT_EQ(called, 2);
}

TEST(asio_timer, may_have_an_executor_of_any_type) {
  net::thread_pool pool(2);
  using strand_type = net::strand<net::thread_pool::executor_type>;
  using timer_on_strand = timer::rebind_executor<strand_type>::other;
  strand_type strand(pool.get_executor());
  std::atomic<int> inside = 0;
  std::atomic<int> called = 0;
  std::vector<std::unique_ptr<timer_on_strand>> timers;
  for (int i = 0; i < 100; ++i) {
    timers.push_back(std::make_unique<timer_on_strand>(strand, 1ms));
    timers.back()->async_wait([&](error_code) {
      EXPECT_EQ(++inside, 1) << "the strand is the default executor of the handlers";
      --inside;
      ++called;
    });
  }
  pool.join();
  EXPECT_EQ(called, 100);
}

/// Its pool is shared with the handler, which may have the last reference: a handler that was moved
/// from has none.
template <class T>
struct counting_allocator {
  using value_type = T;
  std::shared_ptr<int> live;
  explicit counting_allocator(std::shared_ptr<int> n) : live(std::move(n)) {}
  template <class U>
  counting_allocator(const counting_allocator<U>& other) : live(other.live) {}
  T* allocate(std::size_t n) {
    ++*live;
    return std::allocator<T>().allocate(n);
  }
  void deallocate(T* p, std::size_t n) {
    --*live;
    std::allocator<T>().deallocate(p, n);
  }
  template <class U>
  bool operator==(const counting_allocator<U>& other) const {
    return live == other.live;
  }
};

struct handler_with_allocator {
  using allocator_type = counting_allocator<void>;
  std::shared_ptr<int> live;
  int* seen;
  void operator()(error_code) const { *seen = *live; }
  allocator_type get_allocator() const { return allocator_type(live); }
};

TEST(asio_timer, uses_the_handlers_allocator_and_has_freed_all_when_it_is_called) {
  for (const bool is_cancelled : {false, true}) {
    io_context io;
    timer t(io, is_cancelled ? timer::duration(1h) : timer::duration(1ms));
    const auto live = std::make_shared<int>(0);
    int seen = -1;
    t.async_wait(handler_with_allocator{live, &seen});
    if (is_cancelled) {
      EXPECT_EQ(*live, 1);
      t.cancel();
    } else {
      EXPECT_GE(*live, 1) << "one more if it is due already";
    }
    io.run();
    EXPECT_EQ(seen, 0);
    EXPECT_EQ(live.use_count(), 1);
  }
}

#if VERGE_TEST_SLOTS
TEST(asio_timer, is_cancelled_through_a_cancellation_slot) {
  io_context io;
  timer t(io, 1h);
  timer due(io, -1s);
  net::cancellation_signal signals[3];
  outcomes seen;
  t.async_wait(net::bind_cancellation_slot(signals[0].slot(), seen.handler()));
  t.async_wait(net::bind_cancellation_slot(signals[1].slot(), seen.handler()));
  due.async_wait(net::bind_cancellation_slot(signals[2].slot(), seen.handler()));
  signals[0].emit(net::cancellation_type::none);
  signals[0].emit(net::cancellation_type::total);
  signals[0].emit(net::cancellation_type::total);
  signals[2].emit(net::cancellation_type::terminal);
  EXPECT_EQ(due.cancel(), 0u) << "the slot has cancelled it, though it was due";
  io.poll();
  EXPECT_EQ(seen.aborted, 2);
  EXPECT_EQ(t.cancel(), 1u);
  io.run();
  signals[1].emit(net::cancellation_type::all);  // the wait has ended
  EXPECT_EQ(seen.aborted, 3);
  EXPECT_EQ(seen.success, 0);
}

TEST(asio_timer, a_slot_may_outlive_the_context) {
  net::cancellation_signal signal;
  {
    io_context io;
    timer t(io, 1h);
    t.async_wait(net::bind_cancellation_slot(signal.slot(), [](error_code) { FAIL(); }));
  }
  signal.emit(net::cancellation_type::all);
}

#endif

#if VERGE_TEST_SLOTS && VERGE_TEST_COROUTINES
net::awaitable<void> the_first_of_two(io_context& io, int& which) {
  using namespace net::experimental::awaitable_operators;
  timer soon(io, 1ms);
  timer late(io, 1h);
  const auto first =
      co_await (late.async_wait(net::use_awaitable) || soon.async_wait(net::use_awaitable));
  which = static_cast<int>(first.index());
}

TEST(asio_timer, takes_part_in_a_race_of_awaitables) {
  io_context io;
  int which = -1;
  net::co_spawn(io, the_first_of_two(io, which), net::detached);
  io.run();  // ends, as the other wait was cancelled
  EXPECT_EQ(which, 1);
}
#endif

#if VERGE_TEST_COROUTINES
net::awaitable<void> wait_three_times(io_context& io, int& times) {
  timer t(io);
  for (int i = 0; i < 3; ++i) {
    t.expires_after(1ms);
    co_await t.async_wait(net::use_awaitable);
    ++times;
  }
}

TEST(asio_timer, is_awaited_by_coroutines) {
  io_context io;
  int times = 0;
  net::co_spawn(io, wait_three_times(io, times), net::detached);
  io.run();
  EXPECT_EQ(times, 3);
}

#endif
