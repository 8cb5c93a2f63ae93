// SPDX-License-Identifier: Apache-2.0

// Using a runtime from before a fork throws in the child, where its threads do not exist. It throws
// at once; a child that blocks instead is ended by an alarm.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <verge/chan.h>
#include <verge/context.h>
#include <verge/runtime.h>
#include <verge/simulation.h>
#include <verge/task.h>
#include <verge/time.h>
#include <verge/trace.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <base/this_thread.h>
#include <context/scope.h>
#include <sched/simulated_scheduler.h>
#include <support/lone_engine.h>
#include <support/patience.h>
#include <support/scale.h>

// A child of a program with threads is the subject here; the sanitizer would end it.
extern "C" const char* __tsan_default_options();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

namespace verge {
namespace {

using namespace std::chrono_literals;
using test::eventually;

/// Runs `child` in the child of a fork and returns its exit code, or 1000 + the signal.
template <class F>
int in_child(F child) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(60);
    child();
    std::_Exit(98);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/// The same after a second fork, in a new session: what daemon(3) does, and daemons do after it.
template <class F>
int in_daemon(F child) {
  return in_child([&] {
    ::setsid();
    std::_Exit(in_child(child));
  });
}

/// Returns whether f throws the std::logic_error of a lost runtime.
template <class F>
bool refuses(F f) {
  try {
    f();
  } catch (const std::logic_error& e) {
    return std::string(e.what()).find("started before a fork") != std::string::npos;
  }
  return false;
}

/// A fork in a process whose other threads run: their locks are in any state.
class fork_of_a_running_runtime : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "a thread that does not exist in the child may hold this sanitizer's locks";
#endif
  }
  static int rounds() { return test::scale(40, 10); }

  /// Keeps the workers of rt and its locks busy.
  static void make_busy(runtime& rt) {
    rt.run([] {
      for (int i = 0; i < 4; ++i) {
        every(100us, [] {
          const auto t = after_func(1ms, [] {});
          go([] {}).detach();
        }).detach();
      }
    });
  }
};

TEST_F(fork_of_a_running_runtime, run_and_spawn_throw_in_the_child_every_time) {
  runtime rt({.processors = 2});
  make_busy(rt);
  for (int i = 0; i < rounds(); ++i) {
    const auto use = [&] {
      if (!refuses([&] { rt.run([] {}); })) std::_Exit(10);
      if (!refuses([&] { rt.run([]() -> task<> { co_return; }); })) std::_Exit(11);
      if (!refuses([&] { rt.spawn([] {}).detach(); })) std::_Exit(12);
      if (!refuses([&] { rt.set_processors(3); })) std::_Exit(13);
      if (!refuses([&] { static_cast<void>(rt.stats()); })) std::_Exit(14);
      if (!refuses([&] { const trace recording(rt); })) std::_Exit(15);
      std::_Exit(20);
    };
    ASSERT_EQ(in_child(use), 20);
    ASSERT_EQ(in_daemon(use), 20);
  }
}

TEST_F(fork_of_a_running_runtime, a_saved_reference_to_the_default_runtime_throws_in_the_child) {
  runtime& kept = default_runtime();
  make_busy(kept);
  for (int i = 0; i < rounds(); ++i) {
    const auto use = [&] {
      if (!refuses([&] { kept.run([] {}); })) std::_Exit(10);
      if (!refuses([&] { kept.spawn([] {}).detach(); })) std::_Exit(11);
      std::_Exit(20);
    };
    ASSERT_EQ(in_child(use), 20);
    ASSERT_EQ(in_daemon(use), 20);
  }
}

TEST_F(fork_of_a_running_runtime, an_earlier_task_cannot_be_joined_unless_it_has_ended) {
  runtime rt({.processors = 2});
  make_busy(rt);
  const chan<int> never(0);
  auto plain = rt.spawn([never] { never.recv(); });
  auto suspended = rt.spawn([never]() -> task<> { co_await verge::recv(never); });
  auto ended = rt.spawn([] { return 7; });
  ASSERT_TRUE(eventually([&] { return ended.done(); }));
  for (int i = 0; i < rounds(); ++i) {
    const int code = in_child([&] {
      if (!refuses([&] { plain.join(); })) std::_Exit(10);
      if (!refuses([&] { suspended.join(); })) std::_Exit(11);
      suspended.cancel();  // returns, and wakes nothing
      if (ended.join() != 7) std::_Exit(12);
      { const auto dropped = std::move(plain); }
      std::_Exit(20);
    });
    EXPECT_EQ(code, 20);
    if (code != 20) break;
  }
  // First the one that would otherwise get the value if it came first to wait.
  suspended.cancel();
  EXPECT_THROW(suspended.join(), cancelled);
  never.send(1);
  plain.join();
}

/// The child sends a value to a waiting coroutine that no thread will resume.
TEST_F(fork_of_a_running_runtime, a_send_to_an_earlier_task_returns_in_the_child) {
  runtime rt({.processors = 2});
  make_busy(rt);
  const chan<int> c(0);
  std::atomic<int> received{0};
  auto receives = rt.spawn([&]() -> task<> { received = *co_await verge::recv(c); });
  for (int i = 0; i < rounds(); ++i) {
    const int code = in_child([&] {
      static_cast<void>(c.try_send(1));
      std::_Exit(20);
    });
    EXPECT_EQ(code, 20);
    if (code != 20) break;
  }
  c.send(2);
  receives.join();
  EXPECT_EQ(received, 2);
}

TEST_F(fork_of_a_running_runtime, blocking_just_calls_in_a_child_forked_by_a_task) {
  runtime rt({.processors = 2});
  make_busy(rt);
  EXPECT_EQ(rt.run([&] {
    return in_child([&] {
      if (blocking([] { return 3; }) != 3) std::_Exit(10);
      if (!refuses([&] { rt.run([] {}); })) std::_Exit(11);
      std::_Exit(20);
    });
  }),
            20);
}

TEST_F(fork_of_a_running_runtime, a_simulation_throws_in_the_child) {
  simulation sim;
  sim.run([]() -> task<> { co_await verge::sleep(1h); });
  EXPECT_EQ(in_child([&] {
              if (!refuses([&] { sim.thread([] {}).detach(); })) std::_Exit(10);
              if (!refuses([&] { sim.run([] {}); })) std::_Exit(11);
              if (!refuses([&] { sim.run_for(1s); })) std::_Exit(12);
              if (!refuses([&] { const simulation::participant me(sim); })) std::_Exit(13);
              std::_Exit(20);
            }),
            20);
}

/// The lock of the simulation is held when the process is forked, and so for good in the child.
TEST_F(fork_of_a_running_runtime, a_send_to_a_task_of_a_simulation_returns_in_the_child) {
  simulation sim;
  const chan<int> c(0);
  sim.run([&c]() -> task<> {
    go([](const chan<int>& from) -> task<> { co_await verge::recv(from); }(c)).detach();
    co_await verge::sleep(1s);
  });
  int code = 0;
  auto* const s = static_cast<detail::simulated_scheduler*>(detail::current_scheduler());
  EXPECT_TRUE(s->run_until([&] {
    code = in_child([&] { std::_Exit(c.try_send(1) ? 20 : 10); });
    return true;
  }));
  EXPECT_EQ(code, 20);
}

/// What a handle refers to belongs to the parent: the child destroys none of it.
TEST_F(fork_of_a_running_runtime,
       a_context_callback_of_before_is_detached_and_destroyed_in_silence) {
  runtime rt({.processors = 2});
  make_busy(rt);
  const auto payload = std::make_shared<int>(0);
  const std::weak_ptr<int> kept = payload;
  auto [ctx, cancel] = with_cancel(background());
  auto detached = after_func(rt, background(), [payload] {});
  auto destroyed = after_func(rt, ctx, [payload] {});
  EXPECT_EQ(in_child([&] {
              detached.detach();
              if (kept.use_count() != 3) std::_Exit(10);
              { const auto dropped = std::move(destroyed); }
              if (kept.use_count() != 3) std::_Exit(11);
              std::_Exit(20);
            }),
            20);
  detached.detach();
  EXPECT_EQ(kept.use_count(), 2) << "the parent's is destroyed, as it will never be called";
}

class lone_runtime final : public test::lone_engine {
 public:
  lone_runtime() : lone_engine(engine::hybrid) {}
};

/// Another thread was ending the runtime when the process was forked.
TEST_F(fork_of_a_running_runtime, a_context_that_is_cancelled_in_the_child_releases_no_function) {
  lone_runtime lone;
  const auto payload = std::make_shared<int>(0);
  auto [ctx, cancel] = with_cancel(background());
  detail::timer_node& t = detail::make_func_timer(lone.timers(), [payload] {});
  detail::context_callback_record& r =
      *detail::start_context_callback(detail::context_access::node(ctx), t);
  EXPECT_EQ(in_child([&, &cancel = cancel] {
              lone.timers().close();
              lone.timers().lost_in_fork();
              const std::uint32_t before = t.refs;
              cancel();
              std::_Exit(t.refs > before ? 20 : 10);  // the call's, which is never made
            }),
            20);
  detail::destroy_context_callback(r);
}

TEST_F(fork_of_a_running_runtime, a_timer_that_is_detached_in_the_child_stays_as_it_is) {
  lone_runtime lone;
  detail::timer_node& t = lone.start(test::second, [] {});
  EXPECT_EQ(in_child([&] {
              lone.timers().lost_in_fork();
              const std::uint32_t before = t.refs;
              detail::detach_timer(&t);
              std::_Exit(t.refs == before ? 20 : 10);
            }),
            20);
  detail::destroy_timer(t);
}

/// Whichever of them has been made first, or has ended.
TEST_F(fork_of_a_running_runtime, a_timer_of_each_runtime_is_lost_in_the_child) {
  std::vector<std::unique_ptr<runtime>> all;
  std::vector<verge::timer> timers;
  const auto all_are_lost = [&] {
    return in_child([&] {
      for (verge::timer& t : timers) {
        if (!refuses([&] { t.reset(1h); })) std::_Exit(10);
      }
      std::_Exit(20);
    });
  };
  for (int i = 0; i < 4; ++i) {
    all.push_back(std::make_unique<runtime>(runtime_options{.processors = 1}));
    timers.push_back(after_func(*all.back(), 1h, [] {}));
    EXPECT_EQ(all_are_lost(), 20) << i;
  }
  for (const std::ptrdiff_t ends : {1, 2, 0}) {
    timers.erase(timers.begin() + ends);
    all.erase(all.begin() + ends);
    EXPECT_EQ(all_are_lost(), 20) << ends;
  }
}

/// A task has ended its own runtime, and has yet to return. The timers of which there are handles
/// are the parent's all the same.
TEST_F(fork_of_a_running_runtime,
       a_timer_of_a_runtime_that_ends_itself_stays_as_it_is_in_the_child) {
  auto rt = std::make_unique<runtime>(runtime_options{.processors = 1});
  const auto payload = std::make_shared<int>(0);
  const std::weak_ptr<int> kept = payload;
  verge::timer t = after_func(*rt, 1h, [payload] {});
  struct signs {
    std::atomic<bool> ended{false};
    std::atomic<bool> go_on{false};
  };
  const auto seen = std::make_shared<signs>();  // the task may be at the second one for longer
  rt->spawn([&rt, seen] {
      rt.reset();
      seen->ended = true;
      while (!seen->go_on) std::this_thread::yield();
    }).detach();
  ASSERT_TRUE(eventually([&] { return seen->ended.load(); }));
  ASSERT_EQ(kept.use_count(), 2);
  EXPECT_EQ(in_child([&] {
              if (!refuses([&] { t.reset(1h); })) std::_Exit(10);
              { const verge::timer dropped = std::move(t); }
              std::_Exit(kept.use_count() == 2 ? 20 : 11);
            }),
            20);
  seen->go_on = true;
}

/// A thread that starts a timer reads the time with the wheel's lock.
class slow_clock final : public test::lone_engine {
 public:
  slow_clock() : lone_engine(engine::simple_wheel) {}
  std::int64_t cheap_now() noexcept override {
    if (slow) {
      reads = true;
      while (!read) std::this_thread::yield();
    }
    return lone_engine::cheap_now();
  }
  static thread_local bool slow;
  std::atomic<bool> reads{false};
  std::atomic<bool> read{false};
};
thread_local bool slow_clock::slow = false;

TEST_F(fork_of_a_running_runtime, a_context_with_a_deadline_is_cancelled_in_the_child) {
  slow_clock lone;
  detail::scheduler* const before = std::exchange(detail::this_thread.current, &lone);
  auto [ctx, cancel] = with_timeout(background(), 30s);
  detail::this_thread.current = before;
  detail::timer_node& t = detail::make_func_timer(lone.timers(), [] {});
  std::thread starts([&] {
    slow_clock::slow = true;
    lone.timers().start(t, 3610 * test::second, 0);
  });
  while (!lone.reads) std::this_thread::yield();
  EXPECT_EQ(in_child([&, &ctx = ctx, &cancel = cancel] {
              lone.timers().lost_in_fork();
              cancel();
              std::_Exit(ctx.err() == context_errc::cancelled ? 20 : 10);
            }),
            20);
  lone.read = true;
  starts.join();
  detail::destroy_timer(t);
}

/// The right order: first become a daemon, then start a runtime.
TEST(a_daemon, that_starts_its_runtime_after_the_fork_works) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers support no new threads, or no leaks, in the child of a fork";
#endif
  for (int i = 0; i < test::scale(10, 3); ++i) {
    EXPECT_EQ(in_daemon([] {
                runtime rt({.processors = 2});
                const int got = rt.run([]() -> task<int> {
                  co_await verge::sleep(1ms);
                  co_return 20;
                });
                if (default_runtime().run([] { return 1; }) != 1) std::_Exit(10);
                std::_Exit(got);
              }),
              20);
  }
}

}  // namespace
}  // namespace verge
