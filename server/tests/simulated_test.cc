// SPDX-License-Identifier: Apache-2.0

// The whole of it but sockets and disk, in simulated time: committer, broker, store. A year of
// tasks takes a second, and any seed gives the same run again.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <verge/chan.h>
#include <verge/simulation.h>
#include <verge/task.h>
#include <verge/time.h>

#include "broker/committer.h"
#include "support/scale.h"

namespace {

using namespace verge::server;
using namespace std::chrono_literals;

/// A client inside the simulation: commands in, replies out of a channel.
class simulated_client final : public client {
 public:
  void deliver(reply r) override { static_cast<void>(replies.try_send(std::move(r))); }
  void flush() noexcept override {}
  void left() noexcept override {}
  verge::chan<reply> replies{64};
};

/// Seconds of simulated wall time since the start; it can be set.
struct wall_clock {
  std::int64_t offset{1'700'000'000'000'000'000};
  wall_time now() const {
    return offset + std::chrono::nanoseconds(verge::clock::now().time_since_epoch()).count();
  }
};

struct world {
  explicit world(std::uint64_t seed, broker_options o = {}) : sim(seed), kept(make_memory_store()) {
    o.seed = seed;
    it = std::make_unique<committer>(*kept, o, [this] {
      if (++looks == many_looks) it->stop();
      return wall.now();
    });
    serving = sim.thread([this] { return it->run(); });
  }
  ~world() {
    it->stop();
    serving.join();
  }
  /// More than any of these tests needs: a committer that looks without end would never let time
  /// pass.
  static constexpr int many_looks = 1'000'000;

  verge::simulation sim;
  wall_clock wall;
  int looks{0};  ///< at the wall clock
  std::unique_ptr<store> kept;
  std::unique_ptr<committer> it;
  verge::join_handle<> serving;
};

verge::task<reply> ask(committer& to, std::shared_ptr<simulated_client> c, command cmd) {
  to.submit({c, std::move(cmd)});
  auto r = co_await verge::recv(c->replies);
  co_return std::move(*r);
}

command put_command(nanoseconds delay, nanoseconds ttr, std::string body, std::string key = {}) {
  command c(verb::put);
  new_task& t = c.tasks.emplace_back();
  t.delay = delay;
  t.ttr = ttr;
  t.body = std::move(body);
  t.key = std::move(key);
  return c;
}

/// Tasks that are due all over a year; workers that take them, and some that never come back. Each
/// is handed out at its second or later, and until it is deleted, as often as that takes.
std::string a_year(std::uint64_t seed, int tasks) {
  world w(seed);
  std::string log;
  std::map<std::string, wall_time> due;
  int done = 0;
  w.sim.run([&]() -> verge::task<> {
    std::mt19937_64 random(seed);
    auto producer = std::make_shared<simulated_client>();
    for (int i = 0; i < tasks; ++i) {
      const auto delay = static_cast<nanoseconds>(random() % (365 * 86'400)) * second;
      const std::string name = "task-" + std::to_string(i);
      due[name] = w.wall.now() + delay;
      const reply r = co_await ask(*w.it, producer, put_command(delay, 60 * second, name));
      EXPECT_EQ(r.what, answer::inserted);
    }
    std::vector<verge::join_handle<>> workers;
    for (int i = 0; i < 3; ++i) {
      workers.push_back(verge::go([&, i]() -> verge::task<> {
        auto me = std::make_shared<simulated_client>();
        std::mt19937_64 mine(seed + static_cast<std::uint64_t>(i));
        while (done < tasks) {
          command reserve(verb::reserve);
          reserve.limit = 30 * 86'400 * second;
          const reply r = co_await ask(*w.it, me, std::move(reserve));
          if (r.what != answer::reserved) continue;
          EXPECT_GE(w.wall.now(), due.at(*r.task.body)) << "early";
          if (mine() % 4 == 0) {
            // It dies: another connection goes on, and the task is handed out again.
            w.it->submit({me, command(verb::leave)});
            me = std::make_shared<simulated_client>();
            continue;
          }
          co_await verge::sleep(
              std::chrono::seconds(mine() % 90));  // longer than the TTR, at times
          const reply d = co_await ask(*w.it, me, command(verb::remove, r.task.id));
          if (d.what != answer::deleted) continue;
          ++done;
          log += *r.task.body + "@" + std::to_string(w.wall.now() / second) + "\n";
        }
      }));
    }
    for (auto& h : workers) co_await h;
  });
  EXPECT_EQ(done, tasks);
  return log;
}

TEST(simulated_server, serves_a_year_of_tasks_and_loses_none) {
  const int tasks = verge::test::scale(3000, 300);
  for (std::uint64_t seed = 1; seed <= 3; ++seed) a_year(seed, tasks);
}

TEST(simulated_server, does_the_same_again_with_the_same_seed) {
  const std::string first = a_year(42, 300);
  EXPECT_EQ(first, a_year(42, 300));
  EXPECT_NE(first, a_year(43, 300));
}

TEST(simulated_server, hands_tasks_out_to_the_nanosecond) {
  world w(1);
  w.sim.run([&]() -> verge::task<> {
    auto me = std::make_shared<simulated_client>();
    const wall_time begin = w.wall.now();
    static_cast<void>(co_await ask(*w.it, me, put_command(5 * second, second, "x")));
    const reply r = co_await ask(*w.it, me, command(verb::reserve));
    EXPECT_EQ(r.what, answer::reserved);
    EXPECT_EQ(w.wall.now() - begin, 5 * second);
  });
}

/// Due times are the wall clock's: a step moves them with it. What is ready stays ready.
TEST(simulated_server, follows_steps_of_the_wall_clock) {
  world w(1);
  w.sim.run([&]() -> verge::task<> {
    auto me = std::make_shared<simulated_client>();
    const auto reserve_now = [&]() -> verge::task<answer> {
      command c(verb::reserve);
      c.limit = 0;
      co_return (co_await ask(*w.it, me, std::move(c))).what;
    };
    static_cast<void>(
        co_await ask(*w.it, me, put_command(3600 * second, 60 * second, "in an hour")));
    static_cast<void>(co_await ask(*w.it, me, put_command(2 * second, 60 * second, "soon")));
    co_await verge::sleep(3s);
    // An hour back: "soon" is ready already, and stays so.
    w.wall.offset -= 3600 * second;
    w.it->clock_stepped();
    EXPECT_EQ(co_await reserve_now(), answer::reserved);
    EXPECT_EQ(co_await reserve_now(), answer::timed_out);
    // Two hours on: the other one is due at once, though only seconds have passed.
    w.wall.offset += 2 * 3600 * second;
    w.it->clock_stepped();
    co_await verge::sleep(1ms);
    EXPECT_EQ(co_await reserve_now(), answer::reserved);
  });
}

/// It has tasks that fall due, leases that end and clients whose wait is over, and does nothing
/// about them: it waits until it is told to end.
TEST(simulated_server, rests_when_it_has_failed) {
  world w(1);
  bool ours = true;
  w.it->still_ours = [&] { return ours; };
  w.sim.run([&]() -> verge::task<> {
    auto me = std::make_shared<simulated_client>();
    static_cast<void>(co_await ask(*w.it, me, put_command(0, second, "leased")));
    EXPECT_EQ((co_await ask(*w.it, me, command(verb::reserve))).what, answer::reserved);
    static_cast<void>(co_await ask(*w.it, me, put_command(2 * second, second, "due")));
    ours = false;
    EXPECT_EQ((co_await ask(*w.it, me, command(verb::stats))).what, answer::moved);
    const int before = w.looks;
    co_await verge::sleep(1h);
    EXPECT_LT(w.looks - before, 10);
    EXPECT_EQ((co_await ask(*w.it, me, command(verb::stats))).what, answer::internal_error);
  });
}

/// All clients wait; tasks are given in the order in which they came.
TEST(simulated_server, serves_waiting_clients_in_the_order_in_which_they_came) {
  world w(7);
  w.sim.run([&]() -> verge::task<> {
    std::vector<std::shared_ptr<simulated_client>> waiting;
    for (int i = 0; i < 20; ++i) {
      waiting.push_back(std::make_shared<simulated_client>());
      w.it->submit({waiting.back(), command(verb::reserve)});
      co_await verge::sleep(1ms);
    }
    auto producer = std::make_shared<simulated_client>();
    for (int i = 0; i < 20; ++i) {
      static_cast<void>(
          co_await ask(*w.it, producer, put_command(0, second * 100, std::to_string(i))));
      const auto r = co_await verge::recv(waiting[static_cast<std::size_t>(i)]->replies);
      EXPECT_EQ(*r->task.body, std::to_string(i));
    }
  });
}

/// Ten thousand at one instant, more than a chunk: all of them, in their order.
TEST(simulated_server, gets_through_a_storm) {
  world w(3, {.most_in_memory = 500, .chunk = 100, .elsewhere = {}});
  const int tasks = verge::test::scale(10'000, 2'000);
  w.sim.run([&]() -> verge::task<> {
    auto me = std::make_shared<simulated_client>();
    for (int i = 0; i < tasks; ++i) {
      static_cast<void>(
          co_await ask(*w.it, me, put_command(10 * second, 1000 * second, std::to_string(i))));
    }
    std::string last;
    for (int i = 0; i < tasks; ++i) {
      const reply r = co_await ask(*w.it, me, command(verb::reserve));
      if (r.what != answer::reserved) {
        ADD_FAILURE() << "no task, but " << static_cast<int>(r.what);
        break;
      }
      EXPECT_EQ(*r.task.body, std::to_string(i));
      EXPECT_EQ((co_await ask(*w.it, me, command(verb::remove, r.task.id))).what, answer::deleted);
    }
  });
}

}  // namespace
