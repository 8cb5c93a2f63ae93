// SPDX-License-Identifier: Apache-2.0

// A turn of a task: a task that always finds something to do still lets the others run.

#include <gtest/gtest.h>
#include <verge/chan.h>
#include <verge/net.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/simulation.h>
#include <verge/task.h>
#include <verge/time.h>
#include <verge/timeout.h>
#include <verge/under.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sched/live_scheduler.h>
#include <support/as_default.h>
#include <support/patience.h>
#include <support/sockets.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;

constexpr int many = 20'000;
constexpr int per_turn = static_cast<int>(detail::operations_per_turn);
constexpr int calls_per_turn = per_turn / static_cast<int>(detail::operations_per_system_call);

using step = std::function<task<>()>;

/// The greatest number of steps of a task between two turns of another that only yields. A step is
/// one operation that does not wait.
task<int> most_between_two_turns(step one_step) {
  int done = 0;
  auto busy = go([&]() -> task<> {
    while (done < many) {
      co_await one_step();
      ++done;
    }
  });
  int most = 0;
  for (int before = 0; done < many; before = done) {
    co_await verge::yield();
    most = std::max(most, done - before);
  }
  co_await busy;
  co_return most;
}

/// On one processor, and no spare one, tasks take turns whatever the machine does meanwhile.
class turn : public testing::Test {
 protected:
  turn() { static_cast<detail::live_scheduler&>(detail::scheduler_of(rt)).limit_spares(0); }

  void expect_turns_of(int operations, step one_step) {
    EXPECT_LE(rt.run(most_between_two_turns(std::move(one_step))), operations + 1);
  }

  runtime rt{{.processors = 1}};
  as_default here{rt};
};

/// Without it, the two would go on until one of them has used up its turn.
TEST_F(turn, two_tasks_that_hand_over_to_each_other_let_a_third_run_after_16_times) {
  chan<int> there;
  chan<int> back;
  int handed_over = 0;
  bool over = false;
  auto one = rt.spawn([&]() -> task<> {
    while (!over) {
      ++handed_over;
      co_await verge::send(there, 1);
      ++handed_over;
      co_await verge::recv(back);
    }
    there.close();
  });
  auto two = rt.spawn([&]() -> task<> {
    while (co_await verge::recv(there)) co_await verge::send(back, 1);
  });
  const int most = rt.run([&]() -> task<int> {
    int longest = 0;
    for (int i = 0; i < 1000; ++i) {
      const int before = handed_over;
      co_await verge::yield();
      if (i > 10) longest = std::max(longest, handed_over - before);
    }
    over = true;
    co_return longest;
  });
  one.join();
  two.join();
  EXPECT_GT(most, 2) << "they do hand over";
  EXPECT_LE(most, 20);
}

TEST_F(turn, a_reader_that_always_finds_data_yields) {
  auto [from, to] = make_pipe().or_throw();
  EXPECT_TRUE(to.write_all(std::string(many, 'x')).wait());
  char byte = 0;
  expect_turns_of(calls_per_turn, [&f = from, &byte]() -> task<> {
    EXPECT_TRUE(co_await f.read_some(buffer(&byte, 1)));
  });
}

TEST_F(turn, a_writer_that_always_finds_room_yields) {
  auto [from, to] = make_pipe().or_throw();
  expect_turns_of(calls_per_turn,
                  [&t = to]() -> task<> { EXPECT_TRUE(co_await t.write_some("x")); });
}

TEST_F(turn, a_limit_changes_nothing_about_it) {
  auto [from, to] = make_pipe().or_throw();
  expect_turns_of(calls_per_turn, [&t = to]() -> task<> {
    EXPECT_TRUE(co_await under(background(), verge::timeout(t.write_some("x"), 1h)));
  });
}

TEST_F(turn, a_receiver_that_always_finds_a_value_yields) {
  chan<int> ch(many);
  for (int i = 0; i < many; ++i) ch.send(i);
  expect_turns_of(per_turn, [&]() -> task<> { EXPECT_TRUE(co_await recv(ch)); });
}

TEST_F(turn, a_sender_that_always_finds_room_yields) {
  chan<int> ch(many);
  expect_turns_of(per_turn, [&]() -> task<> { co_await send(ch, 1); });
}

TEST_F(turn, a_select_that_never_waits_yields) {
  chan<int> ch;
  expect_turns_of(per_turn, [&]() -> task<> { co_await verge::select(recv(ch), otherwise()); });
}

TEST_F(turn, a_sleeper_whose_time_is_up_yields) {
  expect_turns_of(per_turn, []() -> task<> { co_await verge::sleep(0s); });
}

TEST_F(turn, one_that_joins_what_has_ended_yields) {
  std::vector<join_handle<>> ended;
  for (int i = 0; i < many; ++i) ended.push_back(go([] {}));
  for (auto& h : ended) EXPECT_TRUE(eventually([&] { return h.done(); }));
  expect_turns_of(per_turn, [&]() -> task<> {
    co_await ended.back();
    ended.pop_back();
  });
}

/// In simulated time the next task is chosen at random, so the other may be passed over, but not
/// forever; and the same seed gives the same run.
TEST(simulated_turn, it_is_the_same_in_simulated_time) {
  auto run = [] {
    simulation sim({.seed = 7});
    return sim.run([]() -> task<int> {
      chan<int> ch(many);
      for (int i = 0; i < many; ++i) EXPECT_TRUE(ch.try_send(i));
      co_return co_await most_between_two_turns(
          [&]() -> task<> { EXPECT_TRUE(co_await recv(ch)); });
    });
  };
  const int most = run();
  EXPECT_LT(most, 32 * per_turn);
  EXPECT_EQ(most, run());
}

/// What was received when the turn ended is available when the next one begins; nothing is lost or
/// duplicated, even if the task is cancelled between the two.
TEST_F(turn, what_was_received_at_the_end_of_a_turn_is_kept) {
  chan<int> ch(many);
  for (int i = 0; i < many; ++i) ch.send(i);
  const int received = rt.run([&]() -> task<int> {
    int n = 0;
    auto reader = go([&]() -> task<> {
      for (;;) {
        const std::optional<int> v = co_await recv(ch);
        EXPECT_EQ(*v, n);
        ++n;
      }
    });
    // It is in its queue, at the end of a turn, whenever this task runs.
    while (n < many / 2) co_await verge::yield();
    reader.cancel();
    EXPECT_THROW(co_await reader, cancelled);
    co_return n;
  });
  EXPECT_EQ(ch.try_recv(), std::optional<int>(received)) << "the next one is the next one";
}

/// A task that never has to wait, and counts.
class always_ready {
 public:
  explicit always_ready(runtime& rt) : task_(rt.spawn(run(*this))) {}
  ~always_ready() {
    over_ = true;
    task_.join();
  }
  std::int64_t operations() const { return operations_; }

 private:
  static task<> run(always_ready& self) {
    chan<int> ch(1);
    while (!self.over_) {
      co_await send(ch, 1);
      co_await recv(ch);
      self.operations_ += 2;
    }
  }

  std::atomic<bool> over_{false};
  std::atomic<std::int64_t> operations_{0};
  join_handle<> task_;
};

/// A task that another thread spawns is in the global queue, while the local queue is never empty.
TEST_F(turn, a_task_from_outside_waits_for_the_end_of_a_turn_and_no_longer) {
  const always_ready busy(rt);
  const std::int64_t most = rt.run([&]() -> task<std::int64_t> {
    std::int64_t longest = 0;
    for (int i = 0; i < 20; ++i) {
      join_handle<std::int64_t> h;
      // While this waits the processor is blocked, so the task begins after it.
      std::thread([&] {
        h = rt.spawn([&]() -> task<std::int64_t> { co_return busy.operations(); });
      }).join();
      const std::int64_t before = busy.operations();
      longest = std::max(longest, co_await h - before);
    }
    co_return longest;
  }());
  EXPECT_LE(most, 2 * per_turn + 2);
}

/// If workers polled only when idle, an event would wait for the monitor, which polls every 10 ms.
TEST_F(turn, an_event_does_not_wait_for_the_monitor) {
  const always_ready busy(rt);
  std::vector<std::int64_t> waited;
  rt.run([&]() -> task<> {
    auto [from, to] = make_pipe().or_throw();
    for (int i = 0; i < 25; ++i) {
      auto reader = go([&f = from, &busy]() -> task<std::int64_t> {
        char byte = 0;
        EXPECT_TRUE(co_await f.read_some(buffer(&byte, 1)));
        co_return busy.operations();
      });
      while (!has_reader(from)) co_await verge::yield();
      EXPECT_TRUE(co_await to.write_all("x"));
      const std::int64_t before = busy.operations();
      waited.push_back(co_await reader - before);
    }
  }());
  std::ranges::sort(waited);
  EXPECT_LT(waited[waited.size() / 2], 40'000) << "operations of 25 ns or more in between";
}

}  // namespace
}  // namespace verge::test
