// SPDX-License-Identifier: Apache-2.0

// Any pollable descriptor, through verge::fd.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <verge/fd.h>
#include <verge/runtime.h>
#include <verge/simulation.h>
#include <verge/task.h>
#include <verge/timeout.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>

#include <support/as_default.h>
#include <support/counting_waiter.h>
#include <support/patience.h>
#include <support/sockets.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;

class any_fd : public testing::Test {
 protected:
  static bool is_open(int number) { return ::fcntl(number, F_GETFD) >= 0; }

  runtime rt{{.processors = 2}};
  as_default here{rt};
};

TEST_F(any_fd, a_pipe_carries_bytes_and_its_end) {
  auto [from, to] = make_pipe().or_throw();
  auto reader = rt.spawn([&f = from]() -> task<std::string> {
    std::string all;
    std::array<char, 16> part;
    while (auto got = co_await f.read_some(part)) all.append(part.data(), got.bytes);
    co_return all;
  });
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(to.write_all("0123456789").wait());
  to.close();
  EXPECT_EQ(reader.join().size(), 100u);
}

TEST_F(any_fd, a_full_pipe_makes_the_writer_wait) {
  auto [from, to] = make_pipe().or_throw();
  const std::string much(1 << 20, 'x');
  auto writer =
      rt.spawn([&t = to, &much]() -> task<io_result> { co_return co_await t.write_all(much); });
  std::string all(much.size(), '\0');
  EXPECT_EQ(from.read_full(all).wait().or_throw(), much.size());
  EXPECT_EQ(writer.join().or_throw(), much.size());
  EXPECT_TRUE(all == much);
}

/// The kernel says no more than that there is an error: there is no room, and there will be none.
TEST_F(any_fd, a_writer_that_waits_is_told_that_there_is_no_reader) {
  auto [from, to] = make_pipe().or_throw();
  const std::string much(1 << 20, 'x');
  auto writer =
      rt.spawn([&t = to, &much]() -> task<io_result> { co_return co_await t.write_all(much); });
  ASSERT_TRUE(eventually([&t = to] { return has_writer(t); }));
  from.close();
  EXPECT_EQ(writer.join().error, std::errc::broken_pipe);
}

TEST_F(any_fd, writing_to_a_pipe_without_readers_is_an_error_and_no_signal) {
  ASSERT_EQ(std::signal(SIGPIPE, SIG_DFL), SIG_DFL) << "or the test would show nothing";
  auto [from, to] = make_pipe().or_throw();
  from.close();
  EXPECT_EQ(to.write_all("hello?").wait().error, std::errc::broken_pipe);
  auto in_task = rt.run(
      [&t = to]() -> task<std::error_code> { co_return (co_await t.write_all("hello?")).error; });
  EXPECT_EQ(in_task, std::errc::broken_pipe);
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0) << "none is left to come later";
}

TEST_F(any_fd, an_eventfd_wakes_its_reader) {
  auto event = fd::adopt(::eventfd(0, EFD_CLOEXEC)).or_throw();
  auto reader = rt.spawn([&]() -> task<std::uint64_t> {
    std::uint64_t n = 0;
    EXPECT_TRUE(co_await event.read_full(buffer(&n, sizeof n)));
    co_return n;
  });
  const std::uint64_t seven = 7;
  EXPECT_TRUE(event.write_all({&seven, sizeof seven}).wait());
  EXPECT_EQ(reader.join(), 7u);
}

TEST_F(any_fd, a_timerfd_wakes_its_reader) {
  auto timer = fd::adopt(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)).or_throw();
  itimerspec in_5ms{};
  in_5ms.it_value.tv_nsec = 5'000'000;
  const auto start = clock::now();
  ASSERT_EQ(::timerfd_settime(timer.native_handle(), 0, &in_5ms, nullptr), 0);
  std::uint64_t expirations = 0;
  rt.run([&]() -> task<> {
    EXPECT_TRUE(co_await timer.read_full(buffer(&expirations, sizeof expirations)));
  });
  EXPECT_EQ(expirations, 1u);
  EXPECT_GE(clock::now() - start, 5ms);
}

TEST_F(any_fd, a_signalfd_turns_signals_into_reads) {
  sigset_t usr1;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, nullptr);
  auto signals = fd::adopt(::signalfd(-1, &usr1, SFD_CLOEXEC)).or_throw();
  signalfd_siginfo info{};
  // A signalfd shows its reader what is pending for the reader's own thread.
  pthread_kill(pthread_self(), SIGUSR1);
  EXPECT_TRUE(signals.read_full(buffer(&info, sizeof info)).wait());
  EXPECT_EQ(info.ssi_signo, static_cast<std::uint32_t>(SIGUSR1));
  pthread_sigmask(SIG_UNBLOCK, &usr1, nullptr);
}

/// The timer of one direction fires for both, if it comes first or at the same time.
TEST_F(any_fd, deadlines_of_both_directions_share_a_timer_where_one_will_do) {
  const auto pending = [&] { return rt.stats().total.timers_live; };
  const auto event = [] { return fd::adopt(::eventfd(0, EFD_CLOEXEC)).or_throw(); };
  const auto at = clock::now() + 1h;
  for (const auto later : {0ns, 1ns}) {
    {
      auto both = event();
      EXPECT_FALSE(both.set_read_deadline(at));
      EXPECT_FALSE(both.set_write_deadline(at + later));
      EXPECT_EQ(pending(), 1U) << later.count();
    }
    auto both = event();
    EXPECT_FALSE(both.set_write_deadline(at));
    EXPECT_FALSE(both.set_read_deadline(at + later));
    EXPECT_EQ(pending(), 1U) << later.count();
    EXPECT_FALSE(both.set_read_deadline(at - 1ns));
    EXPECT_EQ(pending(), 2U);
  }
  auto both = event();
  EXPECT_FALSE(both.set_deadline(at));
  EXPECT_EQ(pending(), 1U);
}

TEST_F(any_fd, readable_and_writable_tell_when_to_make_a_system_call) {
  auto [from, to] = make_pipe().or_throw();
  EXPECT_FALSE(to.writable().wait());
  EXPECT_EQ(timeout(from.readable(), 5ms).wait(), net_errc::timed_out);
  auto reader = rt.spawn([&f = from]() -> task<ssize_t> {
    EXPECT_FALSE(co_await f.readable());
    char c = 0;
    co_return ::read(f.native_handle(), &c, 1);
  });
  EXPECT_TRUE(to.write_all("x").wait());
  EXPECT_EQ(reader.join(), 1);
  to.close();
  EXPECT_FALSE(from.readable().wait()) << "the end can be read too";
}

TEST_F(any_fd, deadlines_timeouts_and_cancellation_work_on_any) {
  auto [from, to] = make_pipe().or_throw();
  std::array<char, 16> part;
  const auto start = clock::now();
  from.set_read_deadline(start + 10ms);
  EXPECT_EQ(from.read_some(part).wait().error, net_errc::deadline_exceeded);
  EXPECT_GE(clock::now() - start, 10ms);
  from.set_read_deadline(no_deadline);
  EXPECT_EQ(timeout(from.read_some(part), 5ms).wait().error, net_errc::timed_out);
  auto reader =
      rt.spawn([&f = from, &part]() -> task<> { static_cast<void>(co_await f.read_some(part)); });
  EXPECT_TRUE(eventually([&f = from] { return has_reader(f); }));
  reader.cancel();
  EXPECT_THROW(reader.join(), cancelled);
  EXPECT_TRUE(to.write_all("x").wait());
  EXPECT_EQ(from.read_some(part).wait().bytes, 1u);
}

TEST_F(any_fd, files_and_directories_are_rejected_with_the_reason) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  const int number = ::fileno(file);
  const int flags = ::fcntl(number, F_GETFL);
  const auto refused = fd::adopt(number);
  EXPECT_EQ(refused.error, net_errc::not_pollable);
  EXPECT_EQ(refused.error, std::errc::operation_not_permitted) << "epoll's own answer";
  EXPECT_NE(refused.error.message().find("verge::blocking"), std::string::npos);
  EXPECT_TRUE(is_open(number)) << "the caller still owns it";
  EXPECT_EQ(::fcntl(number, F_GETFL), flags) << "and it is unchanged";
  std::fclose(file);

  const int folder = ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  EXPECT_EQ(fd::adopt(folder).error, net_errc::not_pollable);
  EXPECT_TRUE(is_open(folder));
  ::close(folder);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(fd::adopt(null).error, net_errc::not_pollable) << "a device that is always ready";
  EXPECT_TRUE(is_open(null));
  ::close(null);
}

TEST_F(any_fd, numbers_that_are_not_open_are_rejected) {
  EXPECT_EQ(fd::adopt(-1).error, std::errc::bad_file_descriptor);
  const int number = ::eventfd(0, EFD_CLOEXEC);
  ::close(number);
  EXPECT_EQ(fd::adopt(number).error, std::errc::bad_file_descriptor);
}

TEST_F(any_fd, one_number_can_be_adopted_once) {
  auto event = fd::adopt(::eventfd(0, EFD_CLOEXEC)).or_throw();
  EXPECT_EQ(fd::adopt(event.native_handle()).error, std::errc::file_exists);
  EXPECT_TRUE(is_open(event.native_handle()));
}

TEST_F(any_fd, the_number_is_closed_with_the_handle_or_before) {
  int number = -1;
  {
    auto event = fd::adopt(::eventfd(0, EFD_CLOEXEC)).or_throw();
    number = event.native_handle();
    EXPECT_TRUE(is_open(number));
    fd moved = std::move(event);
    EXPECT_FALSE(event);  // NOLINT(bugprone-use-after-move): promised to be empty
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
  auto event = fd::adopt(::eventfd(0, EFD_CLOEXEC)).or_throw();
  number = event.native_handle();
  EXPECT_FALSE(event.close());
  EXPECT_FALSE(is_open(number));
}

TEST(fd_in_simulated_time, is_rejected_and_remains_owned_by_the_caller) {
  simulation sim;
  const int number = ::eventfd(0, EFD_CLOEXEC);
  EXPECT_EQ(fd::adopt(number).error, net_errc::simulated_time);
  EXPECT_EQ(::close(number), 0);
}

TEST(a_pipe_in_simulated_time, is_refused_and_leaves_no_descriptor) {
  simulation sim;
  // The two that a pipe has.
  const auto lowest_free = [] {
    const std::pair numbers(::dup(2), ::dup(2));
    ::close(numbers.first);
    ::close(numbers.second);
    return numbers;
  };
  const auto before = lowest_free();
  EXPECT_EQ(make_pipe().error, net_errc::simulated_time);
  EXPECT_EQ(lowest_free(), before);
}

/// A descriptor has a reference to its poller, so that shows when it is destroyed.
TEST_F(any_fd, whose_deadlines_were_moved_and_fired_and_moved_is_destroyed_when_it_is_closed) {
  auto& scheduler = detail::scheduler_of(rt);
  const long before = scheduler.net().use_count();
  {
    auto [from, to] = make_pipe().or_throw();
    EXPECT_GT(scheduler.net().use_count(), before);
    for (int i = 0; i < 50; ++i) {
      from.set_read_deadline(clock::now() + 1h);
      from.set_read_deadline(clock::now() + 1h - i * 1s);  // earlier: the timer is armed anew
      from.set_deadline(clock::now() + 1ms);
      std::array<char, 1> byte;
      EXPECT_EQ(from.read_some(byte).wait().error, net_errc::deadline_exceeded);
      from.set_deadline(clock::now() + 50min);
      from.set_write_deadline(clock::now() + 40min);
    }
  }
  EXPECT_TRUE(eventually([&] { return scheduler.net().use_count() == before; }))
      << scheduler.net().use_count() << " references, and " << before << " before";
}

/// One that was cancelled, and has yet to take itself off the list.
TEST(a_waiter_that_was_claimed, is_not_woken_once_more_by_the_descriptor) {
  runtime rt({.processors = 1});
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_NONBLOCK | O_CLOEXEC), 0);
  const auto home = rt.run([] { return detail::net_home::here(); });
  const auto owner = detail::io_descriptor::make(ends[0], {.pipe = true}, home);
  detail::io_descriptor* const from = owner.get();
  ASSERT_FALSE(from->attach());
  counting_waiter claimed;
  counting_waiter other;
  detail::io_waiting first;
  detail::io_waiting second;
  constexpr auto reading = detail::io_direction::read;
  ASSERT_EQ(from->wait(reading, first, claimed), detail::io_descriptor::waits::waiting);
  ASSERT_EQ(from->wait(reading, second, other), detail::io_descriptor::waits::waiting);
  EXPECT_TRUE(claimed.claim(detail::waiter::by_cancellation));
  EXPECT_FALSE(from->close());
  EXPECT_EQ(other.woken, 1);
  EXPECT_EQ(claimed.woken, 0);
  EXPECT_TRUE(from->awaited(reading)) << "it takes itself off";
  from->stop_waiting(reading, first);
  EXPECT_FALSE(from->awaited(reading));
  ::close(ends[1]);
}

/// A program that has closed its standard input gets that number for the next descriptor.
TEST(the_number_zero, is_as_good_as_any_other) {
  runtime rt({.processors = 1});
  const as_default here(rt);
  auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  const int input = ::fcntl(0, F_DUPFD_CLOEXEC, 100);
  const auto free_zero = [] { ::close(0); };
  rt.run([&]() -> task<> {
    free_zero();
    {
      const auto listens = tcp_listener::listen(endpoint::loopback(0)).or_throw();
      EXPECT_EQ(listens.native_handle(), 0);
    }
    {
      auto [from, to] = make_pipe().or_throw();
      EXPECT_EQ(from.native_handle(), 0);
      auto reader = go([&f = from]() -> task<> {
        char byte = 0;
        EXPECT_TRUE(co_await f.read_some(buffer(&byte, 1)));
      });
      while (!has_reader(from)) co_await verge::yield();
      EXPECT_TRUE(co_await to.write_all("x"));
      co_await reader;
    }
    EXPECT_EQ(::open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
    auto near = (co_await tcp_conn::connect(listener.local().or_throw())).or_throw();
    free_zero();
    auto far = (co_await listener.accept()).or_throw();
    EXPECT_EQ(far.native_handle(), 0);
    EXPECT_TRUE(co_await near.write_all("x"));
    bytes64 got;
    EXPECT_TRUE(co_await far.read_some(got));
  });
  if (input >= 0) {
    ::dup2(input, 0);
    ::close(input);
  }
}

}  // namespace
}  // namespace verge::test
