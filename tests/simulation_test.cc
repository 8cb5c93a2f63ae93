// SPDX-License-Identifier: Apache-2.0

// Simulated time beyond the conformance list: plain threads, ends, errors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <verge/select.h>
#include <verge/simulation.h>
#include <verge/time.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace verge {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StrEq;
using testing::ThrowsMessage;

TEST(simulation, starts_where_it_is_told_to) {
  simulation sim({.start = time_point(5s)});
  EXPECT_EQ(sim.now(), time_point(5s));
  sim.run_for(1ns);
  EXPECT_EQ(sim.now(), time_point(5s + 1ns));
  EXPECT_EQ(simulation_options().start, time_point(1h));
}

TEST(simulation, returns_the_result_or_throws_the_exception_of_what_it_runs) {
  simulation sim(7);
  EXPECT_EQ(sim.seed(), 7u);
  EXPECT_EQ(sim.run([]() -> task<int> { co_return 1; }), 1);
  EXPECT_EQ(sim.run([] { return 2; }), 2);
  EXPECT_THROW(sim.run([]() -> task<> { throw std::out_of_range("x"); }), std::out_of_range);
}

TEST(simulation, plain_threads_take_part) {
  simulation sim;
  const auto start = sim.now();
  std::vector<std::string> log;  // one thing runs at a time
  auto one = sim.thread([&] {
    verge::sleep(10ms).wait();
    log.emplace_back("one at " + std::to_string((sim.now() - start) / 1ms));
    verge::sleep(20ms).wait();
    log.emplace_back("one at " + std::to_string((sim.now() - start) / 1ms));
  });
  auto two = sim.thread([&] {
    verge::sleep(15ms).wait();
    log.emplace_back("two at " + std::to_string((sim.now() - start) / 1ms));
  });
  one.join();
  two.join();
  EXPECT_EQ(log, (std::vector<std::string>{"one at 10", "two at 15", "one at 30"}));
}

TEST(simulation, threads_of_the_code_under_test_come_in_as_participants) {
  simulation sim;
  const auto start = sim.now();
  chan<time_point> from_thread(1);
  std::atomic<bool> arrived{false};
  std::thread t([&] {
    simulation::participant in(sim);
    arrived = true;
    verge::sleep(1h).wait();
    from_thread.send(sim.now());
  });
  while (!arrived) verge::yield().wait();  // until then the simulation does not know it
  EXPECT_EQ(from_thread.recv(), start + 1h) << "nothing else is left to wait for";
  t.join();
}

TEST(simulation, jumps_over_hours_while_a_thread_waits_for_a_channel) {
  simulation sim;
  chan<int> c;
  auto waiting = sim.thread([&] { return *c.recv(); });
  sim.run_for(24h);
  EXPECT_FALSE(waiting.done());
  c.send(3);
  EXPECT_EQ(waiting.join(), 3);
}

TEST(simulation, that_ends_destroys_tasks_that_are_suspended_and_fires_nothing) {
  struct witness {
    int* count;
    ~witness() { ++*count; }
  };
  int destroyed = 0;
  int fired = 0;
  {
    simulation sim;
    chan<int> c;
    for (int i = 0; i < 3; ++i) {
      sim.thread([&, c]() -> task<> {
           const witness w{&destroyed};
           co_await verge::select(verge::recv(c), verge::recv(after(1h)));
         })
          .detach();
    }
    after_func(1h, [&] { ++fired; }).detach();
    sim.run_for(1s);
    EXPECT_EQ(destroyed, 0);
  }
  EXPECT_EQ(destroyed, 3);
  EXPECT_EQ(fired, 0);
}

TEST(simulation, lets_handles_outlive_it) {
  verge::timer t;
  verge::ticker k;
  receiver<time_point> c;
  {
    simulation sim;
    t = verge::timer(1h);
    k = every(1h, [] {});
    c = after(1h);
  }
  EXPECT_FALSE(t.stop());
  EXPECT_FALSE(k.stop());
  EXPECT_THAT([&] { t.reset(1s); },
              ThrowsMessage<std::logic_error>(HasSubstr("the runtime of this timer has ended")));
  EXPECT_THAT([&] { t.reset_at(time_point(1s)); },
              ThrowsMessage<std::logic_error>(HasSubstr("while its runtime lives")));
  EXPECT_THROW(k.reset(1s), std::logic_error);
  EXPECT_FALSE(c.try_recv());
}

TEST(simulation, lets_the_channel_of_a_ticker_outlive_it_with_a_tick_in_it) {
  for (const auto policy : {missed_ticks::skip, missed_ticks::burst, missed_ticks::delay}) {
    verge::ticker k;
    {
      simulation sim;
      k = verge::ticker(1s, policy);
      sim.run_for(10s);
    }
    EXPECT_TRUE(k.c().try_recv());
    EXPECT_FALSE(k.stop());
  }
}

/// As in Go: a receiver that is left waits for a value that does not come.
TEST(simulation, leaves_the_channel_of_a_timer_open_when_the_timer_is_destroyed) {
  simulation sim;
  receiver<time_point> fired;
  receiver<time_point> stopped;
  sim.run([&]() -> task<> {
    fired = after(1ms);
    stopped = verge::timer(1h).c();
    co_await verge::sleep(1s);
  });
  EXPECT_TRUE(fired.try_recv());
  EXPECT_EQ(select(recv(fired), otherwise()).wait(), 1u) << "it is closed";
  EXPECT_EQ(select(recv(stopped), otherwise()).wait(), 1u) << "it is closed";
}

TEST(simulation, refuses_a_start_that_is_not_positive) {
  EXPECT_THAT(
      [] { simulation({.start = time_point()}); },
      ThrowsMessage<std::invalid_argument>(StrEq("verge: a simulation starts at a positive time")));
}

TEST(simulation, refuses_a_thread_that_belongs_to_something_else) {
  const auto refused =
      ThrowsMessage<std::logic_error>(HasSubstr("belongs to a runtime or a simulation already"));
  {
    simulation sim;
    EXPECT_THAT([] { simulation(2); }, refused);
    EXPECT_THAT([&] { simulation::participant again(sim); },
                ThrowsMessage<std::logic_error>(
                    StrEq("verge: this thread takes part in a simulation or runtime already")));
  }
  runtime rt;
  rt.run([&] { EXPECT_THAT([] { simulation(2); }, refused); });
  EXPECT_EQ(simulation(3).seed(), 3u) << "the thread is free again";
}

TEST(simulation, runs_for_no_time_for_a_negative_one_and_to_the_end_of_all_for_a_huge_one) {
  simulation sim;
  const auto start = sim.now();
  sim.run_for(-1h);
  sim.run_for(std::chrono::hours::min());
  EXPECT_EQ(sim.now(), start);
  int fired = 0;
  const auto t = after_func(24h, [&] { ++fired; });
  EXPECT_THAT([&] { sim.run_for(std::chrono::hours::max()); },
              ThrowsMessage<deadlock>(HasSubstr("everything is blocked and no timer is pending")));
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(sim.now(), start + 24h);
  sim.run_for(1s);
  EXPECT_EQ(sim.now(), start + 24h + 1s) << "and continues";
  const auto rest = std::chrono::nanoseconds::max() - sim.now().time_since_epoch();
  EXPECT_THROW(sim.run_for(rest), deadlock) << "the end of the clock is not reached";
  sim.run_for(rest - 1ns);
  EXPECT_EQ(sim.now(), time_point::max() - 1ns);
}

constexpr std::chrono::hours year{8766};

/// The hybrid engine represents no time after 73 years (docs/engines.md) and reports it; the others
/// reach the end of the clock.
TEST(simulation, says_when_its_engine_knows_no_time_that_late) {
  for (const engine e : engines()) {
    simulation sim({.engine = e});
    sim.run_for(100 * year);
    const auto sleeps = [&] { sim.run([]() -> task<> { co_await verge::sleep(1s); }); };
    if (e == engine::hybrid) {
      EXPECT_THAT(sleeps, ThrowsMessage<deadlock>(AllOf(
                              HasSubstr("never due"), HasSubstr("73 years"),
                              HasSubstr("processor_heap"), Not(HasSubstr("no timer is pending")))));
    } else {
      EXPECT_NO_THROW(sleeps()) << name_of(e);
    }
  }
}

/// Of the thread that runs the simulation nothing is said: it waits for all the others.
TEST(simulation, says_of_a_deadlock_what_each_task_waits_for_and_nothing_else) {
  simulation sim({.start = time_point(12s + 34ns)});
  const chan<int> never;
  EXPECT_THAT([&] { sim.run([&]() -> task<> { co_await verge::recv(never); }); },
              ThrowsMessage<deadlock>(testing::StrEq(
                  "verge: deadlock at 12.000000034 s: everything is blocked and no timer is "
                  "pending\n  task 1 waits for chan receive")));
}

TEST(simulation, says_that_the_timers_that_are_pending_never_come) {
  simulation sim({.engine = engine::processor_heap});
  const verge::timer never(std::chrono::nanoseconds::max());
  EXPECT_THAT([&] { sim.run([&]() -> task<> { co_await verge::recv(never.c()); }); },
              ThrowsMessage<deadlock>(AllOf(HasSubstr("never due"), HasSubstr("292 years"))));
}

TEST(simulation, does_not_begin_where_its_engine_knows_no_time) {
  EXPECT_THAT([] { simulation sim({.start = time_point(80 * year)}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("73 years")));
  simulation other({.engine = engine::processor_heap, .start = time_point(80 * year)});
  other.run([]() -> task<> { co_await verge::sleep(1h); });
}

TEST(simulation, has_run_everything_due_at_the_end_of_a_run) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    simulation sim(seed);
    const auto start = sim.now();
    int fired = 0;
    for (int i = 0; i < 300; ++i) {
      after_func(1s, [&] {
        go([&]() -> task<> {
          co_await verge::yield();
          ++fired;
        }).detach();
      }).detach();
    }
    after_func(1s + 1ns, [&] { fired = -1; }).detach();
    sim.run_for(1s);
    EXPECT_EQ(fired, 300);
    EXPECT_EQ(sim.now(), start + 1s);
  }
}

TEST(simulation, runs_longer_than_the_engine_takes_a_delay) {
  for (const auto e : engines()) {
    simulation sim({.engine = e});
    const auto start = sim.now();
    sim.run_for(24h * 365 * 200);
    EXPECT_EQ(sim.now(), start + 24h * 365 * 200) << name_of(e);
  }
}

TEST(simulation, refuses_to_be_run_by_a_thread_that_takes_no_part) {
  simulation sim;
  const auto refused = ThrowsMessage<std::logic_error>(AllOf(
      HasSubstr("takes no part in the simulation"), HasSubstr("with a simulation::participant")));
  bool ran = false;
  std::atomic<int> looked{0};
  std::thread t([&] {
    EXPECT_THAT([&] { sim.run([&] { ran = true; }); }, refused);
    EXPECT_THAT([&] { sim.run_for(1s); }, refused);
    simulation another(2);
    EXPECT_THAT([&] { sim.run([&] { ran = true; }); }, refused);
    looked = 1;
  });
  t.join();
  sim.run_for(1s);
  EXPECT_EQ(looked, 1);
  EXPECT_FALSE(ran);
  // With a participant it may.
  std::thread u([&] {
    const simulation::participant in(sim);
    EXPECT_EQ(sim.run([] { return 4; }), 4);
    looked = 2;
  });
  while (looked != 2) verge::yield().wait();
  u.join();
}

TEST(simulation, refuses_a_real_runtimes_run_which_would_be_a_deadlock) {
  runtime rt({.processors = 1});
  simulation sim;
  const auto refused = ThrowsMessage<std::logic_error>(
      AllOf(HasSubstr("on a thread that takes part in a simulation"), HasSubstr("takes no part")));
  EXPECT_THAT([&] { rt.run([] {}); }, refused);
  sim.run([&] { EXPECT_THAT([&] { rt.run([] {}); }, refused); });
  std::thread([&] { EXPECT_EQ(rt.run([] { return 5; }), 5); }).join();
}

TEST(simulation, that_another_thread_ends_stops_the_program_and_says_what_to_do) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        auto sim = std::make_unique<simulation>();
        std::thread([&] { sim.reset(); }).join();
      },
      "ended on another thread than the one that made it.*end it there");
}

TEST(simulation, terminates_with_a_report_if_it_ends_while_another_thread_takes_part) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        simulation sim;
        const chan<int> c;
        std::atomic<bool> arrived{false};
        std::thread([&] {
          const simulation::participant in(sim);
          arrived = true;
          c.recv();
        }).detach();
        while (!arrived) verge::yield().wait();
        sim.run_for(1s);
      },
      "cannot end while another thread takes part.*participant is destroyed\n"
      "  a thread waits for chan receive");
}

TEST(simulation, is_left_behind_in_the_child_of_a_fork_where_time_is_real) {
  auto sim = std::make_unique<simulation>();
  sim->run_for(1s);  // by its own thread, which the child does not have
  const auto now = clock::now();
  const pid_t pid = ::fork();
  if (pid == 0) {
    sim.reset();
    std::_Exit(clock::now() == now ? 10 : 20);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 20);
  EXPECT_EQ(clock::now(), now) << "the parent continues as before";
}

TEST(simulation, throws_deadlock_on_a_plain_thread_that_waits_outside_of_run) {
  simulation sim;
  const chan<int> c(1);
  EXPECT_THAT(
      [&] { c.recv(); },
      ThrowsMessage<deadlock>(AllOf(
          HasSubstr("deadlock at 3600.000000000 s: everything is blocked and no timer is pending"),
          HasSubstr("a thread waits for chan receive"))));
  EXPECT_THROW(select(recv(c), recv(chan<int>())).wait(), deadlock);
  EXPECT_THROW(for ([[maybe_unused]] int n : c) ADD_FAILURE();, deadlock);
  auto h = go([&]() -> task<int> { co_return *co_await verge::recv(c); });
  EXPECT_THAT([&] { h.join(); }, ThrowsMessage<deadlock>(HasSubstr("task 1 waits for chan")));

  // Everything continues from there: what was given up is not waited for any more.
  c.send(1);
  EXPECT_EQ(h.join(), 1);
  c.send(2);
  EXPECT_EQ(c.recv(), 2);
  verge::sleep(1h).wait();
  EXPECT_EQ(sim.run([]() -> task<int> { co_return 3; }), 3);
}

TEST(simulation, throws_deadlock_on_each_thread_of_several_that_wait_for_one_another) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    simulation sim(seed);
    const chan<int> never;
    std::atomic<int> taking_part{0};
    const auto wait = [&] {
      const simulation::participant here(sim);
      ++taking_part;
      EXPECT_THROW(never.recv(), deadlock);
    };
    std::thread a(wait);
    std::thread b(wait);
    while (taking_part < 2) verge::sleep(1ms).wait();
    EXPECT_THROW(never.recv(), deadlock);
    a.join();
    b.join();
  }
}

TEST(simulation, throws_deadlock_in_a_plain_function_if_no_other_can_be_told) {
  simulation sim;
  const chan<int> never;
  auto blocked = sim.thread([&] { EXPECT_THROW(never.recv(), deadlock); });
  // The timer's callback never ends, so neither does the wait of its handle, which cannot throw.
  auto t = std::make_unique<verge::timer>(after_func(0s, [&] { blocked.join(); }));
  verge::sleep(1s).wait();
  t.reset();
}

TEST(simulation, terminates_with_a_report_if_it_ends_while_a_plain_function_is_blocked) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        simulation sim;
        chan<int> c;
        sim.thread([&] { c.recv(); }).detach();
        sim.run_for(1s);
      },
      "a simulation cannot end while a plain function is blocked");
}

}  // namespace
}  // namespace verge
