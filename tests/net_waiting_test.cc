// SPDX-License-Identifier: Apache-2.0

// Connections: errors, concurrent waits, and limits.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <verge/fd.h>
#include <verge/runtime.h>
#include <verge/timeout.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <support/as_default.h>
#include <support/net_fixture.h>
#include <support/patience.h>
#include <support/replaced.h>
#include <support/scale.h>

namespace {

/// While it is there, accept4() finds no descriptor left, and is called at these times.
std::atomic<std::vector<verge::clock::time_point>*> refused_accepts{nullptr};
/// If there is an error, accept4() fails with it so many times, and then gives a new socket: no
/// connection is there, and so no event comes.
std::atomic<int> failing_accepts{0};
std::atomic<int> failing_with{0};
/// Of a socket that is connected getpeername() says this once.
std::atomic<int> no_peer_yet{0};
/// The system refuses to watch a descriptor, or to tell its address, with this error, once.
std::atomic<int> not_watched{0};
std::atomic<int> no_name{0};
/// Nor does it make a descriptor non-blocking, with this error, once.
std::atomic<int> not_changed{0};
/// Connecting takes longer than the call: as it does to another machine.
std::atomic<bool> connects_later{false};

}  // namespace

// NOLINTBEGIN: replacements have the names and types of what they replace.
extern "C" {

int accept4(int fd, sockaddr* from, socklen_t* size, int flags) {
  if (auto* const times = refused_accepts.load()) {
    times->push_back(verge::clock::now());
    errno = EMFILE;
    return -1;
  }
  if (failing_with != 0) {
    if (--failing_accepts < 0) return ::socket(AF_INET, SOCK_STREAM | flags, 0);
    errno = failing_with;
    return -1;
  }
  return VERGE_ORIGINAL(accept4)(fd, from, size, flags);
}

int getpeername(int fd, sockaddr* at, socklen_t* size) noexcept {
  if (const int error = no_peer_yet.exchange(0); error != 0) {
    errno = error;
    return -1;
  }
  return VERGE_ORIGINAL(getpeername)(fd, at, size);
}

int epoll_ctl(int epoll, int what, int fd, epoll_event* event) noexcept {
  if (what == EPOLL_CTL_ADD) {
    if (const int error = not_watched.exchange(0); error != 0) {
      errno = error;
      return -1;
    }
  }
  return VERGE_ORIGINAL(epoll_ctl)(epoll, what, fd, event);
}

int getsockname(int fd, sockaddr* at, socklen_t* size) noexcept {
  if (const int error = no_name.exchange(0); error != 0) {
    errno = error;
    return -1;
  }
  return VERGE_ORIGINAL(getsockname)(fd, at, size);
}

int fcntl(int fd, int command, ...) {
  va_list more;
  va_start(more, command);
  const long argument = va_arg(more, long);
  va_end(more);
  if (command == F_SETFL) {
    if (const int error = not_changed.exchange(0); error != 0) {
      errno = error;
      return -1;
    }
  }
  return VERGE_ORIGINAL(fcntl)(fd, command, argument);
}

int connect(int fd, const sockaddr* to, socklen_t size) {
  const int result = VERGE_ORIGINAL(connect)(fd, to, size);
  if (result != 0 || !connects_later) return result;
  errno = EINPROGRESS;
  return -1;
}

}  // extern "C"
// NOLINTEND

namespace verge::test {
namespace {

using namespace std::chrono_literals;

// ---- Errors

TEST_F(net, refusals_are_error_codes) {
  rt.run([]() -> task<> {
    auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
    const endpoint at = listener.local().or_throw();
    EXPECT_EQ(tcp_listener::listen(at).error, std::errc::address_in_use);
    listener.close();
    EXPECT_EQ((co_await tcp_conn::connect(at)).error, std::errc::connection_refused);
    const auto far_away = endpoint::parse("192.0.2.1:80").or_throw();
    EXPECT_EQ(tcp_listener::listen(far_away).error, std::errc::address_not_available);
    EXPECT_EQ((co_await tcp_conn::connect(endpoint())).error, net_errc::bad_address);
    const auto path = endpoint::path("/tmp/x").or_throw();
    EXPECT_EQ((co_await tcp_conn::connect(path)).error, net_errc::bad_address);
    EXPECT_EQ(tcp_listener::listen(path).error, net_errc::bad_address);
    EXPECT_EQ((co_await unix_conn::connect(at)).error, net_errc::bad_address);
  });
}

TEST_F(net, a_listener_that_is_closed_leaves_its_address_free) {
  as_default here(rt);
  auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  const endpoint at = listener.local().or_throw();
  auto acceptor =
      rt.spawn([&]() -> task<std::error_code> { co_return (co_await listener.accept()).error; });
  EXPECT_TRUE(eventually([&] { return has_reader(listener); }));
  listener.close();
  EXPECT_EQ(acceptor.join(), net_errc::closed);
  // The acceptor has left its system call by now; another process may have taken the port.
  EXPECT_TRUE(eventually([&] { return !tcp_listener::listen(at).error; }));
}

TEST_F(net, a_reset_connection_reports_it) {
  auto [near, far] = connect();
  bytes64 bytes;
  auto reader =
      rt.spawn([&f = far, &bytes]() -> task<io_result> { co_return co_await f.read_some(bytes); });
  near.set_linger(0s);
  near.close();
  EXPECT_EQ(reader.join().error, std::errc::connection_reset);
}

TEST_F(net, writing_to_a_peer_that_hung_up_is_an_error_and_no_signal) {
  ASSERT_EQ(std::signal(SIGPIPE, SIG_DFL), SIG_DFL) << "or the test would show nothing";
  auto [near, far] = connect();
  far.close();
  std::error_code error;
  for (int i = 0; i < 1000 && !error; ++i) error = near.write_all("hello there?").wait().error;
  EXPECT_TRUE(error == std::errc::broken_pipe || error == std::errc::connection_reset)
      << error.message();
}

/// During its lifetime, limits the number of descriptors so that `free` are left.
class descriptor_limit {
 public:
  explicit descriptor_limit(rlim_t room) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int probe = ::dup(STDERR_FILENO);  // the lowest free number
    ::close(probe);
    rlimit now = before_;
    now.rlim_cur = static_cast<rlim_t>(probe) + room;
    setrlimit(RLIMIT_NOFILE, &now);
  }
  ~descriptor_limit() { setrlimit(RLIMIT_NOFILE, &before_); }
  descriptor_limit(const descriptor_limit&) = delete;
  descriptor_limit& operator=(const descriptor_limit&) = delete;

 private:
  rlimit before_{};
};

TEST_F(net, accept_waits_while_descriptors_are_short_and_loses_nothing) {
  as_default here(rt);
  auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  const endpoint at = listener.local().or_throw();
  constexpr int connections = 8;
  std::vector<tcp_conn> near;
  for (int i = 0; i < connections; ++i) {
    near.push_back(tcp_conn::connect(at).wait().or_throw());
    EXPECT_TRUE(near.back().write_all("hello").wait());
  }
  std::atomic<int> accepted{0};
  std::optional<descriptor_limit> limit(std::in_place, 3u);
  auto server = rt.spawn([&]() -> task<std::error_code> {
    std::vector<tcp_conn> far;
    for (int i = 0; i < connections; ++i) {
      auto [conn, error] = co_await listener.accept();
      if (error) co_return error;
      bytes64 bytes;
      const io_result got = co_await conn.read_some(bytes);
      EXPECT_EQ(text(bytes, got.bytes), "hello");
      far.push_back(std::move(conn));
      ++accepted;
    }
    co_return {};
  });
  EXPECT_TRUE(eventually([&] { return accepted == 3; }));
  const auto tried = rt.stats().total.timers_fired;
  EXPECT_TRUE(eventually([&] { return rt.stats().total.timers_fired >= tried + 2; }))
      << "it does not try again";
  EXPECT_EQ(accepted, 3) << "more than there were descriptors for";
  EXPECT_FALSE(server.done()) << "accept gave up";
  limit.reset();
  EXPECT_FALSE(server.join());
  EXPECT_EQ(accepted, connections);
}

TEST_F(net, an_accept_without_descriptors_waits_twice_as_long_each_time) {
  as_default here(rt);
  auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  constexpr std::size_t enough = 6;
  std::vector<clock::time_point> times;
  times.reserve(1000);
  refused_accepts = &times;
  EXPECT_EQ(timeout(listener.accept(), 130ms).wait().error, net_errc::timed_out);
  refused_accepts = nullptr;
  // At 0, 2, 6, 14, 30, 62 and 126 ms, or later.
  EXPECT_LE(times.size(), enough + 1);
  for (std::size_t i = 1; i < times.size(); ++i) {
    EXPECT_GE(times[i] - times[i - 1], 1ms * (1 << i)) << i;
  }
}

/// What an accept gives that fails so often, and how many timers it needs.
struct accepting {
  std::error_code error;
  std::uint64_t timers;
};
accepting accept_that_fails(runtime& rt, int error, int times) {
  as_default here(rt);
  auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  const std::uint64_t before = rt.stats().total.timers_fired;
  failing_accepts = times;
  failing_with = error;
  auto accepted = listener.accept().wait();
  failing_with = 0;
  EXPECT_LE(failing_accepts, 0) << std::strerror(error);
  return {accepted.error, rt.stats().total.timers_fired - before};
}

TEST_F(net, an_accept_tries_again_later_whatever_there_is_too_little_of) {
  for (const int code : {EMFILE, ENFILE, ENOBUFS, ENOMEM}) {
    const auto [error, timers] = accept_that_fails(rt, code, 2);
    EXPECT_FALSE(error) << std::strerror(code);
    EXPECT_EQ(timers, 2U) << std::strerror(code);
  }
  for (const int code : {EINVAL, EPERM, EFAULT}) {
    const auto [error, timers] = accept_that_fails(rt, code, 1);
    EXPECT_EQ(error, std::error_code(code, std::system_category()));
    EXPECT_EQ(timers, 0U);
  }
}

TEST_F(net, an_accept_goes_on_with_the_next_connection_and_pauses_after_sixteen_that_failed) {
  for (const int code : {ECONNABORTED, EINTR, ENETDOWN, EPROTO, ENOPROTOOPT, EHOSTDOWN, ENONET,
                         EHOSTUNREACH, EOPNOTSUPP, ENETUNREACH}) {
    EXPECT_EQ(accept_that_fails(rt, code, 1).timers, 0U) << std::strerror(code);
  }
  EXPECT_EQ(accept_that_fails(rt, ECONNABORTED, 15).timers, 0U);
  const auto [error, timers] = accept_that_fails(rt, ECONNABORTED, 16);
  EXPECT_FALSE(error);
  EXPECT_EQ(timers, 1U);
}

TEST_F(net, an_accept_that_waits_for_descriptors_can_be_ended_in_every_way) {
  as_default here(rt);
  auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  auto near = tcp_conn::connect(listener.local().or_throw()).wait().or_throw();
  auto accept = [&]() -> task<std::error_code> { co_return (co_await listener.accept()).error; };
  descriptor_limit limit(0);
  listener.set_read_deadline(clock::now() + 10ms);
  EXPECT_EQ(rt.run(accept), net_errc::deadline_exceeded);
  listener.set_read_deadline(no_deadline);
  EXPECT_EQ(timeout(listener.accept(), 10ms).wait().error, net_errc::timed_out);
  auto cancelled_one = rt.spawn(accept);
  EXPECT_TRUE(eventually([&] { return has_reader(listener); }));
  cancelled_one.cancel();
  EXPECT_THROW(cancelled_one.join(), cancelled);
  auto closed_one = rt.spawn(accept);
  EXPECT_TRUE(eventually([&] { return has_reader(listener); }));
  listener.close();
  EXPECT_EQ(closed_one.join(), net_errc::closed);
}

TEST_F(net, without_descriptors_nothing_can_be_opened_and_that_is_an_error_code) {
  as_default here(rt);
  descriptor_limit limit(0);
  EXPECT_EQ(tcp_listener::listen(endpoint::loopback(0)).error, std::errc::too_many_files_open);
  EXPECT_EQ(tcp_conn::connect(endpoint::loopback(1)).wait().error, std::errc::too_many_files_open);
  EXPECT_EQ(udp_socket::bind(endpoint::loopback(0)).error, std::errc::too_many_files_open);
  EXPECT_EQ(unix_conn::pair().error, std::errc::too_many_files_open);
}

// ---- Concurrent waits

TEST_F(net, two_readers_of_one_stream_are_a_mistake) {
  as_default here(rt);
  auto [near, far] = connect();
  bytes64 bytes;
  std::string said;
  auto first =
      rt.spawn([&n = near, &bytes]() -> task<> { static_cast<void>(co_await n.read_some(bytes)); });
  // The second one throws. Until both have begun, this one waits for short times.
  while (said.empty()) {
    try {
      bytes64 others;
      if (first.done()) first.join();
      EXPECT_EQ(timeout(near.read_some(others), 1ms).wait().error, net_errc::timed_out);
    } catch (const std::logic_error& e) {
      said = e.what();
    }
  }
  EXPECT_NE(said.find("two concurrent reads"), std::string::npos) << said;
  near.close();
}

TEST_F(net, two_writers_of_one_stream_are_a_mistake) {
  auto [near, far] = connect();
  auto first = rt.spawn([&n = near]() -> task<std::error_code> {
    co_return (co_await n.write_all(std::string(16 << 20, 'x'))).error;
  });
  char one = 0;
  EXPECT_TRUE(far.read_full(buffer(&one, 1)).wait()) << "by then the first one has begun";
  EXPECT_THROW(static_cast<void>(near.write_some("y").wait()), std::logic_error);
  near.close();
  EXPECT_EQ(first.join(), net_errc::closed);
}

TEST_F(net, several_may_accept_at_once) {
  as_default here(rt);
  auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  constexpr int acceptors = 5;
  std::vector<join_handle<int>> all;
  for (int i = 0; i < acceptors; ++i) {
    all.push_back(rt.spawn([&]() -> task<int> {
      int n = 0;
      while (auto conn = co_await listener.accept()) ++n;
      co_return n;
    }));
  }
  const int connections = scale(200, 50);
  for (int i = 0; i < connections; ++i) {
    auto conn = tcp_conn::connect(listener.local().or_throw()).wait().or_throw();
    bytes64 bytes;
    EXPECT_TRUE(conn.read_some(bytes).wait().error) << "until it was accepted and closed";
  }
  listener.close();
  int sum = 0;
  for (auto& a : all) sum += a.join();
  EXPECT_EQ(sum, connections);
}

TEST_F(net, a_cancelled_task_stops_reading_and_nothing_is_lost) {
  auto [near, far] = connect();
  auto reader = rt.spawn([&f = far]() -> task<> {
    bytes64 bytes;
    for (;;) (co_await f.read_some(bytes)).or_throw();
  });
  EXPECT_TRUE(eventually([&f = far] { return has_reader(f); }));
  reader.cancel();
  EXPECT_THROW(reader.join(), cancelled);
  near.write_all("still here").wait().or_throw();
  bytes64 bytes;
  EXPECT_EQ(text(bytes, far.read_some(bytes).wait().or_throw()), "still here");
}

TEST_F(net, timeout_withdraws_an_operation_and_the_next_one_continues) {
  auto [near, far] = connect();
  rt.run([&n = near, &f = far]() -> task<> {
    bytes64 bytes;
    const auto start = clock::now();
    EXPECT_EQ((co_await timeout(f.read_some(bytes), 20ms)).error, net_errc::timed_out);
    EXPECT_GE(clock::now() - start, 20ms);
    co_await n.write_all("later");
    EXPECT_EQ((co_await timeout(f.read_some(bytes), 1min)).or_throw(), 5u);
  });
}

// Every byte wakes the reader, which waits again: the limit applies to all of it together.
TEST_F(net, timeout_limits_a_read_that_is_woken_again_and_again) {
  auto ends = connect();
  auto& near = ends.near;
  auto& far = ends.far;
  std::atomic<bool> over{false};
  auto dripping = rt.spawn([&]() -> task<> {
    while (!over.load()) {
      if (!co_await near.write_all(".")) co_return;
      co_await verge::sleep(1ms);
    }
  });
  std::string big(1 << 20, '\0');
  const auto start = clock::now();
  EXPECT_EQ(timeout(far.read_full(big), 50ms).wait().error, net_errc::timed_out);
  EXPECT_GE(clock::now() - start, 50ms);
  const io_result in_task =
      rt.run([&]() -> task<io_result> { co_return co_await timeout(far.read_full(big), 50ms); });
  EXPECT_EQ(in_task.error, net_errc::timed_out);
  over.store(true);
  dripping.join();
}

TEST_F(net, connecting_can_be_limited_and_cancelled) {
  as_default here(rt);
  unresponsive server;
  const auto start = clock::now();
  EXPECT_EQ(tcp_conn::connect(server.at(), 20ms).wait().error, net_errc::deadline_exceeded);
  EXPECT_GE(clock::now() - start, 20ms);
  EXPECT_EQ(tcp_conn::connect(server.at(), 0s).wait().error, std::errc::timed_out);
  EXPECT_EQ(timeout(tcp_conn::connect(server.at()), 20ms).wait().error, net_errc::timed_out);
  std::atomic<bool> begun{false};
  auto pending = rt.spawn([&]() -> task<> {
    begun = true;
    static_cast<void>(co_await tcp_conn::connect(server.at()));
  });
  EXPECT_TRUE(eventually([&] { return begun.load(); }));
  pending.cancel();
  EXPECT_THROW(pending.join(), cancelled);
}

TEST_F(net, a_limit_on_connecting_does_not_limit_the_connection) {
  as_default here(rt);
  auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  auto near = tcp_conn::connect(listener.local().or_throw(), 10s).wait().or_throw();
  auto far = listener.accept().wait().or_throw();
  EXPECT_TRUE(near.write_all("x").wait());
}

TEST_F(net, connecting_goes_on_while_the_socket_has_no_peer_and_ends_with_another_error) {
  as_default here(rt);
  auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  const endpoint at = listener.local().or_throw();
  connects_later = true;
  no_peer_yet = ENOBUFS;
  EXPECT_EQ(tcp_conn::connect(at, 60s).wait().error, std::errc::no_buffer_space);
  // No other event comes: it had come too early.
  no_peer_yet = ENOTCONN;
  EXPECT_EQ(tcp_conn::connect(at, 20ms).wait().error, net_errc::deadline_exceeded);
  EXPECT_EQ(no_peer_yet, 0);
  connects_later = false;
}

TEST_F(net, a_descriptor_that_cannot_be_made_non_blocking_is_not_adopted) {
  as_default here(rt);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  not_changed = EPERM;
  EXPECT_EQ(fd::adopt(ends[0]).error, std::errc::operation_not_permitted);
  EXPECT_EQ(not_changed, 0);
  EXPECT_EQ(::fcntl(ends[0], F_GETFL, 0) & O_NONBLOCK, 0) << "it is the caller's, as it was";
  EXPECT_FALSE(fd::adopt(ends[0]).error);
  ::close(ends[1]);
}

TEST_F(net, what_the_system_does_not_watch_or_name_is_an_error_code) {
  as_default here(rt);
  auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  const endpoint at = listener.local().or_throw();
  for (const bool later : {false, true}) {
    connects_later = later;
    not_watched = ENOSPC;
    EXPECT_EQ(tcp_conn::connect(at).wait().error, std::errc::no_space_on_device);
    not_watched = ENOSPC;
    EXPECT_EQ(tcp_conn::connect(at, 60s).wait().error, std::errc::no_space_on_device);
  }
  connects_later = false;
  not_watched = ENOSPC;
  EXPECT_EQ(tcp_listener::listen(endpoint::loopback(0)).error, std::errc::no_space_on_device);
  not_watched = ENOSPC;
  EXPECT_EQ(udp_socket::bind(endpoint::loopback(0)).error, std::errc::no_space_on_device);
  no_name = ENOBUFS;
  EXPECT_EQ(listener.local().error, std::errc::no_buffer_space);

  const int number = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::listen(number, 4), 0);
  no_name = ENOBUFS;
  EXPECT_EQ(tcp_listener::adopt(number).error, std::errc::no_buffer_space);
  not_watched = ENOSPC;
  EXPECT_EQ(tcp_listener::adopt(number).error, std::errc::no_space_on_device);
  EXPECT_EQ(::close(number), 0) << "the caller has kept it";
}

TEST_F(net, a_limit_on_connecting_ends_when_the_connection_is_there) {
  as_default here(rt);
  auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  connects_later = true;
  const auto fired = rt.stats().total.timers_fired;
  auto near = tcp_conn::connect(listener.local().or_throw(), 20ms);
  auto made = near.wait();
  connects_later = false;
  if (made.error == net_errc::deadline_exceeded) GTEST_SKIP() << "the machine is too slow";
  ASSERT_TRUE(made);
  EXPECT_TRUE(eventually([&] { return rt.stats().total.timers_fired > fired; }));
  EXPECT_TRUE(made->write_all("x").wait());
}

}  // namespace
}  // namespace verge::test
