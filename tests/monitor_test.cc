// SPDX-License-Identifier: Apache-2.0

// What the system monitor repairs, and that there is nothing to repair otherwise.

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <verge/fd.h>
#include <verge/runtime.h>
#include <verge/task.h>
#include <verge/time.h>

#include <array>
#include <atomic>
#include <cstdint>

#include <base/runtime_thread.h>
#include <clock/true_clock.h>
#include <sched/live_scheduler.h>
#include <support/as_default.h>
#include <support/blockers.h>
#include <support/fake_engine.h>
#include <support/patience.h>
#include <support/sockets.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t hour = 3'600'000'000'000;
/// What a poll without a timer sleeps until.
constexpr std::int64_t for_ever = INT64_MAX;

bool eventually_polls_until(const detail::live_scheduler& s, std::int64_t when) {
  return eventually([&] { return s.polls_until() == when; });
}

/// Whichever processor has the first timer, and whichever the polling thread had.
TEST(the_poll, is_bounded_by_the_earliest_timer_of_all_processors) {
  constexpr unsigned processors = 4;
  fake_clockwork fake(processors);
  ASSERT_TRUE(eventually_polls_until(fake.scheduler(), for_ever));
  std::int64_t when = detail::true_now() + 20 * hour;
  for (unsigned p = 0; p < processors; ++p) fake.engine().set(p, when);
  for (unsigned i = 0; i < 2 * processors; ++i) {
    when -= hour;
    const unsigned p = i % processors;
    fake.engine().set(p, when);
    fake.scheduler().wake_net_poller(when);
    EXPECT_TRUE(eventually_polls_until(fake.scheduler(), when)) << "of processor " << p;
  }
  EXPECT_EQ(fake.scheduler().poll_rescues(), 0u) << "nothing was overdue";
}

/// Keeps the polling thread busy with an event, until the test releases it.
class slow_source : private detail::poller::source {
 public:
  explicit slow_source(detail::poller& p)
      : source{&take}, poller_(p), event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    EXPECT_FALSE(poller_.open(event_.get(), *this));
  }
  ~slow_source() {
    stay_.release();
    poller_.close(event_.get());
  }
  slow_source(const slow_source&) = delete;
  slow_source& operator=(const slow_source&) = delete;

  void happen() { EXPECT_EQ(::eventfd_write(event_.get(), 1), 0); }
  bool has_poller() const { return stay_.count() != 0; }
  void let_go() { stay_.release(); }

 private:
  static void take(source& s, std::uint32_t events, detail::ready_list&) noexcept {
    if ((events & EPOLLIN) != 0) static_cast<slow_source&>(s).stay_.block()();
  }

  detail::poller& poller_;
  detail::file_descriptor event_;
  blockers stay_;
};

/// Go #42515: a wake-up of the poller is lost, and the timer with it until something else happens.
TEST(the_monitor, wakes_a_poller_that_sleeps_past_a_timer) {
  fake_clockwork fake(2);
  slow_source source(*fake.scheduler().net());  // or no thread would have to poll
  ASSERT_TRUE(eventually_polls_until(fake.scheduler(), for_ever));
  // One that is busy, or the monitor would sleep as well; the other polls.
  blockers busy;
  detail::spawn(fake.scheduler(), busy.block()).detach();
  ASSERT_TRUE(eventually([&] { return busy.count() == 1; }));
  ASSERT_TRUE(eventually_polls_until(fake.scheduler(), for_ever));
  ASSERT_EQ(fake.scheduler().poll_rescues(), 0u);

  // A worker that is about to sleep may see the timer, so repeat until none has.
  int timers = 0;
  bool all_ran = true;
  EXPECT_TRUE(eventually([&] {
    fake.engine().set(0, detail::true_now());  // and no thread is told
    ++timers;
    all_ran = eventually([&] { return fake.engine().ran() == timers; });
    return !all_ran || fake.scheduler().poll_rescues() != 0;
  }));
  EXPECT_TRUE(all_ran) << fake.engine().ran() << " of " << timers;
  EXPECT_LE(fake.scheduler().poll_rescues(), static_cast<std::uint64_t>(timers) + 1)
      << "each once, but for one that fires just when the monitor has decided";
}

/// On a loaded machine the polling thread is woken long before it runs. It does not sleep past the
/// timer, however often the monitor finds the timer overdue meanwhile.
TEST(the_monitor, does_not_count_a_poller_that_was_woken_and_has_not_run_yet) {
  fake_clockwork fake(2);
  slow_source source(*fake.scheduler().net());
  ASSERT_TRUE(eventually_polls_until(fake.scheduler(), for_ever));
  // One that is busy, or the monitor would sleep as well; the other polls.
  blockers busy;
  detail::spawn(fake.scheduler(), busy.block()).detach();
  ASSERT_TRUE(eventually([&] { return busy.count() == 1; }));
  ASSERT_TRUE(eventually_polls_until(fake.scheduler(), for_ever));
  source.happen();
  ASSERT_TRUE(eventually([&] { return source.has_poller(); }));
  if (fake.scheduler().polls_until() == 0) GTEST_SKIP() << "another thread has taken the event";

  const std::int64_t when = detail::true_now();
  fake.engine().set(0, when);
  fake.scheduler().wake_net_poller(when);
  const std::uint64_t looks = fake.scheduler().monitor_wakeups();
  EXPECT_TRUE(eventually([&] {
    constexpr std::int64_t long_overdue = 30'000'000;
    return detail::true_now() - when > long_overdue &&
           fake.scheduler().monitor_wakeups() > looks + 20;
  }));
  EXPECT_EQ(fake.scheduler().poll_rescues(), 0u);
  source.let_go();
  EXPECT_TRUE(eventually([&] { return fake.engine().ran() == 1; }));
  EXPECT_EQ(fake.scheduler().poll_rescues(), 0u);
}

/// Or everything that arrives meanwhile waits for the monitor's next look.
TEST(the_monitor, sends_a_worker_to_the_poller_when_the_one_from_there_is_stuck) {
  runtime rt({.processors = 2});
  as_default here(rt);
  auto& scheduler = static_cast<detail::live_scheduler&>(detail::scheduler_of(rt));
  auto [from, to] = make_pipe().or_throw();
  auto reader = rt.spawn([&in = from]() -> task<std::size_t> {
    std::array<char, 8> text;
    co_return (co_await in.read_some(text)).bytes;
  });
  ASSERT_TRUE(eventually([&in = from] { return has_reader(in); }));
  blockers stuck;
  // It fires on the worker that slept until then.
  after_func(1ms, stuck.block()).detach();
  ASSERT_TRUE(eventually([&] { return stuck.count() == 1; }));
  EXPECT_TRUE(eventually_polls_until(scheduler, for_ever)) << "no thread sleeps in the poller";
  EXPECT_TRUE(to.write_all("hello").wait());
  EXPECT_EQ(reader.join(), 5u);
  stuck.release();
}

/// No other thread does: a processor that is stuck in a task does not poll.
TEST(the_monitor, polls_the_network_while_all_are_busy) {
  runtime rt({.processors = 1});
  as_default here(rt);
  auto& scheduler = static_cast<detail::live_scheduler&>(detail::scheduler_of(rt));
  scheduler.limit_spares(0);  // one might start, and would poll
  auto [from, to] = make_pipe().or_throw();
  auto reader = rt.spawn([&in = from]() -> task<std::size_t> {
    std::array<char, 8> text;
    co_return (co_await in.read_some(text)).bytes;
  });
  ASSERT_TRUE(eventually([&in = from] { return has_reader(in); }));
  blockers busy;
  rt.spawn(busy.block()).detach();
  ASSERT_TRUE(eventually([&] { return busy.count() == 1; }));
  // A thread that already sleeps there is woken, and finds no processor to acquire.
  std::chrono::seconds earlier = 1000h;
  verge::timer breaks = after_func(earlier, [] {});
  EXPECT_TRUE(eventually([&] {
    breaks.reset(earlier -= 10s);
    return scheduler.polls_until() == 0;
  }));

  const auto events = [&] { return scheduler.net()->statistics().source_events; };
  const std::uint64_t before = events();
  EXPECT_TRUE(to.write_all("hello").wait());
  EXPECT_TRUE(eventually([&] { return events() > before; })) << "not found";
  busy.release();
  EXPECT_EQ(reader.join(), 5u);
}

/// Nothing but the first processor that is taken wakes it. Then both are blocked, and what else
/// there is needs the monitor.
TEST(the_monitor, is_woken_from_its_deep_sleep_when_there_is_something_to_watch) {
  runtime rt({.processors = 2});
  auto& scheduler = static_cast<detail::live_scheduler&>(detail::scheduler_of(rt));
  blockers stuck;
  ASSERT_TRUE(eventually([&] { return scheduler.monitor_sleeps(); }));
  const std::uint64_t looks = scheduler.monitor_wakeups();
  rt.spawn(stuck.block()).detach();
  EXPECT_TRUE(eventually([&] { return scheduler.monitor_wakeups() > looks; })) << "it sleeps on";
  rt.spawn(stuck.block()).detach();
  ASSERT_TRUE(eventually([&] { return stuck.count() == 2; }));
  auto task = rt.spawn([] { return 7; });
  EXPECT_TRUE(eventually([&] { return task.done(); })) << "no spare processor has come";
  stuck.release();
  EXPECT_EQ(task.join(), 7);
}

/// Something that is never idle, and has nothing to mend.
class busy_for_ever final : public detail::monitor::watched {
 public:
  bool stopping() const noexcept override { return over; }
  bool sysmon_look(std::int64_t) noexcept override { return false; }
  bool all_idle() const noexcept override { return false; }
  bool allows_deep_sleep() noexcept override { return false; }
  void sysmon_woke(std::int64_t) noexcept override {}
  void trim_memory() noexcept override { ++trims; }

  std::atomic<bool> over{false};
  std::atomic<int> trims{0};
};

TEST(the_monitor, gives_memory_back_also_if_something_runs_all_the_time) {
  busy_for_ever busy;
  detail::monitor m;
  const std::int64_t begin = detail::true_now();
  m.start(busy, "test");
  EXPECT_TRUE(eventually([&] { return busy.trims == 1; }));
  EXPECT_GT(detail::true_now() - begin, detail::monitor::trim_interval);
  busy.over = true;
  m.wake();
  m.join();
}

/// The kernel may let other threads' waits end 50 us late, to save wake-ups.
TEST(threads_of_a_runtime, are_woken_without_slack) {
  const auto slack = [] { return ::prctl(PR_GET_TIMERSLACK); };
  runtime rt({.processors = 2});
  EXPECT_EQ(rt.run(slack), 1);
  int of_any = 0;
  detail::start_runtime_thread("test", [&] { of_any = slack(); }).join();
  EXPECT_EQ(of_any, 1) << "of the monitor, and of the engines that have a thread";
}

}  // namespace
}  // namespace verge::test
