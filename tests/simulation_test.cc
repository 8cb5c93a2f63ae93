// Simulated time beyond the conformance list: plain threads, ends, errors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <verge/select.h>
#include <verge/simulation.h>
#include <verge/time.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace verge {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::StrEq;
using testing::ThrowsMessage;

TEST(simulation, starts_where_it_is_told_to) {
  simulation sim({.start = time_point(5s)});
  EXPECT_EQ(sim.now(), time_point(5s));
  sim.run_for(1ns);
  EXPECT_EQ(sim.now(), time_point(5s + 1ns));
  EXPECT_EQ(simulation_options().start, time_point(1h));
}

TEST(simulation, gives_the_result_of_what_it_runs_or_throws_what_that_throws) {
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
  while (!arrived) verge::yield().wait();  // until then nobody knows of it
  EXPECT_EQ(from_thread.recv(), start + 1h) << "nothing else is left to wait for";
  t.join();
}

TEST(simulation, jumps_over_hours_beside_a_thread_that_waits_for_a_channel) {
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
      });
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

TEST(simulation, reports_a_deadlock_of_plain_threads_and_stops) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        simulation sim;
        chan<int> c;
        c.recv();
      },
      "deadlock at 3600.000000000 s: everything is blocked and no timer is pending"
      "(.|\n)*a thread waits for chan receive");
}

TEST(simulation, cannot_end_while_a_plain_function_is_blocked_and_says_so) {
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
