// SPDX-License-Identifier: Apache-2.0

// Lines 17 to 20 and 34: one timer, many threads.

#include <conformance/conformance.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace verge::test {
namespace {

/// Runs f(i) on n plain threads that use rt, and waits for all.
template <class F>
void on_threads(runtime& rt, int n, F f) {
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) {
    threads.emplace_back([&rt, &f, i] {
      as_default here(rt);
      f(i);
    });
  }
  for (auto& t : threads) t.join();
}

TEST_P(conformance, L17_eight_threads_reset_one_timer_and_the_last_reset_counts) {
  runtime rt(live());
  as_default here(rt);
  std::atomic<int> fired{0};
  auto t = after_func(up_to(1h), [&] { ++fired; });
  on_threads(rt, 8, [&](int) {
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(t.reset(minutes(4 + i % 5)));
  });
  EXPECT_EQ(fired, 0);
  EXPECT_TRUE(t.reset(1ms));
  EXPECT_TRUE(eventually([&] { return fired == 1; }));
  EXPECT_FALSE(t.stop());
}

TEST_P(conformance, L17_with_stops_mixed_in_every_arming_ends_in_exactly_one_way) {
  runtime rt(live());
  as_default here(rt);
  std::atomic<int> fired{0};
  std::atomic<int> armed{1};
  std::atomic<int> taken_back{0};
  auto t = after_func(up_to(1h), [&] { ++fired; });
  on_threads(rt, 8, [&](int thread) {
    for (int i = 0; i < 1000; ++i) {
      const int what = (thread + i) % 3;
      if (what == 0) {
        taken_back += t.stop();
      } else {
        taken_back += t.reset(what == 1 ? nanoseconds(1ns) : minutes(1));
        ++armed;
      }
    }
  });
  taken_back += t.stop();
  EXPECT_TRUE(eventually([&] { return fired + taken_back >= armed; }));
  EXPECT_EQ(fired + taken_back, armed);

  t.reset(1ms);
  EXPECT_TRUE(eventually([&] { return fired + taken_back == armed + 1; }));
}

/// Revokes a time, with stop or reset, while another thread receives it: the call returns false
/// only if the time has been received, as an unreceived time is revoked.
template <class TakeBack>
void is_false_exactly_if_received(runtime& rt, int rounds, TakeBack take_back) {
  const int received = rt.run([&]() -> task<int> {
    int n = 0;
    for (int i = 0; i < rounds; ++i) {
      verge::timer t((i % 64) * 1us);
      chan<bool> give_up(1);
      auto reader = go([&]() -> task<bool> {
        bool got = false;
        co_await verge::select(verge::recv(t.c(), [&] { got = true; }), verge::recv(give_up));
        co_return got;
      });
      for (int yields = i % 32; yields > 0; --yields) co_await verge::yield();
      const bool was_pending = take_back(t);
      co_await verge::send(give_up, true);
      const bool got = co_await reader;
      EXPECT_NE(was_pending, got) << "in round " << i;
      n += got;
    }
    co_return n;
  });
  testing::Test::RecordProperty("received", received);
  testing::Test::RecordProperty("taken_back", rounds - received);
}

TEST_P(conformance, L18_stop_is_false_exactly_if_the_time_is_received) {
  runtime rt(live());
  is_false_exactly_if_received(rt, tick() == 0ns ? scale(5000, 500) : 200,
                               [](verge::timer& t) { return t.stop(); });
}

TEST_P(conformance, L18_reset_is_false_exactly_if_the_time_is_received) {
  runtime rt(live());
  is_false_exactly_if_received(rt, tick() == 0ns ? scale(5000, 500) : 200,
                               [](verge::timer& t) { return t.reset(minutes(8)); });
}

TEST_P(conformance, L18_in_simulated_time_a_time_that_waits_in_the_channel_counts_as_pending) {
  simulation sim(simulated());
  verge::timer t(1ms);
  sim.run_for(20ms);
  EXPECT_EQ(t.c().size(), 1u);
  EXPECT_TRUE(t.stop());
  EXPECT_EQ(t.c().size(), 0u);
  EXPECT_FALSE(t.stop());
  t.reset(1ms);
  sim.run_for(20ms);
  EXPECT_TRUE(t.reset(1ms));
  EXPECT_TRUE(t.c().recv());
  EXPECT_FALSE(t.reset(1ms));
}

TEST_P(conformance, L19_nothing_from_before_a_stop_or_reset_is_received_after_it) {
  runtime rt(live());
  on_threads(rt, 4, [&](int thread) {
    std::mt19937 random(static_cast<unsigned>(thread));
    verge::timer t(1us);
    const int rounds = tick() == 0ns ? scale(3000, 300) : 100;
    for (int i = 0; i < rounds; ++i) {
      for (auto n = random() % 2000; n > 0; --n)
        std::atomic_signal_fence(std::memory_order_seq_cst);
      t.stop();
      ASSERT_FALSE(t.c().try_recv()) << "after stop, in round " << i;
      t.reset((random() % 20) * 1us);
      for (auto n = random() % 2000; n > 0; --n)
        std::atomic_signal_fence(std::memory_order_seq_cst);

      const auto before = clock::now();
      const auto d = (random() % 100) * 1us;
      t.reset(d);
      const auto got = *t.c().recv();
      ASSERT_GE(got, before + d) << "stale by " << (before + d - got).count() << " ns, in round "
                                 << i;
    }
  });
}

TEST_P(conformance, L20_many_threads_receive_and_reset_one_timer) {
  runtime rt(live());
  as_default here(rt);
  verge::timer t(1ns);
  std::atomic<int> received{0};
  const int wanted = tick() == 0ns ? scale(40'000, 4'000) : 400;
  const auto end = clock::now() + 1500ms;
  chan<bool> over;
  on_threads(rt, 4, [&](int) {
    for (;;) {
      bool got = false;
      verge::select(verge::recv(t.c(), [&] { got = true; }), verge::recv(over)).wait();
      if (!got) return;
      if (++received == wanted || clock::now() > end) return over.close();
      t.reset(1ns);
    }
  });
  EXPECT_TRUE(received == wanted || clock::now() > end) << received << " of " << wanted;
}

TEST_P(conformance, L20_many_tasks_receive_and_reset_one_timer) {
  runtime rt(live(4));
  as_default here(rt);
  verge::timer t(1ns);
  std::atomic<int> received{0};
  const int wanted = tick() == 0ns ? scale(40'000, 4'000) : 400;
  const auto end = clock::now() + 1500ms;
  chan<bool> over;
  std::vector<join_handle<>> tasks;
  for (int i = 0; i < 4; ++i) {
    tasks.push_back(rt.spawn([&]() -> task<> {
      for (;;) {
        bool got = false;
        co_await verge::select(verge::recv(t.c(), [&] { got = true; }), verge::recv(over));
        if (!got) co_return;
        if (++received == wanted || clock::now() > end) {
          over.close();
          co_return;
        }
        t.reset(1ns);
      }
    }));
  }
  for (auto& one : tasks) one.join();
  EXPECT_TRUE(received == wanted || clock::now() > end) << received << " of " << wanted;
}

/// The thread sanitizer checks this.
TEST_P(conformance, L34_what_happened_before_start_or_reset_is_visible_to_the_callback) {
  runtime rt(live());
  on_threads(rt, 4, [&](int) {
    const int rounds = tick() == 0ns ? scale(2000, 200) : 50;
    for (int i = 0; i < rounds; ++i) {
      int plain = 1;
      int seen = 0;
      chan<bool> done(1);
      auto t = after_func(0s, [&] {
        seen = plain;
        done.send(true);
      });
      done.recv();
      ASSERT_EQ(seen, 1);
      plain = 2;
      t.reset(0s);
      done.recv();
      ASSERT_EQ(seen, 2);
    }
  });
}

TEST_P(conformance, L34_what_happened_before_reset_is_visible_to_the_receiver_of_the_time) {
  runtime rt(live());
  as_default here(rt);
  const int rounds = tick() == 0ns ? scale(2000, 200) : 50;
  int plain = 0;
  verge::timer t(up_to(1h));
  const auto c = t.c();
  chan<int> seen;
  std::thread reader([&, &runtime_of_test = rt] {
    as_default there(runtime_of_test);
    for (int i = 0; i < rounds; ++i) {
      c.recv();
      seen.send(plain);
    }
  });
  for (int i = 0; i < rounds; ++i) {
    plain = i;
    t.reset(0s);
    EXPECT_EQ(seen.recv(), i);
  }
  reader.join();
}

}  // namespace
}  // namespace verge::test
