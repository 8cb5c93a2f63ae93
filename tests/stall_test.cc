// SPDX-License-Identifier: Apache-2.0

// Turns that hold a processor for long are counted, and reported with a backtrace.

#include <verge/stall.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <support/patience.h>
#include <verge/dump.h>
#include <verge/log.h>
#include <verge/runtime.h>
#include <verge/task.h>
#include <verge/time.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <sched/live_scheduler.h>
#include <sched/stall_watch.h>
#include <sched/thread_probe.h>
#include <support/fake_engine.h>

#if defined(__SANITIZE_THREAD__)
// It holds signals back until the thread calls something that it intercepts.
constexpr bool signals_arrive = false;
#else
constexpr bool signals_arrive = true;
#endif

namespace {

using namespace std::chrono_literals;

class reports {
 public:
  std::function<void(const verge::stall&)> handler() {
    return [this](const verge::stall& s) {
      std::lock_guard held(lock_);
      all_.push_back(s);
    };
  }
  std::vector<verge::stall> all() const {
    std::lock_guard held(lock_);
    return all_;
  }
  std::size_t count() const { return all().size(); }

 private:
  mutable std::mutex lock_;
  std::vector<verge::stall> all_;
};

template <class Condition>
[[gnu::noinline]] void spin_until(Condition&& done) {
  while (!done()) {
  }
}

TEST(stall, a_callback_that_spins_is_reported_while_it_lasts_and_once) {
  reports got;
  std::atomic<bool> reported = false;
  verge::runtime rt({.processors = 2, .on_stall = [&](const verge::stall& s) {
                       got.handler()(s);
                       reported = true;
                     }});
  std::atomic<bool> ended = false;
  const auto t = verge::after_func(rt, 1ms, [&] {
    spin_until([&] { return reported.load(); });  // so it lasts when it is reported
    const auto end = verge::clock::now() + 200ms;
    spin_until([&] { return verge::clock::now() > end; });
    ended = true;
  });
  ASSERT_TRUE(verge::test::eventually([&] { return ended.load(); }));
  ASSERT_EQ(got.count(), 1);
  const verge::stall s = got.all()[0];
  EXPECT_GE(s.lasted, 100ms);
  EXPECT_GT(s.thread, 0);
  EXPECT_EQ(s.unreported, 0);
  if (signals_arrive) {
    EXPECT_FALSE(s.is_task);
    EXPECT_THAT(s.what, testing::HasSubstr("a_callback_that_spins_is_reported"));
    EXPECT_EQ(s.label, "");
    EXPECT_GE(s.backtrace.size(), 3);
    // Also functions that only the file's own table of symbols knows.
    EXPECT_THAT(verge::to_string(s), testing::HasSubstr("spin_until<"));
  }
  EXPECT_EQ(rt.stats().stalls, 1);
  EXPECT_GE(rt.stats().longest_stall, 100ms);
}

TEST(stall, a_task_that_blocks_with_a_lock_held_is_reported_with_its_label) {
  reports got;
  verge::runtime rt({.processors = 2, .stall_after = 30ms, .on_stall = got.handler()});
  std::mutex lock;
  std::unique_lock held(lock);
  auto task = rt.spawn([&] {
    verge::label_task("the one that waits");
    // What a report needs must not need what the stalled code holds.
    void* const memory = std::malloc(64);
    std::lock_guard blocks(lock);
    std::free(memory);
  });
  ASSERT_TRUE(verge::test::eventually([&] { return got.count() == 1; }));
  held.unlock();
  task.join();
  const verge::stall s = got.all()[0];
  if (signals_arrive) {
    EXPECT_TRUE(s.is_task);
    EXPECT_EQ(s.what, "the one that waits");
    EXPECT_EQ(s.label, "the one that waits");
    EXPECT_THAT(s.place, testing::HasSubstr("a_task_that_blocks_with_a_lock_held"));
    EXPECT_FALSE(s.backtrace.empty());
  }
}

TEST(stall, of_a_spare_processor_is_reported_while_all_others_are_idle) {
  reports got;
  verge::runtime rt({.processors = 1, .stall_after = 400ms, .on_stall = got.handler()});
  std::atomic<bool> begun = false;
  std::atomic<bool> may_end = false;
  auto first = rt.spawn([&] {
    while (!begun) std::this_thread::sleep_for(1ms);
  });
  auto second = rt.spawn([&] {  // begins on a spare processor, since the first waits for it
    begun = true;
    while (!may_end) std::this_thread::sleep_for(1ms);
  });
  first.join();
  EXPECT_TRUE(verge::test::eventually([&] { return got.count() == 1; }));
  may_end = true;
  second.join();
}

TEST(stall, of_a_processor_that_is_to_retire_is_reported_while_all_others_are_idle) {
  for (const int stuck : {0, 1}) {  // one of the two is on the processor that retires
    reports got;
    verge::runtime rt({.processors = 2, .stall_after = 400ms, .on_stall = got.handler()});
    std::atomic<int> begun = 0;
    std::atomic<bool> may_end[2] = {false, false};
    const auto hold = [&](int i) {
      ++begun;
      while (!may_end[i]) std::this_thread::sleep_for(1ms);
    };
    auto first = rt.spawn([&] { hold(0); });
    auto second = rt.spawn([&] { hold(1); });
    while (begun != 2) std::this_thread::yield();
    rt.set_processors(1);
    may_end[1 - stuck] = true;
    EXPECT_TRUE(verge::test::eventually([&] { return got.count() == 1; }));
    may_end[stuck] = true;
    first.join();
    second.join();
  }
}

TEST(stall, reports_are_one_a_second_and_tell_how_many_were_left_out) {
  reports got;
  verge::runtime rt({.processors = 4, .stall_after = 20ms, .on_stall = got.handler()});
  std::atomic<bool> stop = false;
  std::vector<verge::join_handle<void>> tasks;
  for (int i = 0; i < 4; ++i) {
    tasks.push_back(rt.spawn([&] {
      while (!stop) std::this_thread::sleep_for(1ms);
    }));
  }
  ASSERT_TRUE(verge::test::eventually([&] { return rt.stats().stalls == 4; }));
  ASSERT_TRUE(verge::test::eventually([&] { return got.count() >= 1; }));
  stop = true;
  for (auto& t : tasks) t.join();
  // The next one is reported a second later, with the number of the others.
  while (got.count() < 2) {
    rt.run([] { std::this_thread::sleep_for(60ms); });
  }
  EXPECT_GE(got.all()[1].unreported, 3);
  EXPECT_GE(got.all()[1].since - got.all()[0].since, 800ms);
}

TEST(stall, what_says_that_it_blocks_is_none) {
  reports got;
  verge::runtime rt({.processors = 1, .stall_after = 20ms, .on_stall = got.handler()});
  for (int i = 0; i < 3; ++i) {
    rt.run([&] { verge::blocking([] { std::this_thread::sleep_for(100ms); }); });
    rt.run([&] { verge::sleep(100ms).wait(); });
    rt.run([]() -> verge::task<> { co_await verge::sleep(100ms); });
  }
  // A machine that stands still may stall anything, but not the sleeps of all three rounds.
  EXPECT_LT(rt.stats().stalls, 3);
}

TEST(stall, is_counted_without_a_handler_and_no_signal_is_sent) {
  const std::uint64_t sent = verge::detail::thread_probe::sent();
  verge::runtime rt({.processors = 1, .stall_after = 20ms});
  std::atomic<bool> stop = false;
  auto task = rt.spawn([&] { spin_until([&] { return stop.load(); }); });
  ASSERT_TRUE(verge::test::eventually([&] { return rt.stats().stalls == 1; }));
  stop = true;
  task.join();

  verge::runtime off({.processors = 1, .stall_after = 0ms});
  off.run([] { std::this_thread::sleep_for(300ms); });
  EXPECT_EQ(off.stats().stalls, 0);
  EXPECT_EQ(verge::detail::thread_probe::sent(), sent);
}

TEST(stall, has_the_label_and_the_place_of_a_timer) {
  if (!signals_arrive) GTEST_SKIP();
  reports got;
  verge::runtime rt({.processors = 1, .stall_after = 20ms, .on_stall = got.handler()});
  std::atomic<bool> stop = false;
  const auto t = verge::after_func(rt, 1ms, [&] { spin_until([&] { return stop.load(); }); },
                                   {.label = "the slow one"});
  ASSERT_TRUE(verge::test::eventually([&] { return got.count() == 1; }));
  stop = true;
  const verge::stall s = got.all()[0];
  EXPECT_EQ(s.what, "the slow one");
  EXPECT_EQ(s.label, "the slow one");
#if defined(__cpp_lib_source_location)
  EXPECT_THAT(s.place, testing::StartsWith("stall_test.cc:"));
  EXPECT_THAT(verge::to_string(s), testing::StartsWith("callback the slow one (stall_test.cc:"));
#endif
}

TEST(stall, two_runtimes_report_at_the_same_time) {
  reports one, other;
  verge::runtime a({.processors = 1, .stall_after = 20ms, .on_stall = one.handler()});
  verge::runtime b({.processors = 1, .stall_after = 20ms, .on_stall = other.handler()});
  std::atomic<bool> stop = false;
  const auto stuck = [&] {
    while (!stop) std::this_thread::sleep_for(1ms);
  };
  auto x = a.spawn(stuck);
  auto y = b.spawn(stuck);
  EXPECT_TRUE(verge::test::eventually([&] { return one.count() == 1 && other.count() == 1; }));
  stop = true;
  x.join();
  y.join();
}

TEST(stall, that_a_runtime_ends_while_it_asks_leaves_the_place_to_others) {
  for (int i = 0; i < 20; ++i) {
    reports got;
    verge::runtime rt({.processors = 1, .stall_after = 1ms, .on_stall = got.handler()});
    rt.run([&] { std::this_thread::sleep_for(std::chrono::milliseconds(5 + i)); });
  }
  reports got;
  verge::runtime rt({.processors = 1, .stall_after = 20ms, .on_stall = got.handler()});
  std::atomic<bool> stop = false;
  auto stuck = rt.spawn([&] {
    while (!stop) std::this_thread::sleep_for(1ms);
  });
  EXPECT_TRUE(verge::test::eventually([&] { return got.count() == 1; }));
  if (signals_arrive && got.count() == 1) {
    EXPECT_FALSE(got.all()[0].backtrace.empty());
  }
  stop = true;
  stuck.join();
}

std::atomic<int> urgent = 0;

TEST(stall, the_programs_own_handler_of_the_signal_is_still_called) {
  // Installed after the library's, as a program may: then the library's is the one that is lost.
  // Installed before, both work.
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGURG, nullptr, &before), 0);
  if (before.sa_handler != SIG_DFL) GTEST_SKIP() << "the library's is installed already";
  struct sigaction own {};
  own.sa_handler = [](int) { ++urgent; };
  ::sigaction(SIGURG, &own, nullptr);
  reports got;
  verge::runtime rt({.processors = 1, .on_stall = got.handler()});
  ::kill(::getpid(), SIGURG);
  EXPECT_TRUE(verge::test::eventually([&] { return urgent == 1; }));
}

TEST(stall, can_be_logged) {
  static std::mutex lock;
  static std::string line;
  const auto before = verge::set_log_handler([](verge::log_level, std::string_view text) noexcept {
    std::lock_guard held(lock);
    line = text;
  });
  {
    verge::runtime rt({.processors = 1, .stall_after = 20ms, .on_stall = verge::log_stall});
    std::atomic<bool> stop = false;
    auto task = rt.spawn([&] {
      while (!stop) std::this_thread::sleep_for(1ms);
    });
    EXPECT_TRUE(verge::test::eventually([&] {
      std::lock_guard held(lock);
      return line.find(" has held a processor for ") != std::string::npos;
    }));
    stop = true;
    task.join();
  }
  verge::set_log_handler(before);
}

/// Its thread has the signal blocked, as code of the kernel may.
TEST(stall, of_a_thread_that_does_not_answer_is_reported_without_a_backtrace_after_100_ms) {
  constexpr std::int64_t ms = 1'000'000;
  verge::test::fake_clockwork fake(1);
  verge::detail::worker w(fake.scheduler());
  std::atomic<bool> over = false;
  std::thread deaf([&] {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    w.thread_id = ::gettid();
    while (!over) std::this_thread::sleep_for(1ms);
  });
  ASSERT_TRUE(verge::test::eventually([&] { return w.thread_id != 0; }));
  reports got;
  verge::detail::stall_watch watch;
  watch.set(20 * ms, got.handler());
  w.begin_turn();
  watch.look_locked(w, 1000 * ms);
  watch.look_locked(w, 1030 * ms);
  EXPECT_TRUE(watch.owes_report());
  watch.finish_look(1030 * ms);  // asks
  watch.finish_look(1130 * ms);
  EXPECT_TRUE(watch.owes_report());
  EXPECT_EQ(got.count(), 0);
  watch.finish_look(1131 * ms);
  EXPECT_FALSE(watch.owes_report());
  ASSERT_EQ(got.count(), 1);
  EXPECT_EQ(got.all()[0].lasted, 131ms);
  EXPECT_TRUE(got.all()[0].backtrace.empty());
  over = true;
  deaf.join();
}

}  // namespace
