// SPDX-License-Identifier: Apache-2.0

// The network poller: breaks, time-outs in nanoseconds with every method of waiting, sources and
// stale events.
#include <base/runtime_thread.h>
#include <net/poller.h>
#include <support/replaced.h>
#include <support/scale.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

/// The next read on this thread finds nothing.
thread_local bool nothing_to_read = false;

}  // namespace

// NOLINTBEGIN: a replacement has the name and the type of what it replaces.
extern "C" ssize_t read(int fd, void* bytes, size_t n) {
  if (std::exchange(nothing_to_read, false)) {
    errno = EAGAIN;
    return -1;
  }
  return VERGE_ORIGINAL(read)(fd, bytes, n);
}
// NOLINTEND

namespace verge::detail {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;
using wait_method = poller::wait_method;
using testing::HasSubstr;

constexpr std::int64_t ten_seconds = 10'000'000'000;
constexpr std::int64_t for_ever = -1;

struct pipe_ends {
  pipe_ends() {
    std::array<int, 2> fds{};
    if (::pipe2(fds.data(), O_CLOEXEC | O_NONBLOCK) != 0)
      throw std::system_error(errno, std::system_category());
    out.reset(fds[0]);
    in.reset(fds[1]);
  }
  void write_byte() const { ASSERT_EQ(::write(in.get(), "x", 1), 1); }

  file_descriptor out;
  file_descriptor in;
};

/// A source that makes its own runnable ready and records its events.
struct listener : poller::source, runnable {
  listener() : source{&hear} {}

  static void hear(source& s, std::uint32_t events, ready_list& ready) noexcept {
    auto& self = static_cast<listener&>(s);
    ++self.calls;
    self.events |= events;
    if (self.during_call) self.during_call();
    ready.push_back(self);
  }

  int calls{0};
  std::uint32_t events{0};
  std::function<void()> during_call;
};

class each_wait_method : public testing::TestWithParam<wait_method> {
 protected:
  void SetUp() override {
    if (GetParam() == wait_method::pwait2 && poller().method() != wait_method::pwait2) {
      GTEST_SKIP() << "this kernel has no epoll_pwait2";
    }
  }
};

std::string name_of(const testing::TestParamInfo<wait_method>& test) {
  constexpr std::array names{"automatic", "pwait2", "timerfd", "milliseconds"};
  return names.at(static_cast<std::size_t>(test.param));
}

INSTANTIATE_TEST_SUITE_P(poller, each_wait_method,
                         testing::Values(wait_method::automatic, wait_method::pwait2,
                                         wait_method::timerfd, wait_method::milliseconds),
                         &name_of);

// ---- Breaks ------------------------------------------------------------------------------------

TEST_P(each_wait_method, L36_a_break_from_another_thread_ends_a_10_s_poll_at_once) {
  poller p(GetParam());
  std::thread breaker([&] {
    while (p.statistics().blocking_polls == 0) std::this_thread::yield();
    p.break_poll();
  });
  EXPECT_TRUE(p.poll(ten_seconds).empty());
  breaker.join();
  EXPECT_EQ(p.statistics().time_outs, 0u);
}

TEST_P(each_wait_method, L36_a_break_before_the_poll_ends_it_at_once) {
  poller p(GetParam());
  p.break_poll();
  EXPECT_TRUE(p.poll(ten_seconds).empty());
  EXPECT_EQ(p.statistics().time_outs, 0u);
}

TEST_P(each_wait_method, a_break_ends_a_poll_without_end) {
  poller p(GetParam());
  p.poll(1);  // leaves a timer behind where there is one
  std::thread breaker([&] {
    while (p.statistics().blocking_polls == 1) std::this_thread::yield();
    p.break_poll();
  });
  EXPECT_TRUE(p.poll(for_ever).empty());
  breaker.join();
  EXPECT_EQ(p.statistics().time_outs, 1u) << "the old timer ended the second poll";
}

/// The event was seen, and what was written is no longer there.
TEST(poller, takes_a_break_of_which_nothing_is_left_to_read) {
  poller p;
  p.break_poll();
  nothing_to_read = true;
  EXPECT_TRUE(p.poll(for_ever).empty());
  EXPECT_FALSE(nothing_to_read);
  EXPECT_TRUE(p.poll(for_ever).empty()) << "now it is read";
}

TEST(poller, many_breaks_are_one_write_until_a_poll_has_taken_it) {
  poller p;
  for (int i = 0; i < 1000; ++i) p.break_poll();
  EXPECT_EQ(p.statistics().breaks_written, 1u);
  p.poll(ten_seconds);
  EXPECT_EQ(p.statistics().time_outs, 0u);
  p.poll(1);
  EXPECT_EQ(p.statistics().time_outs, 1u) << "one break ended two polls";

  p.break_poll();
  EXPECT_EQ(p.statistics().breaks_written, 2u);
}

/// However full the poll was that the break came with, and whatever else it has found: the next
/// break is written.
TEST(poller, a_break_that_comes_with_many_events_is_taken_and_the_next_one_written) {
  poller p;
  std::vector<pipe_ends> pipes(200);
  std::vector<listener> listeners(pipes.size());
  for (std::size_t i = 0; i < pipes.size(); ++i) {
    ASSERT_FALSE(p.open(pipes[i].out.get(), listeners[i]));
  }
  for (std::uint64_t written = 1; written <= 9; written += 2) {
    for (const auto& one : pipes) one.write_byte();
    p.break_poll();
    EXPECT_EQ(p.statistics().breaks_written, written);
    // Two polls take all events, the third may be the one that takes the break.
    for (int i = 0; i < 3; ++i) p.poll(1);
    p.break_poll();
    EXPECT_EQ(p.statistics().breaks_written, written + 1);
    const auto timed_out = p.statistics().time_outs;
    p.poll(ten_seconds);
    EXPECT_EQ(p.statistics().time_outs, timed_out) << "the break was lost";
  }
}

TEST(poller, a_poll_that_does_not_wait_leaves_the_break_for_one_that_does) {
  poller p;
  p.break_poll();
  p.poll(0);
  p.poll(0);
  p.poll(ten_seconds);
  EXPECT_EQ(p.statistics().time_outs, 0u);
}

// Each round's poll waits without limit, so a lost break hangs the test.
TEST(poller, no_break_is_lost_when_breaks_and_polls_race) {
  poller p;
  const int rounds = test::scale(100'000, 5'000);
  std::atomic<int> asked{0};
  std::atomic<int> seen{0};
  std::vector<std::thread> breakers;
  for (int t = 0; t < 2; ++t) {
    breakers.emplace_back([&] {
      while (seen.load() < rounds) {
        asked.fetch_add(1, std::memory_order_relaxed);  // published by the break alone
        p.break_poll();
        const int mine = asked.load(std::memory_order_relaxed);
        while (seen.load() < mine && seen.load() < rounds) std::this_thread::yield();
      }
    });
  }
  while (seen.load() < rounds) {
    p.poll(for_ever);
    seen.store(asked.load(std::memory_order_relaxed));
  }
  for (auto& t : breakers) t.join();
  EXPECT_GE(seen.load(), rounds);
}

// ---- Time --------------------------------------------------------------------------------------

TEST_P(each_wait_method, a_time_out_is_never_early) {
  set_timer_slack(1);
  poller p(GetParam());
  for (const std::int64_t ns :
       {1LL, 999LL, 50'000LL, 999'999LL, 1'000'000LL, 1'000'001LL, 3'141'592LL}) {
    for (int i = 0; i < 20; ++i) {
      const auto before = p.statistics().time_outs;
      const auto start = clock::now();
      p.poll(ns);
      const auto took = clock::now() - start;
      if (p.statistics().time_outs == before) continue;  // a signal; only time-outs are guaranteed
      ASSERT_GE(took.count(), ns);
    }
  }
}

TEST_P(each_wait_method, polling_without_waiting_returns_and_counts_no_wake_up) {
  poller p(GetParam());
  EXPECT_TRUE(p.poll(0).empty());
  EXPECT_EQ(p.statistics().blocking_polls, 0u);
  EXPECT_EQ(p.statistics().wake_ups, 0u);
}

TEST_P(each_wait_method, the_longest_time_there_is_can_be_waited_for) {
  poller p(GetParam());
  p.break_poll();
  p.poll(INT64_MAX);
  EXPECT_EQ(p.statistics().time_outs, 0u);
  EXPECT_EQ(p.statistics().wake_ups, 1u);
}

TEST_P(each_wait_method, a_signal_ends_a_poll_early_and_is_no_time_out) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);

  poller p(GetParam());
  std::atomic<bool> done{false};
  std::thread waiter([&] {
    while (!done.load()) p.poll(for_ever);
  });
  while (p.statistics().wake_ups < 3) {  // only the signals can end a poll here
    pthread_kill(waiter.native_handle(), SIGUSR1);
    std::this_thread::yield();
  }
  EXPECT_EQ(p.statistics().time_outs, 0u) << "a signal was taken for a time-out";
  done.store(true);
  p.break_poll();
  waiter.join();
  sigaction(SIGUSR1, &before, nullptr);
}

TEST(poller, timer_slack_is_set_for_the_calling_thread) {
  std::thread([] {
    set_timer_slack(1);
    EXPECT_EQ(prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL), 1);
  }).join();
}

// ---- The method of waiting ---------------------------------------------------------------------

/// Runs f in a thread in which the given system calls fail with `code`, as with an old kernel
/// (ENOSYS) or in a sandbox (EPERM). Returns false if filters are not available.
bool without_system_calls(std::vector<long> numbers, int code, const std::function<void()>& f) {
  bool filtered = false;
  std::thread([&] {
    std::vector<sock_filter> program{
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
    for (const long n : numbers) {
      program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(n), 0, 1));
      program.push_back(
          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(code)));
    }
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
    filtered = prctl(PR_SET_NO_NEW_PRIVS, 1UL, 0UL, 0UL, 0UL) == 0 &&
               prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
    if (filtered) f();
  }).join();
  return filtered;
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::system_error& e) {
    return e.what();
  }
  return "no error";
}

TEST(poller, a_kernel_without_pwait2_is_waited_on_with_a_timerfd) {
  for (const int code : {ENOSYS, EPERM}) {
    if (!without_system_calls({SYS_epoll_pwait2}, code, [] {
          poller p;
          EXPECT_EQ(p.method(), wait_method::timerfd);
          p.poll(1000);
          EXPECT_EQ(p.statistics().wake_ups, 1u);
          EXPECT_THAT(error_of([] { poller forced(wait_method::pwait2); }),
                      HasSubstr("choose wait_method::automatic"));
        })) {
      GTEST_SKIP() << "system calls cannot be filtered here";
    }
  }
}

TEST(poller, a_kernel_without_timerfd_either_is_waited_on_in_milliseconds) {
  if (!without_system_calls({SYS_epoll_pwait2, SYS_timerfd_create}, ENOSYS, [] {
        poller p;
        EXPECT_EQ(p.method(), wait_method::milliseconds);
        p.poll(1000);
        EXPECT_EQ(p.statistics().wake_ups, 1u);
        EXPECT_THAT(error_of([] { poller forced(wait_method::timerfd); }), HasSubstr("timerfd"));
      })) {
    GTEST_SKIP() << "system calls cannot be filtered here";
  }
}

TEST(poller, automatic_takes_pwait2_where_the_kernel_has_it) {
  poller p;
  const bool forced_works = error_of([] { poller forced(wait_method::pwait2); }) == "no error";
  EXPECT_EQ(p.method() == wait_method::pwait2, forced_works);
}

TEST(poller, too_many_open_files_is_an_error_that_says_what_to_do) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string text = error_of([] { poller p; });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(text, HasSubstr("ulimit -n"));
}

// ---- Sources -----------------------------------------------------------------------------------

TEST_P(each_wait_method, a_pipe_that_becomes_readable_makes_its_reader_ready) {
  poller p(GetParam());
  pipe_ends pipe;
  listener reader;
  ASSERT_FALSE(p.open(pipe.out.get(), reader));
  EXPECT_TRUE(p.has_sources());
  EXPECT_TRUE(p.poll(0).empty());

  std::thread writer([&] { pipe.write_byte(); });
  ready_list ready = p.poll(for_ever);
  writer.join();
  EXPECT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready.pop_front(), &reader);
  EXPECT_NE(reader.events & EPOLLIN, 0u);
}

TEST(poller, both_directions_are_heard_of_once_per_edge) {
  poller p;
  pipe_ends pipe;
  listener reader;
  listener writer;
  ASSERT_FALSE(p.open(pipe.out.get(), reader));
  ASSERT_FALSE(p.open(pipe.in.get(), writer));
  EXPECT_EQ(p.poll(0).size(), 1u);
  EXPECT_EQ(writer.events, static_cast<std::uint32_t>(EPOLLOUT));
  EXPECT_TRUE(p.poll(0).empty()) << "still writable: that is not a new edge";

  pipe.write_byte();
  p.poll(0);
  EXPECT_EQ(reader.calls, 1);
  p.poll(0);
  EXPECT_EQ(reader.calls, 1);

  p.close(pipe.in.get());
  pipe.in.reset();
  p.poll(0);
  EXPECT_NE(reader.events & EPOLLHUP, 0u);
}

TEST(poller, what_became_ready_first_comes_first) {
  poller p;
  std::array<pipe_ends, 3> pipes;
  std::array<listener, 3> readers;
  for (std::size_t i = 0; i < 3; ++i) ASSERT_FALSE(p.open(pipes[i].out.get(), readers[i]));
  for (const std::size_t i : {2u, 0u, 1u}) pipes[i].write_byte();
  ready_list ready = p.poll(0);
  for (const std::size_t i : {2u, 0u, 1u}) EXPECT_EQ(ready.pop_front(), &readers[i]);
  EXPECT_TRUE(ready.empty());
}

TEST(poller, more_events_than_one_poll_takes_are_all_delivered) {
  poller p;
  std::vector<pipe_ends> pipes(300);
  std::vector<listener> readers(300);
  for (std::size_t i = 0; i < 300; ++i) {
    ASSERT_FALSE(p.open(pipes[i].out.get(), readers[i]));
    pipes[i].write_byte();
  }
  std::size_t heard = 0;
  for (int polls = 0; polls < 10; ++polls) heard += p.poll(0).size();
  EXPECT_EQ(heard, 300u);
}

TEST(poller, a_regular_file_is_refused) {
  poller p;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  ASSERT_NE(file, nullptr);
  listener l;
  EXPECT_EQ(p.open(fileno(file.get()), l), std::errc::operation_not_permitted);
  EXPECT_FALSE(p.has_sources());
  EXPECT_EQ(p.close(fileno(file.get())), std::errc::no_such_file_or_directory);
}

TEST(poller, invalid_or_already_open_or_closed_descriptors_are_rejected) {
  poller p;
  pipe_ends pipe;
  listener first;
  listener second;
  EXPECT_EQ(p.open(-1, first), std::errc::bad_file_descriptor);
  EXPECT_EQ(p.open(1 << 20, first), std::errc::bad_file_descriptor);
  EXPECT_EQ(p.close(-1), std::errc::no_such_file_or_directory);
  EXPECT_EQ(p.close(pipe.out.get()), std::errc::no_such_file_or_directory);

  EXPECT_FALSE(p.open(pipe.out.get(), first));
  EXPECT_EQ(p.open(pipe.out.get(), second), std::errc::file_exists);
  pipe.write_byte();
  p.poll(0);
  EXPECT_EQ(first.calls, 1);
  EXPECT_EQ(second.calls, 0);
  EXPECT_FALSE(p.close(pipe.out.get()));
  EXPECT_FALSE(p.has_sources());

  // It is still open, and no longer the first one's.
  EXPECT_FALSE(p.open(pipe.out.get(), second));
  p.poll(0);
  EXPECT_EQ(first.calls, 1);
  EXPECT_EQ(second.calls, 1);
  EXPECT_FALSE(p.close(pipe.out.get()));
}

// The first source's call delays the poll, which holds the second one's event, while that
// descriptor is closed and its number reopened by another source.
TEST(poller, an_event_from_before_a_close_reaches_neither_the_old_source_nor_the_next) {
  poller p;
  pipe_ends first;
  pipe_ends second;
  pipe_ends third;
  listener holds_up;
  listener closed;
  listener next;
  std::latch in_call(1);
  std::latch go_on(1);
  holds_up.during_call = [&] {
    in_call.count_down();
    go_on.wait();
  };
  ASSERT_FALSE(p.open(first.out.get(), holds_up));
  ASSERT_FALSE(p.open(second.out.get(), closed));
  first.write_byte();
  second.write_byte();

  std::thread polling([&] { EXPECT_EQ(p.poll(for_ever).size(), 1u); });
  in_call.wait();
  EXPECT_FALSE(p.close(second.out.get()));
  ASSERT_EQ(::dup2(third.out.get(), second.out.get()), second.out.get());
  EXPECT_FALSE(p.open(second.out.get(), next));
  go_on.count_down();
  polling.join();
  EXPECT_EQ(closed.calls, 0);
  EXPECT_EQ(next.calls, 0);

  third.write_byte();
  EXPECT_EQ(p.poll(0).pop_front(), &next);
}

// Sources are destroyed the moment close() has returned while another thread polls; the address
// sanitizer sees a call that comes too late.
TEST(poller, a_source_may_be_destroyed_as_soon_as_close_has_returned) {
  poller p;
  std::atomic<bool> done{false};
  std::thread polling([&] {
    while (!done.load()) p.poll(for_ever);
  });
  const int rounds = test::scale(50'000, 5'000);
  for (int i = 0; i < rounds; ++i) {
    pipe_ends pipe;
    auto l = std::make_unique<listener>();
    ASSERT_FALSE(p.open(pipe.out.get(), *l));
    pipe.write_byte();
    ASSERT_FALSE(p.close(pipe.out.get()));
    l->on_events = nullptr;
    l.reset();
  }
  done.store(true);
  p.break_poll();
  polling.join();
  EXPECT_FALSE(p.has_sources());
}

TEST(ready_list, keeps_order_through_append_and_move) {
  std::array<runnable, 4> r;
  ready_list a;
  ready_list b;
  EXPECT_EQ(a.pop_front(), nullptr);
  a.append(std::move(b));
  EXPECT_TRUE(a.empty());
  a.push_back(r[0]);
  b.push_back(r[1]);  // NOLINT(bugprone-use-after-move): promised to be empty
  b.push_back(r[2]);
  a.append(std::move(b));
  a.push_back(r[3]);
  ready_list all = std::move(a);
  EXPECT_EQ(all.size(), 4u);
  for (auto& x : r) EXPECT_EQ(all.pop_front(), &x);
  EXPECT_TRUE(all.empty());
}

}  // namespace
}  // namespace verge::detail
