// SPDX-License-Identifier: Apache-2.0

// How a runtime ends: it waits for what runs, destroys what is suspended, and handles stay valid,
// even while other threads use them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <verge/context.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/time.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sched/live_scheduler.h>
#include <support/as_default.h>
#include <support/blockers.h>
#include <support/fake_engine.h>
#include <support/lone_engine.h>
#include <support/patience.h>
#include <support/scale.h>
#include <support/thread_state.h>

namespace verge {
namespace {

using namespace std::chrono_literals;
using test::as_default;
using test::eventually;
using testing::StrEq;
using testing::ThrowsMessage;

TEST(a_runtime_that_ends, waits_for_the_callback_that_runs_and_fires_no_other) {
  const pid_t ends_it = ::gettid();
  std::atomic<bool> running{false};
  std::atomic<bool> ending{false};
  std::atomic<bool> done{false};
  std::atomic<bool> other{false};
  {
    runtime rt({.processors = 2});
    as_default here(rt);
    after_func(0s, [&] {
      running = true;
      while (!ending) std::this_thread::yield();
      EXPECT_TRUE(eventually([&] { return test::is_asleep(ends_it); })) << "it waits for this";
      done = true;
    }).detach();
    after_func(1h, [&] { other = true; }).detach();
    ASSERT_TRUE(eventually([&] { return running.load(); }));
    ending = true;
  }
  EXPECT_TRUE(done);
  EXPECT_FALSE(other);
}

TEST(a_runtime_that_ends, destroys_what_is_suspended) {
  struct witness {
    std::atomic<int>& gone;
    ~witness() { ++gone; }
  };
  std::atomic<int> begun{0};
  std::atomic<int> gone{0};
  join_handle<> h;
  {
    runtime rt({.processors = 2});
    chan<int> never;
    for (int i = 0; i < 30; ++i) {
      auto one = rt.spawn([&, i, never]() -> task<> {
        const witness w{gone};
        ++begun;
        if (i % 3 == 0) co_await verge::sleep(1h);
        if (i % 3 == 1) co_await verge::recv(never);
        co_await verge::select(verge::recv(never), verge::recv(after(1h)));
      });
      if (i == 0) h = std::move(one);
    }
    ASSERT_TRUE(eventually([&] { return begun == 30; }));
  }
  EXPECT_EQ(gone, 30);
  EXPECT_TRUE(h.done());
  EXPECT_THROW(h.join(), cancelled);
}

TEST(a_runtime_that_ends, leaves_handles_that_can_still_be_used_for_nothing) {
  verge::timer func;
  verge::timer with_channel;
  verge::ticker ticks;
  receiver<time_point> c;
  receiver<time_point> t;
  std::atomic<int> fired{0};
  {
    runtime rt({.processors = 2});
    as_default here(rt);
    func = after_func(1h, [&] { ++fired; });
    with_channel = verge::timer(1h);
    ticks = every(1h, [&] { ++fired; });
    c = after(1h);
    t = tick(1h);
  }
  const auto ended = ThrowsMessage<std::logic_error>(
      StrEq("verge: the runtime of this timer has ended; a timer can only be started while its "
            "runtime lives"));
  EXPECT_FALSE(func.stop());
  EXPECT_FALSE(with_channel.stop());
  EXPECT_FALSE(ticks.stop());
  EXPECT_THAT([&] { func.reset(0s); }, ended);
  EXPECT_THAT([&] { with_channel.reset(1s); }, ended);
  EXPECT_THAT([&] { with_channel.reset_at(clock::now()); }, ended);
  EXPECT_THAT([&] { ticks.reset(1s); }, ended);
  EXPECT_FALSE(with_channel.c().try_recv());
  EXPECT_FALSE(c.try_recv());
  EXPECT_FALSE(t.try_recv());
  func.detach();
  EXPECT_EQ(fired, 0);
}

/// The operations of two other threads on timers while their runtime ends.
class a_runtime_that_ends_under_way : public testing::TestWithParam<engine> {
 protected:
  template <class F>
  static void while_others(F use) {
    for (int round = 0; round < test::scale(20, 5); ++round) {
      std::vector<verge::timer> timers(2000);
      std::atomic<int> fired{0};
      std::atomic<int> at_work{0};
      std::atomic<int> used{0};
      std::vector<std::thread> others;
      {
        runtime rt({.processors = 2, .engine = GetParam()});
        rt.run([&] {
          for (std::size_t i = 0; i < timers.size(); ++i) {
            const auto when =
                i % 2 == 0 ? std::chrono::nanoseconds(30s) : std::chrono::nanoseconds(i * 200);
            timers[i] = after_func(when, [&fired, p = std::make_shared<int>(1)] { fired += *p; });
            after_func(20s, [p = std::make_shared<int>(1)] {}).detach();
          }
        });
        for (std::size_t k = 0; k < 2; ++k) {
          others.emplace_back([&, k] {
            ++at_work;
            for (std::size_t i = k; i < timers.size(); i += 2) {
              use(timers[i]);
              ++used;
            }
          });
        }
        ASSERT_TRUE(eventually([&] { return at_work == 2; }));
        // It ends meanwhile, each time at another point.
        ASSERT_TRUE(eventually([&] { return used >= round * 50; }));
      }
      const int at_end = fired;
      for (auto& t : others) t.join();
      timers.clear();
      EXPECT_EQ(fired, at_end) << "a callback ran after its runtime had ended";
    }
  }
};

TEST_P(a_runtime_that_ends_under_way, lets_them_be_stopped) {
  while_others([](verge::timer& t) { t.stop(); });
}
TEST_P(a_runtime_that_ends_under_way, lets_them_be_reset_or_says_that_it_has_ended) {
  while_others([](verge::timer& t) {
    try {
      t.reset(30s);
    } catch (const std::logic_error&) {
    }
  });
}
TEST_P(a_runtime_that_ends_under_way, lets_them_be_destroyed) {
  while_others([](verge::timer& t) { t = verge::timer(); });
}
TEST_P(a_runtime_that_ends_under_way, lets_them_be_detached) {
  while_others([](verge::timer& t) {
    try {
      t.reset(30s);
    } catch (const std::logic_error&) {
    }
    t.detach();
  });
}

/// The number of descriptors of the process: a leaked runtime has some.
std::size_t open_descriptors() {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& d : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

/// A tick of such a ticker is received, and the ticker is armed for the next, just as all timers
/// are removed.
TEST_P(a_runtime_that_ends_under_way, is_freed_once_the_last_receiver_of_a_ticker_is_destroyed) {
  const std::size_t before = open_descriptors();
  for (int round = 0; round < test::scale(60, 20); ++round) {
    for (const auto policy : {missed_ticks::skip, missed_ticks::burst, missed_ticks::delay}) {
      auto rt = std::make_unique<runtime>(runtime_options{.processors = 1, .engine = GetParam()});
      receiver<time_point> c;
      rt->run([&] {
        ticker t(1us, policy);
        c = t.c();
        t.detach();
      });
      std::atomic<bool> ended{false};
      std::atomic<int> taken{0};
      std::thread other([&, c = std::move(c)] {
        while (!ended) taken += c.try_recv() ? 1 : 0;
        taken += c.try_recv() ? 1 : 0;
      });
      ASSERT_TRUE(eventually([&] { return taken > round % 20; }));
      rt.reset();
      ended = true;
      other.join();
    }
  }
  EXPECT_LE(open_descriptors(), before);
}
TEST_P(a_runtime_that_ends_under_way, is_freed_though_the_tick_of_a_ticker_was_not_received) {
  const std::size_t before = open_descriptors();
  for (const auto policy : {missed_ticks::skip, missed_ticks::burst, missed_ticks::delay}) {
    for (const bool somebody_could : {false, true}) {
      receiver<time_point> c;
      {
        runtime rt({.processors = 1, .engine = GetParam()});
        rt.run([&] {
          ticker t(1us, policy);
          if (somebody_could) c = t.c();
          ASSERT_TRUE(eventually([&] { return t.c().size() == 1; }));
          t.detach();
        });
      }
      EXPECT_EQ(c && c.try_recv(), somebody_could);
    }
    EXPECT_LE(open_descriptors(), before);
  }
}

/// The captures of a callback are destroyed with the runtime, on any thread, but never inside an
/// operation on a channel: their destructors may use that channel.
TEST_P(a_runtime_that_ends_under_way, ends_payloads_where_no_channel_is_locked) {
  for (int round = 0; round < test::scale(100, 20); ++round) {
    auto rt = std::make_unique<runtime>(runtime_options{.processors = 1, .engine = GetParam()});
    verge::timer t;
    std::atomic<int> ended{0};
    rt->run([&] {
      t = verge::timer(30s);
      for (int i = 0; i < 200; ++i) {
        after_func(30s, [p = std::shared_ptr<receiver<time_point>>(new auto(t.c()),
                                                                   [&](receiver<time_point>* c) {
                                                                     EXPECT_FALSE(c->try_recv());
                                                                     delete c;
                                                                     ++ended;
                                                                   })] {
        }).detach();
      }
    });
    std::atomic<bool> at_work{false};
    std::thread other([&] {
      at_work = true;
      try {
        for (;;) t.reset(30s);
      } catch (const std::logic_error&) {
      }
    });
    ASSERT_TRUE(eventually([&] { return at_work.load(); }));
    rt.reset();
    other.join();
    t = verge::timer();
    EXPECT_EQ(ended, 200);
  }
}

INSTANTIATE_TEST_SUITE_P(engines, a_runtime_that_ends_under_way,
                         testing::ValuesIn(engines().begin(), engines().end()),
                         [](const auto& e) { return std::string(name_of(e.param)); });

TEST(a_runtime_that_ends, may_be_destroyed_by_its_own_task_or_callback) {
  for (const bool by_callback : {false, true}) {
    auto rt = std::make_unique<runtime>(runtime_options{.processors = 2});
    std::atomic<int> ended{0};
    std::atomic<int> others{0};
    const auto end = [&] {
      rt.reset();
      ++ended;
    };
    rt->run([&] {
      for (int i = 0; i < 10; ++i) after_func(1h, [&] { ++others; }).detach();
      go([&]() -> task<> {
        co_await verge::sleep(1h);
        ++others;
      }).detach();
      by_callback ? after_func(0s, end).detach() : go(end).detach();
    });
    ASSERT_TRUE(eventually([&] { return ended == 1; }));
    EXPECT_EQ(rt, nullptr);
    EXPECT_EQ(others, 0);
  }
}

TEST(a_runtime_that_ends, by_its_own_task_is_cleaned_up_after_that_task_has_returned) {
  const auto end_from_inside = [] {
    std::atomic<bool> ended{false};
    std::string error;
    auto rt = std::make_unique<runtime>(runtime_options{.processors = 1});
    rt->spawn([&] {
        rt.reset();
        try {
          after_func(1h, [] {}).detach();
        } catch (const std::logic_error& e) {
          error = e.what();
        }
        ended = true;
      }).detach();
    ASSERT_TRUE(eventually([&] { return ended.load(); }));
    EXPECT_THAT(error, testing::HasSubstr("has ended"));
  };
  end_from_inside();
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 10; ++i) end_from_inside();
  EXPECT_TRUE(eventually([&] {
    runtime another({.processors = 1});
    return open_descriptors() <= before + 8;
  }));
}

/// A call that blocks gives the processor to another worker, if anything is queued.
TEST(a_runtime_that_ends, by_its_own_task_starts_no_worker_when_that_task_blocks) {
  std::atomic<bool> ended{false};
  std::atomic<bool> ran{false};
  const auto payload = std::make_shared<int>(0);
  auto rt = std::make_unique<runtime>(runtime_options{.processors = 1});
  rt->spawn([&] {
      rt.reset();
      for (int i = 0; i < 3; ++i) go([&ran, payload] { ran = true; }).detach();
      blocking([] {});
      ended = true;
    }).detach();
  ASSERT_TRUE(eventually([&] { return ended.load(); }));
  EXPECT_TRUE(eventually([&] {
    const runtime another({.processors = 1});
    return payload.use_count() == 1;
  }));
  EXPECT_FALSE(ran);
}

/// What it starts then does not run, and it is not woken: both are destroyed when the runtime is
/// cleaned up.
TEST(a_runtime_that_ends, by_its_own_task_destroys_that_task_if_it_suspends) {
  struct witness {
    std::atomic<bool>& gone;
    ~witness() { gone = true; }
  };
  std::atomic<bool> ended{false};
  std::atomic<bool> gone{false};
  std::atomic<bool> ran{false};
  const chan<int> never(1);
  auto rt = std::make_unique<runtime>(runtime_options{.processors = 1});
  rt->spawn([&, never]() -> task<> {
      const witness w{gone};
      rt.reset();
      go([&] { ran = true; }).detach();
      ended = true;
      co_await verge::recv(never);
      ran = true;
    }).detach();
  ASSERT_TRUE(eventually([&] { return ended.load(); }));
  EXPECT_TRUE(eventually([&] {
    const runtime another({.processors = 1});
    return gone.load();
  }));
  EXPECT_TRUE(never.try_send(1));
  EXPECT_FALSE(ran);
}

/// The end of another runtime does as well as the beginning of one.
TEST(a_runtime_that_ends, by_its_own_task_is_cleaned_up_when_another_one_ends) {
  const auto threads = [] {
    using std::filesystem::directory_iterator;
    return std::distance(directory_iterator("/proc/self/task"), directory_iterator());
  };
  auto another = std::make_unique<runtime>(runtime_options{.processors = 1});
  another->run([] {});
  const auto before = threads();
  auto payload = std::make_shared<int>(0);
  const std::weak_ptr<int> kept = payload;
  const chan<int> never(1);
  auto rt = std::make_unique<runtime>(runtime_options{.processors = 1});
  rt->spawn([&, never, payload = std::move(payload)]() -> task<> {
      rt.reset();
      co_await verge::recv(never);
    }).detach();
  ASSERT_TRUE(eventually([&] { return threads() <= before; }));
  EXPECT_FALSE(kept.expired());
  another.reset();
  EXPECT_TRUE(kept.expired());
}

TEST(a_runtime_that_ends, by_a_callback_leaves_that_running_though_its_timer_has_fired_again) {
  auto rt = std::make_unique<runtime>(runtime_options{.processors = 1});
  std::atomic<bool> ending{false};
  std::atomic<bool> ended{false};
  std::atomic<bool> go_on{false};
  ticker t;
  rt->run([&] {
    t = every(1ms, [&, alive = std::make_shared<bool>(true)] {
      if (ending.exchange(true)) return;
      while (rt->stats().total.timers_fired < 5) std::this_thread::yield();
      rt.reset();
      ended = true;
      while (!go_on) std::this_thread::yield();
      EXPECT_TRUE(*alive);
    });
  });
  ASSERT_TRUE(eventually([&] { return ended.load(); }));
  std::atomic<pid_t> destroys_it{0};
  std::thread other([&] {
    destroys_it = ::gettid();
    t = ticker();
    EXPECT_TRUE(go_on) << "it waits for the callback";
  });
  EXPECT_TRUE(eventually([&] { return destroys_it != 0 && test::is_asleep(destroys_it); }));
  go_on = true;
  other.join();
}

TEST(a_runtime_that_ends, by_a_task_of_another_leaves_the_others_processor_to_its_tasks) {
  runtime a({.processors = 1});
  auto b = std::make_unique<runtime>(runtime_options{.processors = 1});
  std::atomic<bool> begun{false};
  std::atomic<pid_t> ends_it{0};
  b->spawn([&] {
     begun = true;
     ASSERT_TRUE(eventually([&] { return ends_it != 0 && test::is_asleep(ends_it); }));
     a.spawn([] {}).join();
   }).detach();
  ASSERT_TRUE(eventually([&] { return begun.load(); }));
  a.run([&] {
    ends_it = ::gettid();
    b.reset();
  });
  EXPECT_EQ(b, nullptr);
}

TEST(a_runtime_that_ends, calls_its_handler_of_exceptions_no_more) {
  join_handle<> h;
  ticker handle_that_is_left;
  std::atomic<int> first{0};
  std::atomic<int> second{0};
  {
    runtime rt({.processors = 1, .on_exception = [&](const std::exception_ptr&) { ++first; }});
    rt.run([&] { handle_that_is_left = every(1h, [] {}); });
    h = rt.spawn([] { throw std::runtime_error("it is not joined"); });
    ASSERT_TRUE(eventually([&] { return h.done(); }));
  }
  runtime other({.processors = 1, .on_exception = [&](const std::exception_ptr&) { ++second; }});
  other.run([&] { h = join_handle<>(); });
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 1) << "the one where the handle was dropped";
}

TEST(a_runtime_that_ends, takes_context_callbacks_along_that_a_suspended_task_would_call) {
  std::size_t before = 0;
  for (int i = 0; i < 5; ++i) {
    {
      runtime rt({.processors = 1});
      const chan<int> never;
      rt.run([&, never]() -> task<> {
        go([](chan<int> c) -> task<> {
          auto [ctx, cancel] = with_cancel(background());
          after_func(ctx, [] {}).detach();
          const canceller when_destroyed = std::move(cancel);
          co_await verge::recv(c);
        }(never))
            .detach();
        co_await verge::yield();
      });
    }
    if (i == 0) before = open_descriptors();
  }
  EXPECT_LE(open_descriptors(), before);
}

/// As where a runtime cannot start its threads: it was not closed before.
TEST(a_clockwork_that_ends, refuses_all_and_is_deleted_with_its_last_node) {
  class [[gnu::visibility("hidden")]] host final : public test::lone_engine {
   public:
    host() : lone_engine(engine::hybrid) {}
  }
  lone;
  auto& of = *new detail::clockwork(detail::make_engine(engine::hybrid, lone), lone, lone);
  detail::timer_node& t = of.make();
  auto kept = std::make_shared<int>(0);
  const std::weak_ptr<int> seen = kept;
  of.end(&detail::close_channel_of, std::move(kept));
  EXPECT_THROW(of.start(t, lone.now() + 1, 0), std::logic_error);
  EXPECT_THROW(of.reset(t, lone.now() + 1, 0), std::logic_error);
  EXPECT_THROW(of.make(), std::logic_error);
  EXPECT_FALSE(seen.expired());
  of.trace_to(nullptr);
  EXPECT_EQ(of.quick(), nullptr) << "the end of a trace does not open it again";
  of.free(t);
  EXPECT_TRUE(seen.expired());
}

/// An engine that has no queue, and whose runtime ends while it starts a timer again.
class engine_that_ends final : public test::fake_engine {
 public:
  void start(detail::timer_node& t, std::int64_t, std::int64_t) override { end(t); }
  bool reset(detail::timer_node& t, std::int64_t, std::int64_t) override {
    end(t);
    return false;
  }
  bool stop(detail::timer_node&) noexcept override {
    ++stopped;
    return false;
  }
  int stopped = 0;

 private:
  static void end(detail::timer_node& t) {
    detail::clockwork::of(t).end([](detail::timer_node&) noexcept {});
  }
};

TEST(a_timer_that_is_started_while_its_runtime_ends, is_taken_off_its_queue_again) {
  class [[gnu::visibility("hidden")]] host final : public test::lone_engine {
   public:
    host() : lone_engine(engine::hybrid) {}
  }
  lone;
  for (const bool again : {false, true}) {
    auto made = std::make_unique<engine_that_ends>();
    const engine_that_ends& its = *made;
    auto& of = *new detail::clockwork(std::move(made), lone, lone);
    detail::timer_node& t = of.make();
    if (again) {
      EXPECT_FALSE(of.reset(t, lone.now() + 1, 0));
    } else {
      of.start(t, lone.now() + 1, 0);
    }
    EXPECT_EQ(its.stopped, 1) << again;
    of.free(t);  // and the clockwork with it
  }
}

/// A callback was queued behind the one that runs when the runtime ends: its reference is dropped,
/// so what it owns is destroyed.
TEST(a_runtime_that_ends, drops_the_callbacks_that_are_queued_behind_the_last_one) {
  auto rt = std::make_unique<runtime>(runtime_options{.processors = 1});
  auto& scheduler = static_cast<detail::live_scheduler&>(detail::scheduler_of(*rt));
  scheduler.limit_spares(0);
  const auto owned = std::make_shared<int>(0);
  test::blockers busy;
  std::atomic<int> begun{0};
  rt->run([&] {
    // Both are due when the worker looks: it runs the one and has queued the other.
    const auto due = clock::now() - 1s;
    for (int i = 0; i < 2; ++i) {
      after_func(*rt, due, [&begun, owned, block = busy.block()] {
        if (begun++ == 0) block();
      }).detach();
    }
  });
  ASSERT_TRUE(test::eventually([&] { return busy.count() == 1; }));
  std::thread ending([&] { rt.reset(); });
  EXPECT_TRUE(test::eventually([&] { return scheduler.as_watched().stopping(); }));
  busy.release();
  ending.join();
  EXPECT_EQ(begun, 1);
  EXPECT_EQ(owned.use_count(), 1);
}

}  // namespace
}  // namespace verge
