// SPDX-License-Identifier: Apache-2.0

// Parts of a few lines each, for which faults that were put in had been overlooked: repeated system
// calls, fences, notes, the descriptor that is an alarm, memory that there is not, numbers of
// threads, figures of lateness, equal addresses, and what is left of a channel after an error.

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include <base/fence.h>
#include <base/futex.h>
#include <base/runtime_thread.h>
#include <base/system_call.h>
#include <memory/page_source.h>
#include <memory/thread_slot.h>
#include <support/scale.h>
#include <verge/chan.h>
#include <verge/detail/lateness.h>
#include <verge/endpoint.h>
#include <verge/loop.h>
#include <verge/select.h>

namespace verge {
namespace {

/// The end of a file is 0 bytes, and errno may be that of an earlier call.
TEST(a_repeated_system_call, is_repeated_only_if_a_signal_has_interrupted_it) {
  int calls = 0;
  errno = EINTR;
  EXPECT_EQ(detail::uninterrupted([&] { return ++calls, 0; }), 0);
  EXPECT_EQ(calls, 1);
  calls = 0;
  const auto twice_interrupted = [&] {
    errno = EINTR;
    return ++calls < 3 ? -1 : 5;
  };
  EXPECT_EQ(detail::uninterrupted(twice_interrupted), 5);
  EXPECT_EQ(calls, 3);
  calls = 0;
  const auto fails = [&] {
    errno = EBADF;
    return ++calls, -1;
  };
  EXPECT_EQ(detail::uninterrupted(fails), -1);
  EXPECT_EQ(calls, 1);
}

TEST(a_fence_in_all_threads, works_on_this_kernel) { EXPECT_TRUE(detail::fence_all_threads()); }

TEST(a_note, that_was_left_is_found_also_when_the_time_is_over) {
  detail::note n;
  n.leave();
  EXPECT_TRUE(n.wait_until(1)) << "a time long ago";
  EXPECT_FALSE(n.wait_until(1)) << "it is left once";
  n.leave_surely();
  n.leave_surely();
  n.wait();
  EXPECT_FALSE(n.wait_until(1)) << "leaving it twice ends one wait";
}

/// Whether it can be read now, or within that time.
bool readable(const alarm_fd& alarm, int within_ms) {
  pollfd it{.fd = alarm.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&it, 1, within_ms) == 1;
}

TEST(an_alarm, can_be_read_from_its_time_on_and_not_before) {
  constexpr int a_minute = 60'000;
  alarm_fd alarm;
  EXPECT_FALSE(readable(alarm, 0)) << "nothing is set";
  alarm.set(clock::now() - std::chrono::seconds(1));
  EXPECT_TRUE(readable(alarm, a_minute));
  alarm.set(std::nullopt);
  EXPECT_FALSE(readable(alarm, 0)) << "no time";
  alarm.set(clock::time_point::min());
  EXPECT_TRUE(readable(alarm, a_minute)) << "before the clock's first time";
  alarm.set(clock::time_point::max());
  EXPECT_FALSE(readable(alarm, 0)) << "never";
  alarm.set(clock::now() + std::chrono::hours(1));
  EXPECT_FALSE(readable(alarm, 0)) << "the expiry of an earlier time is discarded";
  const auto due = clock::now() + std::chrono::milliseconds(2);
  alarm.set(due);
  EXPECT_TRUE(readable(alarm, a_minute));
  EXPECT_GE(clock::now(), due);
}

/// A program that has closed its standard input gets that number for the next descriptor.
TEST(a_descriptor, may_have_the_number_zero) {
  const int input = ::dup(0);
  ::close(0);
  {
    std::optional<alarm_fd> alarm;
    EXPECT_TRUE(detail::is_computing(::gettid())) << "reads a file of the kernel's";
    EXPECT_NO_THROW(alarm.emplace());
    EXPECT_EQ(alarm->fd(), 0);
    alarm->set(clock::now());
    EXPECT_TRUE(readable(*alarm, 60'000));
  }
  if (input >= 0) {
    ::dup2(input, 0);
    ::close(input);
  }
}

TEST(pages, that_the_system_does_not_have_are_refused) {
  EXPECT_EQ(detail::system_pages().map(std::size_t{1} << 60, 4096), nullptr);
  EXPECT_EQ(detail::system_pages().map(std::size_t{1} << 60, std::size_t{1} << 21), nullptr);
}

TEST(a_thread, has_a_number_of_its_own_and_returns_it) {
  std::uint32_t first = detail::no_thread_slot;
  std::uint32_t second = detail::no_thread_slot;
  const std::uint32_t mine = detail::take_thread_slot();
  ASSERT_NE(mine, detail::no_thread_slot);
  std::thread([&] { first = detail::take_thread_slot(); }).join();
  std::thread([&] { second = detail::take_thread_slot(); }).join();
  ASSERT_NE(first, detail::no_thread_slot);
  EXPECT_NE(first, mine);
  EXPECT_EQ(second, first) << "the lowest that is free";
  EXPECT_GT(detail::thread_slots_used(), first);
}

TEST(lateness, has_its_percentiles_in_order) {
  lateness_histogram::recorder all;
  for (int i = 0; i < 90; ++i) all.record(1'000);
  for (int i = 0; i < 9; ++i) all.record(1'000'000);
  all.record(1'000'000'000);
  const lateness_histogram h = all.read();
  EXPECT_EQ(h.count(), 100U);
  const auto about = [](std::int64_t is, std::int64_t exact) {
    return is >= exact && is <= exact + exact / 2;
  };
  EXPECT_TRUE(about(h.percentile(0), 1'000)) << h.percentile(0);
  EXPECT_TRUE(about(h.percentile(0.5), 1'000)) << h.percentile(0.5);
  EXPECT_TRUE(about(h.percentile(0.95), 1'000'000)) << h.percentile(0.95);
  EXPECT_TRUE(about(h.percentile(1), 1'000'000'000)) << h.percentile(1);
  EXPECT_EQ(lateness_histogram().percentile(0.5), 0);
}

TEST(lateness, adds_up) {
  lateness_histogram::recorder a;
  lateness_histogram::recorder b;
  a.record(1'000);
  b.record(1'000);
  b.record(2'000'000);
  lateness_histogram sum = a.read();
  sum += b.read();
  EXPECT_EQ(sum.count(), 3U);
  EXPECT_EQ(sum[lateness_histogram::bucket_of(1'000)], 2U);
}

TEST(endpoints, are_equal_if_address_and_port_are) {
  EXPECT_TRUE(endpoint::loopback(80) == endpoint::loopback(80));
  EXPECT_FALSE(endpoint::loopback(80) == endpoint::loopback(81));
  EXPECT_FALSE(endpoint::loopback(80) == endpoint::loopback_v6(80));
  EXPECT_FALSE(endpoint::loopback(80) == endpoint());
  EXPECT_TRUE(endpoint() == endpoint());
}

TEST(a_channel_that_was_closed_twice, can_still_be_used) {
  chan<int> ch(2);
  ch.send(1);
  ch.close();
  EXPECT_THROW(ch.close(), chan_closed);
  EXPECT_EQ(ch.size(), 1U);
  EXPECT_EQ(ch.recv(), 1);
  EXPECT_EQ(ch.recv(), std::nullopt);
}

/// Without waiting, from several threads: no value is lost, and none comes twice.
TEST(a_channel_that_is_only_tried, loses_nothing) {
  const int n = test::scale(200'000, 50'000);
  chan<int> ch(4);
  std::atomic<std::int64_t> sum{0};
  std::atomic<int> received{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < n; i += 2) {
        while (!ch.try_send(i)) std::this_thread::yield();
      }
    });
    threads.emplace_back([&] {
      while (received < n) {
        if (const auto v = ch.try_recv()) {
          sum += *v;
          ++received;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(received, n);
  EXPECT_EQ(sum, std::int64_t{n} * (n - 1) / 2);
}

TEST(a_select_of_two, chooses_each_if_both_are_ready) {
  chan<int> a(1);
  chan<int> b(1);
  int times[2] = {0, 0};
  for (int i = 0; i < 200; ++i) {
    a.try_send(1);
    b.try_send(1);
    ++times[select(recv(a), recv(b)).wait()];
  }
  // Fewer than 20 of 200 come once in 10^30 runs.
  EXPECT_GE(times[0], 20);
  EXPECT_GE(times[1], 20);
}

}  // namespace
}  // namespace verge
