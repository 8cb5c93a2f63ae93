// SPDX-License-Identifier: Apache-2.0

// The runtime as a whole: changing the number of processors, blocking calls, idleness and figures.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/time.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <stdexcept>
#include <thread>
#include <vector>

#include <sched/cpu_limits.h>
#include <sched/live_scheduler.h>
#include <support/as_default.h>
#include <support/patience.h>
#include <support/scale.h>
#include <support/thread_state.h>

namespace verge {
namespace {

using namespace std::chrono_literals;
using test::as_default;
using test::eventually;
using testing::HasSubstr;
using testing::StrEq;
using testing::ThrowsMessage;

// ---- Processors ---------------------------------------------------------------------------------

TEST(runtime, has_a_processor_per_core_that_it_may_use_or_as_many_as_asked_for) {
  const auto may_use = detail::choose_processors(detail::read_processor_limits(), 256);
  EXPECT_EQ(runtime().processors(), may_use.number);
  EXPECT_EQ(runtime().stats().taken_from, may_use.from);
  EXPECT_EQ(runtime({.processors = 3}).processors(), 3u);
  EXPECT_EQ(runtime({.processors = 256}).processors(), 256u);
}

TEST(runtime, rejects_a_number_of_processors_that_is_out_of_range) {
  EXPECT_THAT([] { runtime({.processors = 257}); },
              ThrowsMessage<std::invalid_argument>(
                  StrEq("verge: the number of processors must be from 1 to 256, not 257")));
  runtime rt({.processors = 2});
  EXPECT_THAT([&] { rt.set_processors(0); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("from 1 to 256, not 0")));
  EXPECT_THAT([&] { rt.set_processors(1000); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("not 1000")));
  EXPECT_EQ(rt.processors(), 2u);
  EXPECT_EQ(rt.run([] { return 1; }), 1) << "and it is unchanged";
}

TEST(runtime, rejects_an_unknown_engine) {
  EXPECT_THAT([] { runtime({.engine = static_cast<verge::engine>(99)}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("no such engine")));
}

TEST(set_processors, up_and_down_loses_no_task_and_no_timer) {
  runtime rt({.processors = 4});
  constexpr int tasks = 200;
  std::atomic<bool> over{false};
  std::atomic<int> ended{0};
  std::atomic<int> fired{0};
  for (int i = 0; i < tasks; ++i) {
    rt.spawn([&, i]() -> task<> {
        while (!over) {
          co_await verge::yield();
          if (i % 2 == 0) co_await verge::sleep(100us);
        }
        after_func(1ms, [&] { ++fired; }).detach();
        ++ended;
      }).detach();
  }
  for (int round = 0; round < test::scale(200, 50); ++round) {
    rt.set_processors(1 + static_cast<unsigned>(round * 5 % 8));
  }
  over = true;
  EXPECT_TRUE(eventually([&] { return ended == tasks; })) << ended;
  EXPECT_TRUE(eventually([&] { return fired == tasks; })) << fired;
}

/// To processors that stay: the figures are those of these.
TEST(set_processors, down_moves_the_timers_of_those_that_go) {
  runtime rt({.processors = 4});
  constexpr unsigned threads = 8;
  std::vector<verge::timer> timers(threads);
  for (verge::timer& t : timers) {
    // Threads have the processors in turn.
    std::thread([&] { t = after_func(rt, 1h, [] {}); }).join();
  }
  rt.set_processors(1);
  EXPECT_TRUE(test::eventually([&] {
    const auto s = rt.stats();
    return s.processors.size() == 1 && s.processors[0].timers_live == threads;
  })) << rt.stats().processors[0].timers_live;
}

TEST(set_processors, down_does_not_wait) {
  runtime rt({.processors = 4});
  std::atomic<bool> over{false};
  std::atomic<int> busy{0};
  std::vector<join_handle<>> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(rt.spawn([&] {
      ++busy;
      while (!over) std::this_thread::yield();
    }));
  }
  ASSERT_TRUE(eventually([&] { return busy == 4; }));
  rt.set_processors(1);  // while all four are in use
  EXPECT_EQ(rt.processors(), 1u);
  over = true;
  for (auto& one : all) one.join();
  EXPECT_EQ(rt.run([] { return 5; }), 5);
}

// ---- Fairness -----------------------------------------------------------------------------------

TEST(scheduler, two_tasks_that_hand_over_to_each_other_do_not_starve_a_third) {
  runtime rt({.processors = 1});
  std::atomic<bool> over{false};
  chan<int> there;
  chan<int> back;
  auto one = rt.spawn([&]() -> task<> {
    while (!over) {
      co_await verge::send(there, 1);
      co_await verge::recv(back);
    }
    there.close();
  });
  auto two = rt.spawn([&]() -> task<> {
    while (co_await verge::recv(there)) co_await verge::send(back, 1);
  });
  std::atomic<int> turns{0};
  auto third = rt.spawn([&]() -> task<> {
    while (!over) {
      ++turns;
      co_await verge::yield();
    }
  });
  EXPECT_TRUE(eventually([&] { return turns >= 100; })) << turns;
  EXPECT_EQ(rt.run([] { return 1; }), 1) << "what comes from outside has its turn as well";
  over = true;
  one.join();
  two.join();
  third.join();
}

TEST(scheduler, runs_more_tasks_than_a_local_queue_holds) {
  runtime rt({.processors = 2});
  std::atomic<int> ran{0};
  rt.run([&]() -> task<> {
    std::vector<join_handle<>> all;
    for (int i = 0; i < 5000; ++i)
      all.push_back(go([&]() -> task<> {
        ++ran;
        co_return;
      }));
    for (auto& h : all) co_await h;
  });
  EXPECT_EQ(ran, 5000);
}

TEST(scheduler, takes_tasks_from_many_threads) {
  runtime rt({.processors = 2});
  std::atomic<int> sum{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < test::scale(2000, 300); ++i) {
        sum += rt.run([]() -> task<int> {
          co_await verge::yield();
          co_return 1;
        });
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(sum, 8 * test::scale(2000, 300));
}

// ---- Calls that block ---------------------------------------------------------------------------

TEST(blocking, hands_the_processor_off_during_the_call) {
  runtime rt({.processors = 1});
  static_cast<detail::live_scheduler&>(detail::scheduler_of(rt))
      .limit_spares(0);  // they would help as well
  std::atomic<bool> blocked{false};
  std::latch over(1);
  auto blocker = rt.spawn([&] {
    return verge::blocking([&] {
      blocked = true;
      over.wait();
      return 7;
    });
  });
  ASSERT_TRUE(eventually([&] { return blocked.load(); }));
  EXPECT_EQ(rt.run([] { return 1; }), 1);
  EXPECT_EQ(rt.run([]() -> task<int> {
    co_await verge::sleep(1ms);
    co_return 2;
  }),
            2);
  over.count_down();
  EXPECT_EQ(blocker.join(), 7);
  EXPECT_EQ(verge::blocking([] { return 3; }), 3) << "on a plain thread it is a call";
  EXPECT_THROW(rt.run([] { verge::blocking([] { throw std::runtime_error("x"); }); }),
               std::runtime_error);
}

TEST(blocking, in_many_tasks_at_once_ends_in_all_of_them) {
  runtime rt({.processors = 2});
  std::vector<join_handle<int>> all;
  for (int i = 0; i < 50; ++i) {
    all.push_back(rt.spawn([i]() -> task<int> {
      verge::blocking([] { std::this_thread::sleep_for(2ms); });
      co_await verge::sleep(1ms);
      verge::blocking([] { std::this_thread::sleep_for(1ms); });
      co_return i;
    }));
  }
  int sum = 0;
  for (auto& h : all) sum += h.join();
  EXPECT_EQ(sum, 49 * 50 / 2);
}

// ---- Idle ---------------------------------------------------------------------------------------

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

std::uint64_t all_wakeups(const runtime& rt) {
  const auto s = rt.stats();
  return s.total.wakeups + s.polls + s.monitor_wakeups + s.poll_breaks;
}

TEST(an_idle_runtime, makes_no_wakeups_and_takes_no_cpu) {
  runtime rt({.processors = 2});
  as_default here(rt);
  const auto far = after(1h);
  after(1ms).recv();
  // Until everything is idle: nothing for a quarter of a second.
  ASSERT_TRUE(eventually([&] {
    const auto before = all_wakeups(rt);
    std::this_thread::sleep_for(250ms);
    return all_wakeups(rt) == before;
  }));
  const auto before = rt.stats();
  const double cpu = cpu_seconds();
  const auto seconds = test::scale(3s, 1s);
  std::this_thread::sleep_for(seconds);
  const auto after_it = rt.stats();
  EXPECT_EQ(after_it.total.wakeups, before.total.wakeups);
  EXPECT_EQ(after_it.polls, before.polls);
  EXPECT_EQ(after_it.poll_breaks, before.poll_breaks);
  EXPECT_EQ(after_it.monitor_wakeups, before.monitor_wakeups);
  EXPECT_EQ(after_it.total.tasks_run, before.total.tasks_run);
  EXPECT_LT(cpu_seconds() - cpu, 0.02) << "in " << seconds.count() << " s";
}

/// Otherwise it would be woken for each of them when it is due.
TEST(an_idle_runtime, drops_stopped_timers_before_it_sleeps) {
  for (const engine e : {engine::hybrid, engine::processor_heap}) {
    runtime rt({.processors = 2, .engine = e});
    as_default here(rt);
    const auto far = after(2h);
    std::vector<verge::timer> stopped;
    for (int i = 0; i < 100; ++i) stopped.push_back(after_func(1h, [] {}));
    for (auto& t : stopped) EXPECT_TRUE(t.stop());
    after(1ms).recv();
    EXPECT_TRUE(eventually([&] { return rt.stats().total.timers_deleted == 0; })) << name_of(e);
    EXPECT_EQ(rt.stats().total.timers_live, 1U);
    for (auto& t : stopped) {
      EXPECT_FALSE(t.reset(1h)) << "forgotten, and as good as new";
      EXPECT_TRUE(t.stop());
    }
  }
}

// ---- Figures ------------------------------------------------------------------------------------

TEST(stats, of_the_processors_add_up_and_tell_what_happened) {
  runtime rt({.processors = 3});
  as_default here(rt);
  std::atomic<int> fired{0};
  std::vector<verge::timer> pending;
  for (int i = 0; i < 100; ++i) after_func(1ms, [&] { ++fired; }).detach();
  for (int i = 0; i < 40; ++i) pending.push_back(after_func(1h, [] {}));
  for (int i = 0; i < 10; ++i) pending[static_cast<std::size_t>(i)].stop();
  ASSERT_TRUE(eventually([&] { return fired == 100; }));
  rt.run([]() -> task<> { co_await verge::yield(); });

  const auto s = rt.stats();
  EXPECT_EQ(s.processors.size(), 3u);
  EXPECT_EQ(s.total.timers_fired, 100u);
  EXPECT_EQ(s.total.timers_live, 30u);
  EXPECT_LE(s.total.timers_deleted, 10u);
  EXPECT_GE(s.total.tasks_run, 102u);
  EXPECT_EQ(s.total.lateness.count(), 100u);
  EXPECT_GT(s.total.lateness.percentile(0.5), 0);
  EXPECT_GE(s.total.lateness.percentile(0.99), s.total.lateness.percentile(0.5));
  EXPECT_GE(s.threads, 1u);
  EXPECT_GT(s.timer_bytes, 0u);
  processor_stats sum;
  for (const auto& p : s.processors) {
    sum.timers_live += p.timers_live;
    sum.timers_fired += p.timers_fired;
    sum.timers_stolen += p.timers_stolen;
    sum.lateness += p.lateness;
    EXPECT_LE(p.timers_stolen, p.timers_fired);
    EXPECT_EQ(p.lateness.count(), p.timers_fired);
  }
  EXPECT_EQ(sum.timers_live, s.total.timers_live);
  EXPECT_LE(sum.timers_fired, s.total.timers_fired) << "the total has what spare ones fired, too";
}

/// The figures tell what is held. Stopped in the order in which they were started, by a thread that
/// then has no more than a cache of them.
TEST(runtime, gives_memory_back_that_its_timers_do_not_need) {
  runtime rt{{.processors = 2}};
  const std::size_t before = rt.stats().timer_bytes;
  constexpr int many = 400'000;
  std::vector<timer> all;
  all.reserve(many);
  for (int i = 0; i < many; ++i) all.push_back(after_func(rt, 1h, [] {}));
  const std::size_t full = rt.stats().timer_bytes;
  EXPECT_GT(full - before, std::size_t{many} * 64);
  all.clear();
  EXPECT_TRUE(eventually([&] { return rt.stats().timer_bytes - before < (full - before) / 2; }));
  // And takes it again.
  for (int i = 0; i < many; ++i) all.push_back(after_func(rt, 1h, [] {}));
  EXPECT_EQ(rt.stats().total.timers_live, std::uint64_t{many});
}

}  // namespace
}  // namespace verge
