// SPDX-License-Identifier: Apache-2.0

// A thread loses its core between two steps of an agreement on wake-ups, and what happens meanwhile
// is the worst. Without the monitor, so that what is missed then hangs.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <verge/chan.h>
#include <verge/fd.h>
#include <verge/runtime.h>
#include <verge/task.h>
#include <verge/time.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <base/this_thread.h>
#include <clock/true_clock.h>
#include <sched/live_scheduler.h>
#include <support/as_default.h>
#include <support/blockers.h>
#include <support/fake_engine.h>
#include <support/patience.h>
#include <support/stuck_at.h>
#include <support/without_monitor.h>
#include <verge/detail/timer_functions.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t ms = 1'000'000;

/// The thread that looks at the poller for the others has found that a task can go on, and stays
/// there. The only worker ends what it runs meanwhile, finds nothing, and sleeps.
TEST(a_thread_that_looks_at_the_poller, wakes_a_worker_after_it_has_queued_what_it_found) {
  for (int n = 1;; ++n) {
    const auto rt = without_monitor(1);
    const as_default here(*rt);
    detail::live_scheduler& s = scheduler_of(*rt);
    s.limit_spares(0);
    pipe_ends ends = make_pipe().or_throw();
    auto reads = rt->spawn([&ends]() -> task<> {
      char c = 0;
      co_await ends.from.read_some({&c, 1});
    });
    ASSERT_TRUE(eventually([&] { return rt->stats().tasks_waiting == 1; }));
    ASSERT_TRUE(eventually_idle(s));
    blockers busy;
    rt->spawn(busy.block()).detach();
    ASSERT_TRUE(eventually([&] { return busy.count() == 1; }));
    const verge::timer breaks = wake_sleeper(*rt, s);
    ASSERT_TRUE(ends.to.write_all("x").wait());
    unlucky_thread unlucky(n, [&] { s.as_watched().sysmon_look(detail::true_now() + 11 * ms); });
    busy.release();
    EXPECT_TRUE(eventually_idle(s));
    unlucky.end();
    ASSERT_TRUE(eventually([&] { return reads.done(); })) << "after call " << n;
    if (!unlucky.stuck()) break;
  }
}

bool is_a_spinning_worker() noexcept {
  const detail::worker* const w = detail::this_thread.as_worker;
  return w != nullptr && w->spinning;
}

/// A task queues another one and stays, with no worker woken for that, as one spins; which has just
/// looked at all queues, and loses its core before it says that it does not spin any more.
TEST(a_worker, that_stops_spinning_looks_once_more_at_the_queues_of_others) {
  for (int n = 1;; ++n) {
    const auto rt = without_monitor(2);
    detail::live_scheduler& s = scheduler_of(*rt);
    ASSERT_TRUE(eventually_idle(s));
    std::atomic<bool> begun{false};
    std::atomic<bool> queue{false};
    std::atomic<bool> queued{false};
    std::atomic<bool> ran{false};
    const blockers busy;
    rt->spawn([&, block = busy.block()] {
        begun = true;
        while (!queue) std::this_thread::yield();
        go([&] { ran = true; }).detach();
        queued = true;
        block();
      }).detach();
    ASSERT_TRUE(eventually([&] { return begun && s.running() == 1 && s.polls_until() != 0; }));
    stuck_at point(n, &is_a_spinning_worker);
    auto other = rt->spawn([] {});
    EXPECT_TRUE(eventually([&] {
      return stuck_at::reached() || (other.done() && s.running() == 1 && s.polls_until() != 0);
    }));
    const bool stuck = stuck_at::reached();
    queue = true;
    EXPECT_TRUE(eventually([&] { return queued.load(); }));
    stuck_at::let_go();
    ASSERT_TRUE(eventually([&] { return ran.load(); })) << "after call " << n;
    if (!stuck) break;
  }
}

/// Spawns a task when it is destroyed.
class last_will {
 public:
  last_will(runtime& rt, std::atomic<bool>& ran) : rt_(&rt), ran_(ran) {}
  last_will(last_will&& other) noexcept
      : rt_(std::exchange(other.rt_, nullptr)), ran_(other.ran_) {}
  last_will& operator=(last_will&&) = delete;
  ~last_will() {
    if (rt_ == nullptr) return;
    rt_->spawn([&ran = ran_] { ran = true; }).detach();
  }
  void operator()() const {}

 private:
  runtime* rt_;
  std::atomic<bool>& ran_;
};

/// A thread is on its way to start a worker, and loses its core: it counts as one that spins, so
/// the worker that there is does not. Before that one sleeps it drops a stopped timer of another
/// processor, and with it what the timer's function owns.
TEST(a_worker, runs_what_a_destructor_has_queued_before_it_sleeps) {
  for (int n = 1;; ++n) {
    const auto rt = [] {
      const no_monitor here;
      return std::make_unique<runtime>(
          runtime_options{.processors = 2, .engine = engine::processor_heap});
    }();
    detail::live_scheduler& s = scheduler_of(*rt);
    std::atomic<bool> ran{false};
    detail::timer_node* timers[2] = {};
    {
      blockers both;
      for (int i = 0; i < 2; ++i) {
        rt->spawn([&, block = both.block()] {
            detail::timer_node& t = detail::make_func_timer(s.timers(), last_will(*rt, ran));
            s.timers().start(t, detail::true_now() + 3'600'000 * ms, 0);
            timers[detail::this_thread.as_worker->held->id] = &t;
            block();
          }).detach();
      }
      ASSERT_TRUE(eventually([&] { return both.count() == 2; }));
    }
    ASSERT_TRUE(eventually_idle(s));
    unlucky_thread unlucky(n, [&] { rt->spawn([] {}).detach(); });
    blockers busy;
    unsigned on = 0;
    after_func(*rt, 0s, [&on, block = busy.block()] {
      on = detail::this_thread.as_worker->held->id;
      block();
    }).detach();
    EXPECT_TRUE(eventually([&] { return busy.count() == 1; }));
    EXPECT_TRUE(s.timers().its_engine().stop(*timers[1 - on]));
    s.timers().release(*timers[1 - on]);
    busy.release();
    EXPECT_TRUE(eventually([&] { return ran.load(); })) << "after call " << n;
    unlucky.end();
    detail::destroy_timer(*timers[on]);
    ASSERT_TRUE(eventually([&] { return s.jobs().live() == 0; }));
    if (!unlucky.stuck()) break;
  }
}

/// A worker is about to give up a processor that is to be retired, for a call that blocks, and
/// loses its core. Meanwhile there are to be as many processors as before.
TEST(a_processor, that_is_not_to_be_retired_after_all_is_used_while_its_task_blocks) {
  for (int n = 1;; ++n) {
    const auto rt = without_monitor(2);
    detail::live_scheduler& s = scheduler_of(*rt);
    s.limit_spares(0);
    const blockers busy;
    std::atomic<int> begun{0};
    std::atomic<bool> go_on{false};
    std::atomic<bool> blocks{false};
    const auto work = [&, block = busy.block()] {
      ++begun;
      while (!go_on) std::this_thread::yield();
      if (detail::this_thread.as_worker->held->id == 0) return block();
      is_to_be_stuck = true;
      verge::blocking([&] {
        is_to_be_stuck = false;
        blocks = true;
        block();
      });
    };
    rt->spawn(work).detach();
    rt->spawn(work).detach();
    ASSERT_TRUE(eventually([&] { return begun == 2; }));
    s.set_processors(1);
    stuck_at point(n, &is_the_unlucky);
    go_on = true;
    EXPECT_TRUE(eventually([&] { return stuck_at::reached() || blocks; }));
    const bool stuck = stuck_at::reached();
    s.set_processors(2);
    stuck_at::let_go();
    EXPECT_TRUE(eventually([&] { return blocks.load(); }));
    auto other = rt->spawn([] {});
    ASSERT_TRUE(eventually([&] { return other.done(); })) << "after call " << n;
    if (!stuck) break;
  }
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // whose locks a fork may leave

/// A thread loses its core while it sets a deadline; meanwhile another one forks.
TEST(a_descriptor, is_closed_in_the_child_of_a_fork_whichever_locks_were_held) {
  for (int n = 1;; ++n) {
    const auto rt = without_monitor(1);
    const as_default here(*rt);
    detail::live_scheduler& s = scheduler_of(*rt);
    pipe_ends ends = make_pipe().or_throw();
    ASSERT_TRUE(eventually_idle(s));
    unlucky_thread unlucky(n, [&] {
      const as_default there(*rt);
      ends.from.set_deadline(clock::now() + 1h);
    });
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      const int number = ends.from.native_handle();
      ends.from.close();
      std::_Exit(::fcntl(number, F_GETFD) < 0 ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "at call " << n;
    unlucky.end();
    if (!unlucky.stuck()) break;
  }
}

#endif

/// The holder of processor 0 loses its core while it fires its timers.
class slow_engine : public fake_engine {
 public:
  detail::timer_check check_timers(unsigned p, std::int64_t now, bool own) noexcept override {
    if (p == 0 && own && next_when(0) != 0) slow.block()();
    if (p == 0 && !own && at_theft) at_theft();
    return fake_engine::check_timers(p, now, own);
  }
  blockers slow;
  std::function<void()> at_theft;
};

/// At its first look it leaves them to the holder. At its second that one has not moved.
TEST(a_worker, fires_the_timers_of_a_holder_that_it_has_left_to_fire_them_and_that_does_not) {
  const no_monitor here;
  clockwork_on<slow_engine> fake(2);
  detail::live_scheduler& s = fake.scheduler();
  ASSERT_TRUE(eventually_idle(s));
  std::atomic<std::uint32_t> looks_before{0};
  fake.engine().at_theft = [&] { looks_before = s.all_processors()[1].tick.load(); };
  const std::uint32_t begin = s.all_processors()[1].tick;
  const std::int64_t when = detail::true_now();
  fake.engine().set(0, when);
  s.wake_net_poller(when);
  ASSERT_TRUE(eventually([&] { return fake.engine().slow.count() == 1; }));
  // At the first look it has moved, and the timer is left to it. It counts as spinning: another one
  // comes up only when it has done so for long.
  s.as_watched().sysmon_look(when + ms);
  s.as_watched().sysmon_look(when + 3 * ms);
  s.as_watched().sysmon_look(when + 4 * ms);
  EXPECT_TRUE(eventually([&] { return fake.engine().ran() == 1; }));
  EXPECT_GE(looks_before - begin, 2U) << "not at its first look";
  fake.engine().slow.release();
}

}  // namespace
}  // namespace verge::test
