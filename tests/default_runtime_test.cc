// SPDX-License-Identifier: Apache-2.0

// The default runtime: it starts on first use, ends with the program whatever is pending, and
// starts again in the child of a fork. Each test is a separate process, as it is about start and
// end.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <verge/chan.h>
#include <verge/runtime.h>
#include <verge/task.h>
#include <verge/time.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <base/this_thread.h>
#include <engine/clockwork.h>
#include <sched/living_schedulers.h>
#include <support/patience.h>
#include <support/scale.h>
#include <support/thread_state.h>

// The subject is the child of a program with threads; the sanitizer would end it.
extern "C" const char* __tsan_default_options();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

namespace verge {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using testing::ExitedWithCode;

class default_runtime_test : public testing::Test {
 protected:
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }

  /// Ends the program with a code that says whether `right` holds.
  [[noreturn]] static void exit_with(bool right, int code) { std::exit(right ? code : 99); }
};

TEST_F(default_runtime_test, begins_with_its_first_use) {
  EXPECT_EXIT(
      {
        std::atomic<bool> fired{false};
        const auto t = after_func(1ms, [&] { fired = true; });
        exit_with(eventually([&] { return fired.load(); }), 3);
      },
      ExitedWithCode(3), "");
  EXPECT_EXIT(
      {
        const int got = go([]() -> task<int> {
                          co_await verge::sleep(1ms);
                          co_return 4;
                        }).join();
        std::exit(got);
      },
      ExitedWithCode(4), "");
}

TEST_F(default_runtime_test, is_made_with_the_options_that_were_set_before_its_first_use) {
  EXPECT_EXIT(
      {
        static std::atomic<int> stalls{0};
        set_default_runtime_options(
            {.processors = 3, .stall_after = 20ms, .on_stall = [](const stall&) { ++stalls; }});
        go([] { std::this_thread::sleep_for(200ms); }).join();
        exit_with(default_runtime().processors() == 3 && eventually([] { return stalls >= 1; }), 5);
      },
      ExitedWithCode(5), "");
  EXPECT_EXIT(
      {
        verge::sleep(1ms).wait();
        bool refused = false;
        try {
          set_default_runtime_options({.processors = 1});
        } catch (const std::logic_error&) {
          refused = true;
        }
        exit_with(refused, 6);
      },
      ExitedWithCode(6), "");
}

TEST_F(default_runtime_test, is_the_same_for_all_threads_that_use_it_first) {
  EXPECT_EXIT(
      {
        std::atomic<int> different{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < 8; ++i) {
          threads.emplace_back([&] {
            runtime& mine = default_runtime();
            verge::sleep(1ms).wait();
            different += &mine != &default_runtime();
          });
        }
        for (auto& t : threads) t.join();
        exit_with(different == 0, 3);
      },
      ExitedWithCode(3), "");
}

TEST_F(default_runtime_test, ends_at_exit_with_timers_pending_and_callbacks_running) {
  EXPECT_EXIT(
      {
        static std::atomic<int> calls{0};
        static std::atomic<int> ticks{0};
        static std::atomic<int> sleeps{0};
        after_func(1h, [] {}).detach();
        every(100us, [] {
          ++calls;
          std::this_thread::sleep_for(200us);  // longer than a period: one is always running
        }).detach();
        static const auto t = every(50us, [] { ++ticks; });
        static const auto c = tick(10us);
        go([]() -> task<> {
          for (;; ++sleeps) co_await verge::sleep(10us);
        }).detach();
        exit_with(eventually([] { return calls > 5 && ticks > 5 && sleeps > 5 && c.size() == 1; }),
                  5);
      },
      ExitedWithCode(5), "");
}

/// A thread of the runtime has something of the program's, whose destructor takes a while. The end
/// of the program waits for that before it destroys static objects; for a second at most, which may
/// pass in a moment for a machine that stands still, but not five times.
TEST_F(default_runtime_test, waits_at_exit_for_what_its_threads_destroy) {
  static std::atomic<bool> ends{false};
  static std::atomic<bool> destroyed{false};
  struct of_a_thread {
    ~of_a_thread() {
      for (int i = 0; i < 50 && !ends; ++i) std::this_thread::sleep_for(1ms);
      destroyed = true;
    }
  };
  struct of_the_program {
    ~of_the_program() {
      ends = true;
      std::_Exit(destroyed ? 5 : 6);
    }
  };
  int status = 0;
  for (int i = 0; i < 5 && status != 5; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      static const of_the_program last;
      go([] { static thread_local const of_a_thread mine; }).join();
      std::exit(7);
    }
    ::waitpid(child, &status, 0);
    status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
  }
  EXPECT_EQ(status, 5);
}

TEST_F(default_runtime_test, ends_at_exit_from_inside_a_callback) {
  EXPECT_EXIT(
      {
        after_func(1h, [] {}).detach();
        after_func(1ms, [] { std::exit(6); }).detach();
        for (;;) ::pause();
      },
      ExitedWithCode(6), "");
}

TEST_F(default_runtime_test, ends_at_exit_from_inside_a_task_of_any_kind) {
  EXPECT_EXIT(go([] { std::exit(3); }).join(), ExitedWithCode(3), "");
  EXPECT_EXIT(default_runtime().run([] { std::exit(4); }), ExitedWithCode(4), "");
  EXPECT_EXIT(go([] { blocking([] { std::exit(5); }); }).join(), ExitedWithCode(5), "");
  EXPECT_EXIT(default_runtime().run([]() -> task<> {
    co_await verge::sleep(1ms);
    std::exit(6);
  }),
              ExitedWithCode(6), "");
}

/// It is in the middle of running.
TEST_F(default_runtime_test, does_not_destroy_the_task_that_ends_the_program) {
  struct speaks {
    speaks() = default;
    speaks(const speaks&) = delete;
    speaks& operator=(const speaks&) = delete;
    ~speaks() { std::_Exit(98); }
  };
  EXPECT_EXIT(default_runtime().run([]() -> task<> {
    const speaks when_destroyed;
    co_await verge::sleep(1ms);
    std::exit(7);
  }),
              ExitedWithCode(7), "");
}

TEST_F(default_runtime_test, ends_at_exit_though_callbacks_and_tasks_wait_forever) {
  EXPECT_EXIT(
      {
        static chan<int> never(0);
        static std::atomic<int> waiting{0};
        const auto wait = [] {
          ++waiting;
          never.recv();
        };
        after_func(0s, wait).detach();
        after_func(0s, [] {
          ++waiting;
          verge::sleep(1h).wait();
        }).detach();
        go(wait).detach();
        exit_with(eventually([&] { return waiting == 3; }), 8);
      },
      ExitedWithCode(8), "");
}

/// It runs forever: the end waits for it as long as for any other, which is a second.
TEST_F(default_runtime_test, waits_at_exit_for_a_task_that_has_waited_and_runs_again) {
  EXPECT_EXIT(
      {
        struct measures {
          clock::time_point since{};
          ~measures() {
            if (clock::now() - since < 1s) std::_Exit(97);
          }
        };
        static measures after_the_end;
        static chan<int> first(0);
        static std::atomic<bool> runs{false};
        go([] {
          first.recv();
          runs = true;
          for (;;) std::this_thread::sleep_for(1ms);
        }).detach();
        const bool waited = eventually([] { return default_runtime().stats().tasks_waiting == 1; });
        first.send(1);
        const bool right = waited && eventually([] { return runs.load(); });
        after_the_end.since = clock::now();
        exit_with(right, 13);
      },
      ExitedWithCode(13), "");
}

/// For objects that are destroyed after it has ended: whether what they see does not change.
struct sees_that_it_stands_still {
  std::atomic<long>& steps;
  ~sees_that_it_stands_still() {
    const long before = steps;
    std::this_thread::sleep_for(50ms);  // in which nothing may happen
    if (steps != before) std::_Exit(97);
  }
};

TEST_F(default_runtime_test, resumes_no_task_after_exit) {
  EXPECT_EXIT(
      {
        static std::atomic<long> steps{0};
        static const sees_that_it_stands_still witness{steps};
        static chan<int> there(0);
        static chan<int> back(0);
        go([] {
          for (;; ++steps) {
            there.send(1);
            back.recv();
          }
        }).detach();
        go([] {
          for (;; ++steps) {
            there.recv();
            back.send(1);
          }
        }).detach();
        exit_with(eventually([] { return steps > 100; }), 11);
      },
      ExitedWithCode(11), "");
}

TEST_F(default_runtime_test, ends_at_exit_though_its_threads_start_tasks_as_they_end) {
  struct starts_a_task {
    int used = 0;
    ~starts_a_task() {
      go([] {}).detach();
    }
  };
  EXPECT_EXIT(
      {
        go([] {
          thread_local starts_a_task mine;
          ++mine.used;
        }).join();
        std::exit(12);
      },
      ExitedWithCode(12), "");
}

TEST_F(default_runtime_test, ends_at_exit_though_a_static_runtime_waits_for_it) {
  EXPECT_EXIT(
      {
        static runtime own({.processors = 1});
        static chan<int> never(0);
        static std::atomic<bool> waits{false};
        own.spawn([] {
             auto suspended = default_runtime().spawn([]() -> task<> { co_await recv(never); });
             waits = true;
             suspended.join();
           })
            .detach();
        exit_with(eventually([] { return waits.load(); }), 13);
      },
      ExitedWithCode(13), "");
}

TEST_F(default_runtime_test, ends_at_exit_while_other_threads_use_its_timers) {
  for (int round = 0; round < test::scale(10, 3); ++round) {
    EXPECT_EXIT(
        {
          static std::atomic<int> at_work{0};
          for (int kind = 0; kind < 3; ++kind) {
            std::thread([kind] {
              std::vector<verge::timer> timers(1000);
              for (auto& t : timers) t = after_func(30s, [p = std::make_shared<int>(1)] {});
              ++at_work;
              for (std::size_t i = 0;; ++i) {
                verge::timer& t = timers[i % timers.size()];
                if (kind == 0) t.reset(30s);
                if (kind == 1) t = after_func(30s, [] {});
                if (kind == 2) t.stop();
              }
            }).detach();
          }
          exit_with(eventually([] { return at_work == 3; }), 9);
        },
        ExitedWithCode(9), "");
  }
}

TEST_F(default_runtime_test, throws_that_it_has_ended_to_late_callers) {
  EXPECT_EXIT(
      {
        // Registered before the runtime begins, so called after it has ended.
        std::atexit([] {
          try {
            after_func(1s, [] {}).detach();
          } catch (const std::logic_error& e) {
            std::fprintf(stderr, "%s\n", e.what());
            std::_Exit(7);
          }
        });
        verge::sleep(1ms).wait();
        std::exit(1);
      },
      ExitedWithCode(7), "the default runtime has ended, for the program is exiting");
}

/// Runs `child` in the child of a fork; returns its exit code.
template <class F>
int in_child(F child) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    child();
    std::_Exit(98);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST_F(default_runtime_test, in_the_child_of_a_fork_is_a_new_one_and_old_timers_are_lost) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  // The runtime from before the fork is leaked there, on purpose.
  GTEST_SKIP() << "sanitizers support no new threads, or no leaks, in the child of a fork";
#endif
  EXPECT_EXIT(
      {
        std::atomic<int> fired{0};
        auto func = after_func(50ms, [&] { ++fired; });
        verge::timer with_channel(50ms);
        auto ticks = every(10ms, [&] { ++fired; });
        verge::sleep(1ms).wait();
        const int code = in_child([&] {
          fired = 0;
          // On a loaded machine it may have fired before the fork.
          const std::size_t before = with_channel.c().size();
          if (func.stop() || with_channel.stop() || ticks.stop()) std::_Exit(10);
          for (auto reset : {+[](verge::timer& t) { t.reset(1s); },
                             +[](verge::timer& t) { t.reset_at(clock::now()); }}) {
            for (auto* t : {&func, &with_channel}) {
              try {
                reset(*t);
                std::_Exit(11);
              } catch (const std::logic_error& e) {
                if (std::string(e.what()).find("started before a fork") == std::string::npos) {
                  std::_Exit(12);
                }
              }
            }
          }
          // New ones work, on a new runtime.
          std::atomic<bool> fresh{false};
          const auto t = after_func(100ms, [&] { fresh = true; });
          verge::sleep(100ms).wait();
          if (!eventually([&] { return fresh.load(); })) std::_Exit(13);
          if (fired != 0) std::_Exit(14);
          if (with_channel.c().size() != before) std::_Exit(15);
          func = verge::timer();  // old handles can be destroyed
          std::exit(20);          // and it ends like any other program
        });
        std::fprintf(stderr, "the child said %d\n", code);
        // The parent continues as if nothing had happened.
        exit_with(code == 20 && eventually([&] { return fired >= 3; }), 8);
      },
      ExitedWithCode(8), "the child said 20");
}

TEST_F(default_runtime_test, is_forked_while_its_threads_are_running) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a thread that does not exist in the child may hold the sanitizer's locks";
#endif
  EXPECT_EXIT(
      {
        for (int i = 0; i < 4; ++i) {
          every(20us, [] { const auto t = after_func(1ms, [] {}); }).detach();
        }
        int right = 0;
        for (int i = 0; i < 20; ++i) {
          right += in_child([] {
                     verge::sleep(1ms).wait();
                     std::_Exit(9);
                   }) == 9;
        }
        std::fprintf(stderr, "%d of 20 children were right\n", right);
        exit_with(right == 20, 8);
      },
      ExitedWithCode(8), "");
}

/// A fork waits for the holder of each: in the child no thread would release it.
TEST_F(default_runtime_test, finds_the_locks_that_all_runtimes_share_free_in_the_child_of_a_fork) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers support no new threads, or no leaks, in the child of a fork";
#endif
  for (std::mutex* lock : {&detail::lock_of_schedulers(), &detail::clockwork::lock_of_all()}) {
    EXPECT_EXIT(
        {
          const runtime rt({.processors = 1});
          const pid_t forks = ::gettid();
          std::atomic<bool> is_held{false};
          std::thread other([&] {
            std::lock_guard held(*lock);
            is_held = true;
            eventually([&] { return test::is_asleep(forks); });
          });
          eventually([&] { return is_held.load(); });
          const int code = in_child([] {
            ::alarm(60);
            runtime({.processors = 1}).run([] { after_func(1h, [] {}).detach(); });
            std::_Exit(9);
          });
          other.join();
          std::fprintf(stderr, "the child said %d\n", code);
          exit_with(code == 9, 8);
        },
        ExitedWithCode(8), "the child said 9");
  }
}

/// The actions of a child that was forked inside a callback or a task: it uses timers, tasks and
/// channels of a new runtime, and ends.
[[noreturn]] void use_everything_and_exit(const clock::time_point& forked_at) {
  std::atomic<bool> fired{false};
  const auto t = after_func(10ms, [&] { fired = true; });
  if (!eventually([&] { return fired.load(); })) std::_Exit(10);
  if (clock::now() < forked_at + 10ms) std::_Exit(11);
  verge::sleep(1ms).wait();
  if (!after(1ms).recv()) std::_Exit(12);
  if (go([] { return 21; }).join() != 21) std::_Exit(13);
  if (default_runtime().run([]() -> task<int> {
        co_await verge::sleep(1ms);
        co_return 22;
      }) != 22) {
    std::_Exit(14);
  }
  std::_Exit(20);
}

TEST_F(default_runtime_test, starts_again_in_a_child_that_was_forked_inside_a_callback_or_a_task) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers support no new threads, or no leaks, in the child of a fork";
#endif
  const auto fork_here = [] {
    const auto now = clock::now();
    return in_child([&] { use_everything_and_exit(now); });
  };
  EXPECT_EXIT(
      {
        const chan<int> code(1);
        const auto t = after_func(1ms, [&] { code.send(fork_here()); });
        std::exit(*code.recv());
      },
      ExitedWithCode(20), "");
  EXPECT_EXIT(std::exit(go([&] { return fork_here(); }).join()), ExitedWithCode(20), "");
  EXPECT_EXIT(std::exit(go([&]() -> task<int> {
                          co_await verge::sleep(1ms);
                          co_return fork_here();
                        }).join()),
              ExitedWithCode(20), "");
  EXPECT_EXIT(
      {
        runtime own({.processors = 1});
        std::exit(own.run([&] { return fork_here(); }));
      },
      ExitedWithCode(20), "");
}

TEST_F(default_runtime_test, leaks_an_explicit_runtime_in_the_child) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a thread that does not exist in the child may hold this sanitizer's locks";
#endif
  EXPECT_EXIT(
      {
        auto rt = std::make_unique<runtime>(runtime_options{.processors = 2});
        std::atomic<bool> fired{false};
        rt->run([&] { after_func(50ms, [&] { fired = true; }).detach(); });
        const int code = in_child([&] {
          rt.reset();  // has no threads to wait for
          verge::sleep(100ms).wait();
          std::_Exit(fired ? 10 : 20);
        });
        std::fprintf(stderr, "the child said %d\n", code);
        exit_with(code == 20 && eventually([&] { return fired.load(); }), 8);
      },
      ExitedWithCode(8), "the child said 20");
}

}  // namespace
}  // namespace verge
