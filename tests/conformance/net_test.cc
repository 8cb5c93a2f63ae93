// SPDX-License-Identifier: Apache-2.0

// Lines 46 to 52: deadlines on sockets, on 1, 2 and 4 processors.

#include <conformance/conformance.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <support/sockets.h>

namespace verge::test {
namespace {

constexpr auto processor_numbers = {1U, 2U, 4U};

task<io_result> read_from(tcp_conn& conn, bytes64& bytes) {
  co_return co_await conn.read_some(bytes);
}

TEST_P(conformance, L46_a_deadline_in_the_past_fails_at_once_even_with_data_ready) {
  for (const unsigned processors : processor_numbers) {
    runtime rt(live(processors));
    rt.run([]() -> task<> {
      auto [near, far] = co_await connected();
      bytes64 bytes;
      co_await near.write_all("ready");
      EXPECT_EQ((co_await far.read_full(buffer(bytes.data(), 1))).bytes, 1u) << "it has arrived";
      for (const time_point past : {clock::now(), clock::now() - 1h, time_point::min()}) {
        EXPECT_FALSE(far.set_read_deadline(past));
        const io_result read = co_await far.read_some(bytes);
        EXPECT_EQ(read.error, net_errc::deadline_exceeded);
        EXPECT_EQ(read.bytes, 0u);
        EXPECT_FALSE(near.set_write_deadline(past));
        EXPECT_EQ((co_await near.write_all("x")).error, net_errc::deadline_exceeded);
      }
      far.set_read_deadline(no_deadline);
      EXPECT_EQ((co_await far.read_some(bytes)).bytes, 4u) << "nothing of it is lost";
    });
  }
}

TEST_P(conformance, L46_accept_fails_at_once_too) {
  for (const unsigned processors : processor_numbers) {
    runtime rt(live(processors));
    rt.run([]() -> task<> {
      auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
      auto near = (co_await tcp_conn::connect(listener.local().or_throw())).or_throw();
      listener.set_read_deadline(clock::now() - 1ns);
      EXPECT_EQ((co_await listener.accept()).error, net_errc::deadline_exceeded);
      listener.set_deadline(no_deadline);
      EXPECT_FALSE((co_await listener.accept()).error);
      const auto start = clock::now();
      listener.set_deadline(start + 10ms);
      EXPECT_EQ((co_await listener.accept()).error, net_errc::deadline_exceeded);
      EXPECT_GE(clock::now(), start + 10ms);
    });
  }
}

TEST_P(conformance, L47_a_write_that_is_late_says_how_much_it_wrote) {
  for (const unsigned processors : processor_numbers) {
    runtime rt(live(processors));
    rt.run([]() -> task<> {
      auto [near, far] = co_await connected();
      std::string much(16 << 20, 'x');
      io_result written;
      for (auto limit = 10ms; written.bytes == 0;
           limit *= 2) {  // it may pass before the first byte
        near.set_write_deadline(clock::now() + limit);
        written = co_await near.write_all(much);
        EXPECT_EQ(written.error, net_errc::deadline_exceeded);
      }
      EXPECT_LT(written.bytes, much.size());
      std::fill(much.begin(), much.end(), 'y');  // the buffer is ours again
      near.shutdown_write();
      std::size_t arrived = 0;
      std::string part(1 << 20, '\0');
      while (auto got = co_await far.read_some(part)) {
        for (std::size_t i = 0; i < got.bytes; ++i) arrived += part[i] == 'x';
      }
      EXPECT_EQ(arrived, written.bytes);
    });
  }
}

TEST_P(conformance, L48_an_expired_deadline_that_is_cleared_lets_operations_wait_again) {
  for (const unsigned processors : processor_numbers) {
    runtime rt(live(processors));
    auto [near, far] = rt.run(connected());
    bytes64 bytes;
    far.set_read_deadline(clock::now() + 1ms);
    EXPECT_EQ(rt.run(read_from(far, bytes)).error, net_errc::deadline_exceeded);
    EXPECT_EQ(rt.run(read_from(far, bytes)).error, net_errc::deadline_exceeded) << "it stays so";
    far.set_read_deadline(no_deadline);
    auto reader = rt.spawn(read_from(far, bytes));
    EXPECT_TRUE(eventually([&f = far] { return has_reader(f); }));
    EXPECT_TRUE(near.write_all("now").wait());
    EXPECT_EQ(reader.join().bytes, 3u);
  }
}

TEST_P(conformance, L48_the_other_directions_deadline_does_not_matter) {
  for (const unsigned processors : processor_numbers) {
    runtime rt(live(processors));
    auto [near, far] = rt.run(connected());
    bytes64 bytes;
    // Past, and one that passes while the reader waits.
    far.set_write_deadline(clock::now() - 1s);
    auto reader = rt.spawn(read_from(far, bytes));
    near.set_read_deadline(clock::now() + 1ms);
    EXPECT_EQ(rt.run(read_from(near, bytes)).error, net_errc::deadline_exceeded);
    EXPECT_TRUE(eventually([&f = far] { return has_reader(f); }));
    far.set_write_deadline(clock::now() + 1ms);
    EXPECT_TRUE(eventually(
        [&f = far] { return f.write_all("x").wait().error == net_errc::deadline_exceeded; }));
    EXPECT_FALSE(reader.done());
    EXPECT_TRUE(near.write_all("x").wait()) << "reading has expired, writing has not";
    EXPECT_EQ(reader.join().bytes, 1u);
  }
}

TEST_P(conformance, L49_a_deadline_is_never_early_and_not_much_too_late) {
  for (const unsigned processors : processor_numbers) {
    runtime rt(live(processors));
    rt.run([]() -> task<> {
      auto [near, far] = co_await connected();
      bytes64 bytes;
      for (const nanoseconds d : {1ns, 1'000ns, 10'000ns, 100'000ns, 1'000'000ns, 5'000'000ns,
                                  25'000'000ns, 50'000'000ns}) {
        const auto start = clock::now();
        far.set_read_deadline(start + d);
        EXPECT_EQ((co_await far.read_some(bytes)).error, net_errc::deadline_exceeded);
        const auto took = clock::now() - start;
        EXPECT_GE(took, d);
        EXPECT_LT(took, d + 20s) << "early is an error, late may be the machine's fault";
      }
    });
  }
}

TEST_P(conformance, L49_a_second_is_a_second) {
  runtime rt(live(2));
  auto [near, far] = rt.run(connected());
  bytes64 bytes;
  const nanoseconds second = scale<nanoseconds>(1s, 100ms);
  const auto start = clock::now();
  far.set_read_deadline(start + second);
  EXPECT_EQ(rt.run(read_from(far, bytes)).error, net_errc::deadline_exceeded);
  EXPECT_GE(clock::now(), start + second);
}

TEST_P(conformance, L49_a_deadline_beyond_an_engines_span_is_accepted_and_one_before_it_kept) {
  runtime rt(live(1));
  auto [near, far] = rt.run(connected());
  bytes64 bytes;
  EXPECT_FALSE(far.set_deadline(clock::now() + 24h * 365));
  EXPECT_FALSE(far.set_deadline(time_point::max() - 1ns));
  const auto start = clock::now();
  EXPECT_FALSE(far.set_read_deadline(start + 5ms));
  EXPECT_EQ(rt.run(read_from(far, bytes)).error, net_errc::deadline_exceeded);
  EXPECT_GE(clock::now(), start + 5ms);
}

TEST_P(conformance, L50_a_deadline_is_postponed_while_a_read_waits) {
  for (const unsigned processors : processor_numbers) {
    runtime rt(live(processors));
    auto [near, far] = rt.run(connected());
    bytes64 bytes;
    far.set_deadline(clock::now() + 1h);
    auto reader = rt.spawn([&f = far, &bytes]() -> task<time_point> {
      EXPECT_EQ((co_await f.read_some(bytes)).error, net_errc::deadline_exceeded);
      co_return clock::now();
    });
    ASSERT_TRUE(eventually([&f = far] { return has_reader(f); }));
    const auto first = clock::now() + 20ms;
    auto last = first;
    far.set_deadline(first);
    while (clock::now() < first) {
      std::this_thread::sleep_for(1ms);
      const auto next = clock::now() + 20ms;
      far.set_deadline(next);
      if (clock::now() >= last) break;  // it may have passed before during a stall of the machine
      last = next;
    }
    EXPECT_GE(reader.join(), last);
  }
}

TEST_P(conformance, L50_eight_threads_move_one_deadline_to_earlier) {
  for (const unsigned processors : processor_numbers) {
    runtime rt(live(processors));
    auto [near, far] = rt.run(connected());
    for (int round = 0; round < scale(4, 2); ++round) {
      bytes64 bytes;
      far.set_deadline(no_deadline);
      auto reader = rt.spawn(read_from(far, bytes));
      const auto start = clock::now();
      std::vector<std::thread> threads;
      for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&f = far, start, i] {
          for (int n = 500; n > 0; --n) f.set_read_deadline(start + 10ms + n * 1s + i * 1us);
          f.set_read_deadline(start + 10ms + i * 1us);
        });
      }
      for (auto& t : threads) t.join();
      // The last set decides: one of the eight that are about to be due.
      EXPECT_EQ(reader.join().error, net_errc::deadline_exceeded);
      EXPECT_GE(clock::now(), start + 10ms);
      EXPECT_LT(clock::now(), start + 400s);
    }
  }
}

/// A waiting read and a waiting write end with `error` once end() is called.
void expect_both_to_end(runtime& rt, tcp_conn& conn, const auto& end, net_errc error) {
  bytes64 bytes;
  auto reader = rt.spawn(read_from(conn, bytes));
  auto writer = rt.spawn(
      [&]() -> task<io_result> { co_return co_await conn.write_all(std::string(16 << 20, 'x')); });
  EXPECT_TRUE(eventually([&] { return has_reader(conn) && has_writer(conn); }));
  end();
  EXPECT_EQ(reader.join().error, error);
  EXPECT_EQ(writer.join().error, error);
}

TEST_P(conformance, L51_setting_a_past_deadline_ends_what_waits) {
  for (const unsigned processors : processor_numbers) {
    runtime rt(live(processors));
    auto [near, far] = rt.run(connected());
    expect_both_to_end(
        rt, far, [&f = far] { f.set_deadline(clock::now() - 1s); }, net_errc::deadline_exceeded);
  }
}

TEST_P(conformance, L51_closing_ends_both_directions_deadline_or_none) {
  for (const unsigned processors : processor_numbers) {
    runtime rt(live(processors));
    auto [near, far] = rt.run(connected());
    far.set_read_deadline(clock::now() + 1min);
    expect_both_to_end(
        rt, far, [&f = far] { f.close(); }, net_errc::closed);
  }
}

// A deadline that is just about to pass is postponed, again and again: a firing of the old one that
// is already on its way must not count for the new one.
TEST_P(conformance, L52_a_stale_firing_is_recognised_and_ignored) {
  for (const unsigned processors : processor_numbers) {
    runtime rt(live(processors));
    auto [near, far] = rt.run(connected());
    int moved = 0;
    for (int round = 0; round < scale(300, 100); ++round) {
      const auto soon = clock::now() + round % 100 * 2us;
      far.set_read_deadline(soon);
      while (clock::now() < soon - 1us) {
      }
      far.set_read_deadline(clock::now() + 1h);  // whatever happened to the first one
      bytes64 bytes;
      EXPECT_TRUE(near.write_all("x").wait());
      const io_result got = far.read_some(bytes).wait();
      moved += got.bytes == 1;
      ASSERT_FALSE(got.error) << got.error.message() << " in round " << round;
    }
    EXPECT_EQ(moved, scale(300, 100));
  }
}

TEST_P(conformance, L52_a_firing_for_one_direction_does_not_affect_the_other) {
  runtime rt(live(2));
  rt.run([]() -> task<> {
    auto [near, far] = co_await connected();
    bytes64 bytes;
    const auto start = clock::now();
    // They share a timer until one of them is moved.
    far.set_deadline(start + 2ms);
    far.set_write_deadline(start + 1h);
    EXPECT_EQ((co_await far.read_some(bytes)).error, net_errc::deadline_exceeded);
    EXPECT_TRUE(co_await far.write_all("x"));
    far.set_read_deadline(start + 1h);
    far.set_write_deadline(clock::now() + 2ms);
    while ((co_await far.write_some(bytes)).error != net_errc::deadline_exceeded) {
    }
    co_await near.write_all("y");
    EXPECT_EQ((co_await far.read_some(bytes)).bytes, 1u);
  });
}

TEST_P(conformance, L52_deadlines_set_and_cleared_at_random_from_all_sides) {
  runtime rt(live(2));
  auto [near, far] = rt.run(connected());
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&f = far, &over, i] {
      std::uint32_t x = 12345U + static_cast<std::uint32_t>(i);
      while (!over.load()) {
        x = x * 1664525U + 1013904223U;
        const auto when = clock::now() + std::chrono::microseconds(x >> 20);
        switch (x >> 8 & 3) {
          case 0:
            f.set_deadline(when);
            break;
          case 1:
            f.set_read_deadline(when);
            break;
          case 2:
            f.set_write_deadline(when);
            break;
          default:
            f.set_deadline(no_deadline);
        }
      }
    });
  }
  int late = 0;
  for (int n = 0; n < scale(500, 100); ++n) {
    bytes64 bytes;
    const io_result got = far.read_some(bytes).wait();
    ASSERT_EQ(got.error, net_errc::deadline_exceeded);
    ++late;
    if (n % 16 == 0) std::this_thread::yield();
  }
  over.store(true);
  for (auto& t : threads) t.join();
  far.set_deadline(no_deadline);
  EXPECT_TRUE(near.write_all("x").wait());
  bytes64 bytes;
  EXPECT_EQ(far.read_some(bytes).wait().bytes, 1u);
}

}  // namespace
}  // namespace verge::test
