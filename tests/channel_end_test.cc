// SPDX-License-Identifier: Apache-2.0

// The channels of timers close when their runtime ends: waiting receivers are woken, and later ones
// do not wait.

#include <gtest/gtest.h>
#include <unistd.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/simulation.h>
#include <verge/time.h>

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <support/patience.h>
#include <support/scale.h>
#include <support/thread_state.h>

namespace verge {
namespace {

using namespace std::chrono_literals;
using test::eventually;

class channels_of_a_runtime_that_ends : public testing::TestWithParam<engine> {
 protected:
  static std::unique_ptr<runtime> make_runtime() {
    return std::make_unique<runtime>(runtime_options{.processors = 2, .engine = GetParam()});
  }
};

struct channel_of_some_timer {
  std::string what;
  verge::timer timer{};
  verge::ticker ticker{};
  receiver<time_point> c{};
};

/// One of each kind, in each state in which a receive waits. The simple wheel does not support an
/// hour.
/// A minute is as long as all engines can wait, and longer than a machine stands still.
std::vector<channel_of_some_timer> one_of_each() {
  std::vector<channel_of_some_timer> all;
  all.push_back({.what = "after", .c = after(60s)});
  all.push_back({.what = "tick", .c = tick(60s)});
  all.push_back({.what = "timer", .timer = verge::timer(60s)});
  all.push_back({.what = "timer without a handle", .timer = verge::timer(60s)});
  all.push_back({.what = "stopped timer", .timer = verge::timer(60s)});
  all.push_back({.what = "fired timer", .timer = verge::timer(0s)});
  for (const auto policy : {missed_ticks::skip, missed_ticks::burst, missed_ticks::delay}) {
    const auto name = std::to_string(static_cast<int>(policy));
    all.push_back({.what = "ticker " + name, .ticker = verge::ticker(60s, policy)});
    all.push_back({.what = "detached ticker " + name, .ticker = verge::ticker(60s, policy)});
    all.push_back({.what = "stopped ticker " + name, .ticker = verge::ticker(60s, policy)});
  }
  for (auto& one : all) {
    if (one.timer) one.c = one.timer.c();
    if (one.ticker) one.c = one.ticker.c();
    if (one.what.starts_with("stopped")) one.timer ? one.timer.stop() : one.ticker.stop();
    if (one.what.starts_with("detached")) one.ticker.detach();
    if (one.what.ends_with("without a handle")) one.timer.detach();
    const bool fired = one.what.starts_with("fired");
    EXPECT_EQ(fired, fired && one.c.recv()) << one.what;
  }
  return all;
}

TEST_P(channels_of_a_runtime_that_ends, are_closed) {
  auto rt = make_runtime();
  auto all = rt->run(&one_of_each);
  for (const auto& one : all) EXPECT_FALSE(one.c.closed()) << one.what;
  rt.reset();
  for (const auto& one : all) {
    EXPECT_TRUE(one.c.closed()) << one.what;
    if (!one.c.closed()) continue;
    EXPECT_FALSE(one.c.recv()) << one.what;
    EXPECT_FALSE(one.c.try_recv()) << one.what;
    for ([[maybe_unused]] const auto at : one.c) ADD_FAILURE() << one.what;
    bool got = true;
    select(recv(one.c, [&](std::optional<time_point> v) { got = v.has_value(); })).wait();
    EXPECT_FALSE(got) << one.what;
  }
}

TEST_P(channels_of_a_runtime_that_ends, deliver_what_was_sent_before) {
  auto rt = make_runtime();
  auto c = rt->run([] { return after(0s); });
  ticker t = rt->run([] { return ticker(1ms); });
  ASSERT_TRUE(eventually([&] { return c.size() == 1 && t.c().size() == 1; }));
  rt.reset();
  EXPECT_TRUE(c.recv());
  EXPECT_TRUE(t.c().recv());
  EXPECT_FALSE(t.c().recv());
}

TEST_P(channels_of_a_runtime_that_ends, wake_the_threads_that_wait) {
  auto rt = make_runtime();
  auto all = rt->run(&one_of_each);
  std::atomic<int> waiting{0};
  std::vector<pid_t> ids(2 * all.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto& one = all[i / 2];
      ids[i] = ::gettid();
      ++waiting;
      if (i % 2 == 0) {
        EXPECT_FALSE(one.c.recv()) << one.what;
      } else {
        select(recv(one.c, [&](std::optional<time_point> v) { EXPECT_FALSE(v) << one.what; }),
               recv(chan<int>(), [&](std::optional<int>) { ADD_FAILURE(); }))
            .wait();
      }
    });
  }
  ASSERT_TRUE(eventually([&] { return waiting == static_cast<int>(ids.size()); }));
  for (const pid_t id : ids) EXPECT_TRUE(eventually([&] { return test::is_asleep(id); }));
  rt.reset();
  for (auto& t : threads) t.join();
}

TEST_P(channels_of_a_runtime_that_ends, wake_the_tasks_of_other_runtimes_that_wait) {
  runtime other({.processors = 1});
  auto rt = make_runtime();
  auto all = rt->run(&one_of_each);
  std::atomic<int> waiting{0};
  std::vector<join_handle<bool>> tasks;
  for (const auto& one : all) {
    tasks.push_back(other.spawn([&waiting, c = one.c]() -> task<bool> {
      ++waiting;
      co_return (co_await verge::recv(c)).has_value();
    }));
  }
  ASSERT_TRUE(eventually([&] { return waiting == static_cast<int>(all.size()); }));
  rt.reset();
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_FALSE(tasks[i].join()) << all[i].what;
}

/// Two threads use a timer in some way, and receive, while its runtime ends.
TEST_P(channels_of_a_runtime_that_ends, may_be_used_meanwhile) {
  const auto try_to = [](auto f) {
    try {
      f();
    } catch (const std::logic_error&) {
    }
  };
  for (int round = 0; round < test::scale(100, 30); ++round) {
    auto rt = make_runtime();
    struct pair {
      verge::timer timer;
      verge::ticker ticker;
    };
    std::vector<pair> owned(2);
    rt->run([&] {
      for (auto& p : owned) {
        p.timer = verge::timer(20us);
        p.ticker = verge::ticker(10us, static_cast<missed_ticks>(round % 3));
      }
    });
    std::vector<std::thread> threads;
    std::atomic<int> at_work{0};
    std::atomic<bool> ended{false};
    for (std::size_t k = 0; k < 2; ++k) {
      const auto c = owned[k].timer.c();
      const auto ticks = owned[k].ticker.c();
      threads.emplace_back([&, ticks] {
        for ([[maybe_unused]] const auto at : ticks) ++at_work;
        ++at_work;
      });
      threads.emplace_back([&, c] {
        while (c.recv()) ++at_work;
        ++at_work;
      });
      threads.emplace_back([&, k, round] {
        pair& mine = owned[k];
        while (!ended) {
          if ((round + static_cast<int>(k)) % 4 == 0) mine.timer.stop();
          if ((round + static_cast<int>(k)) % 4 == 1) mine.ticker.stop();
          try_to([&] { mine.timer.reset(10us); });
          try_to([&] { mine.ticker.reset(5us); });
          ++at_work;
        }
        if (round % 2 == 0) mine = {};
      });
    }
    ASSERT_TRUE(eventually([&] { return at_work > 20 + round % 50; }));
    rt.reset();
    ended = true;
    for (auto& t : threads) t.join();  // every receiver has seen the end
  }
}

INSTANTIATE_TEST_SUITE_P(engines, channels_of_a_runtime_that_ends,
                         testing::ValuesIn(engines().begin(), engines().end()),
                         [](const auto& e) { return std::string(name_of(e.param)); });

TEST(channels_of_a_simulation_that_ends, are_closed) {
  std::vector<channel_of_some_timer> all;
  {
    simulation sim;
    all = one_of_each();
  }
  for (const auto& one : all) EXPECT_TRUE(one.c.closed()) << one.what;
}

TEST(channels_of_a_runtime_that_its_task_ends, are_closed_for_that_task) {
  auto rt = std::make_unique<runtime>(runtime_options{.processors = 1});
  std::atomic<int> closed{0};
  std::atomic<bool> ended{false};
  rt->spawn([&] {
      auto all = one_of_each();
      rt.reset();
      for (const auto& one : all) closed += one.c.recv() ? 0 : 1;
      ended = true;
    }).detach();
  ASSERT_TRUE(eventually([&] { return ended.load(); }));
  EXPECT_EQ(closed, 15);
}

}  // namespace
}  // namespace verge
