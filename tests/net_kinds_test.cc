// SPDX-License-Identifier: Apache-2.0

// Sockets other than TCP: datagrams, Unix sockets; and addresses.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>
#include <verge/runtime.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include <support/as_default.h>
#include <support/net_fixture.h>
#include <support/patience.h>

namespace verge::test {
namespace {

// ---- Datagrams

TEST_F(net, datagrams_arrive_whole_with_their_sender) {
  for (const endpoint& here : {endpoint::loopback(0), endpoint::loopback_v6(0)}) {
    rt.run([&]() -> task<> {
      auto a = udp_socket::bind(here).or_throw();
      auto b = udp_socket::bind(here).or_throw();
      const endpoint at_b = b.local().or_throw();
      EXPECT_EQ((co_await a.send("one", at_b)).or_throw(), 3u);
      errno = EBADF;  // of an earlier call
      EXPECT_EQ((co_await a.send("", at_b)).or_throw(), 0u);
      EXPECT_EQ((co_await a.send("too long", at_b)).or_throw(), 8u);
      bytes64 bytes;
      auto got = co_await b.receive(bytes);
      EXPECT_EQ(text(bytes, got.bytes), "one");
      EXPECT_EQ(got.from, a.local().or_throw());
      EXPECT_FALSE(got.truncated);
      got = co_await b.receive(bytes);
      EXPECT_TRUE(got) << "an empty datagram is not the end";
      EXPECT_EQ(got.bytes, 0u);
      got = co_await b.receive(buffer(bytes.data(), 3));
      EXPECT_TRUE(got.truncated);
      EXPECT_EQ((co_await b.send("back", got.from)).or_throw(), 4u);
      EXPECT_EQ((co_await a.receive(bytes)).bytes, 4u);
    });
  }
}

TEST_F(net, a_connected_datagram_socket_has_a_peer_and_hears_that_it_is_not_there) {
  rt.run([]() -> task<> {
    auto a = udp_socket::bind(endpoint::loopback(0)).or_throw();
    auto b = udp_socket::bind(endpoint::loopback(0)).or_throw();
    const endpoint at_b = b.local().or_throw();
    EXPECT_FALSE(a.connect(at_b));
    EXPECT_EQ(a.peer().or_throw(), at_b);
    co_await a.send("hello");
    bytes64 bytes;
    EXPECT_EQ((co_await b.receive(bytes)).bytes, 5u);
    b.close();
    co_await a.send("hello?");
    EXPECT_EQ((co_await a.receive(bytes)).error, std::errc::connection_refused);
  });
}

/// The kernel reports an error, and nothing to read.
TEST_F(net, a_receiver_that_waits_hears_that_a_peer_is_not_there) {
  as_default here(rt);
  auto a = udp_socket::bind(endpoint::loopback(0)).or_throw();
  auto b = udp_socket::bind(endpoint::loopback(0)).or_throw();
  EXPECT_FALSE(a.connect(b.local().or_throw()));
  b.close();
  auto receiver = rt.spawn([&a]() -> task<std::error_code> {
    bytes64 bytes;
    co_return (co_await a.receive(bytes)).error;
  });
  ASSERT_TRUE(eventually([&] { return has_reader(a); }));
  EXPECT_TRUE(a.send("hello?").wait());
  EXPECT_EQ(receiver.join(), std::errc::connection_refused);
}

TEST_F(net, several_may_receive_at_once) {
  auto socket = rt.run(
      []() -> task<udp_socket> { co_return udp_socket::bind(endpoint::loopback(0)).or_throw(); });
  std::vector<join_handle<int>> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(rt.spawn([&]() -> task<int> {
      bytes64 bytes;
      int n = 0;
      while (auto got = co_await socket.receive(bytes)) {
        if (got.bytes == 0) break;
        ++n;
      }
      co_return n;
    }));
  }
  const endpoint at = socket.local().or_throw();
  rt.run([&]() -> task<> {
    auto from = udp_socket::bind(endpoint::loopback(0)).or_throw();
    for (int i = 0; i < 100; ++i) co_await from.send("x", at);
    for (int i = 0; i < 4; ++i) co_await from.send("", at);
  });
  int sum = 0;
  for (auto& a : all) sum += a.join();
  EXPECT_EQ(sum, 100);
}

// ---- Unix sockets

/// A unique name for a Unix socket.
class scratch_path {
 public:
  scratch_path() {
    static std::atomic<int> number{0};
    path_ = std::filesystem::temp_directory_path() /
            ("verge_net_" + std::to_string(getpid()) + "_" + std::to_string(++number));
  }
  ~scratch_path() { std::filesystem::remove(path_); }
  scratch_path(const scratch_path&) = delete;
  scratch_path& operator=(const scratch_path&) = delete;

  endpoint at() const { return endpoint::path(path_.native()).or_throw(); }
  bool exists() const { return std::filesystem::exists(path_); }

 private:
  std::filesystem::path path_;
};

TEST_F(net, unix_sockets_connect_by_path_and_clean_up_behind_themselves) {
  const scratch_path path;
  rt.run([&]() -> task<> {
    auto listener = unix_listener::listen(path.at()).or_throw();
    EXPECT_TRUE(path.exists());
    EXPECT_EQ(unix_listener::listen(path.at()).error, std::errc::address_in_use);
    auto near = (co_await unix_conn::connect(path.at())).or_throw();
    auto far = (co_await listener.accept()).or_throw();
    EXPECT_EQ(near.peer().or_throw(), path.at());
    co_await near.write_all("hello");
    bytes64 bytes;
    EXPECT_EQ((co_await far.read_some(bytes)).bytes, 5u);
    EXPECT_FALSE(listener.close());
    EXPECT_FALSE(path.exists());
    EXPECT_EQ((co_await unix_conn::connect(path.at())).error, std::errc::no_such_file_or_directory);
  });
  {
    as_default here(rt);
    auto listener = unix_listener::listen(path.at()).or_throw();
    auto moved = std::move(listener);
    listener = unix_listener();
    EXPECT_TRUE(path.exists()) << "the moved-to object owns it";
  }
  EXPECT_FALSE(path.exists());
}

TEST_F(net, an_empty_datagram_is_not_the_end_of_a_descriptor_that_was_adopted) {
  rt.run([]() -> task<> {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    auto from = fd::adopt(ends[0]).or_throw();
    EXPECT_EQ(::send(ends[1], "", 0, 0), 0);
    EXPECT_EQ(::send(ends[1], "next", 4, 0), 4);
    bytes64 bytes;
    const io_result empty = co_await from.read_some(bytes);
    EXPECT_EQ(empty.bytes, 0U);
    EXPECT_FALSE(empty.error) << empty.error.message();
    EXPECT_EQ((co_await from.read_some(bytes)).bytes, 4U);
    ::close(ends[1]);
  });
}

/// Programs write them down, and other programs read them.
TEST(net_errors, keep_their_numbers) {
  int number = 0;
  for (const net_errc e :
       {net_errc::closed, net_errc::deadline_exceeded, net_errc::end_of_stream,
        net_errc::not_pollable, net_errc::runtime_ended, net_errc::simulated_time,
        net_errc::bad_address, net_errc::timed_out, net_errc::cancelled}) {
    EXPECT_EQ(make_error_code(e).value(), ++number);
  }
}

TEST_F(net, a_datagram_socket_of_the_internet_is_bound_to_no_path) {
  const scratch_path path;
  as_default here(rt);
  EXPECT_EQ(udp_socket::bind(path.at()).error, net_errc::bad_address);
  EXPECT_FALSE(path.exists());
}

/// Its name is removed once: after that it may be another listener's.
TEST_F(net, a_listener_that_was_closed_leaves_its_path_to_the_next) {
  const scratch_path path;
  as_default here(rt);
  {
    auto first = unix_listener::listen(path.at()).or_throw();
    EXPECT_FALSE(first.close());
    const auto next = unix_listener::listen(path.at()).or_throw();
    first = unix_listener();
    EXPECT_TRUE(path.exists());
  }
  EXPECT_FALSE(path.exists());
}

TEST_F(net, what_is_assigned_to_removes_its_own_path_and_gets_the_others) {
  const scratch_path first;
  const scratch_path second;
  as_default here(rt);
  const auto check = [&](auto one, auto two) {
    one = std::move(two);
    EXPECT_FALSE(first.exists());
    EXPECT_TRUE(second.exists());
    EXPECT_EQ(one.local()->path(), second.at().path());
    EXPECT_FALSE(one.close());
    EXPECT_FALSE(second.exists());
  };
  check(unix_listener::listen(first.at()).or_throw(),
        unix_listener::listen(second.at()).or_throw());
  check(unix_datagram::bind(first.at()).or_throw(), unix_datagram::bind(second.at()).or_throw());
  {
    const auto to = unix_datagram::bind(first.at()).or_throw();
    EXPECT_TRUE(first.exists());
  }
  EXPECT_FALSE(first.exists());
}

TEST_F(net, a_datagram_that_waits_for_room_ends_with_the_deadline_or_the_socket) {
  as_default here(rt);
  auto [from, to] = unix_datagram::pair().or_throw();
  from.set_write_deadline(clock::now() + std::chrono::milliseconds(20));
  io_result last;
  for (int i = 0; i < 100'000 && !last.error; ++i) last = from.send("x").wait();
  EXPECT_EQ(last.error, net_errc::deadline_exceeded);
  from.set_write_deadline(no_deadline);
  auto waits = rt.spawn([&of = from]() -> task<io_result> { co_return co_await of.send("x"); });
  EXPECT_TRUE(eventually([&] { return rt.stats().tasks_waiting == 1; }));
  from.close();
  EXPECT_EQ(waits.join().error, net_errc::closed);
}

TEST_F(net, a_receiver_that_waits_ends_with_the_deadline_or_the_socket) {
  const as_default here(rt);
  auto socket = udp_socket::bind(endpoint::loopback(0)).or_throw();
  const auto receive = [&socket]() -> task<datagram> {
    bytes64 bytes;
    co_return co_await socket.receive(bytes);
  };
  const auto waits = [&] { return rt.stats().tasks_waiting == 1; };
  socket.set_read_deadline(clock::now() + std::chrono::milliseconds(5));
  EXPECT_EQ(rt.run(receive).error, net_errc::deadline_exceeded);
  EXPECT_EQ(rt.run(receive).error, net_errc::deadline_exceeded) << "it has passed";
  socket.set_read_deadline(no_deadline);
  auto passes = rt.spawn(receive);
  EXPECT_TRUE(eventually(waits));
  socket.set_read_deadline(clock::now());
  EXPECT_EQ(passes.join().error, net_errc::deadline_exceeded);
  socket.set_read_deadline(no_deadline);
  auto closes = rt.spawn(receive);
  EXPECT_TRUE(eventually(waits));
  socket.close();
  const datagram none = closes.join();
  EXPECT_EQ(none.error, net_errc::closed);
  EXPECT_EQ(none.bytes, 0U);
}

TEST_F(net, unix_sockets_have_abstract_names_pairs_and_datagrams) {
  rt.run([]() -> task<> {
    const auto name = endpoint::path("@verge_net_test_" + std::to_string(getpid())).or_throw();
    auto listener = unix_listener::listen(name).or_throw();
    EXPECT_EQ(listener.local()->to_string(), name.to_string());
    EXPECT_FALSE((co_await unix_conn::connect(name)).error);
    bytes64 bytes;
    auto [near, far] = unix_conn::pair().or_throw();
    co_await near.write_all("over the pair");
    EXPECT_EQ((co_await far.read_some(bytes)).bytes, 13u);
    EXPECT_FALSE(near.close());
    EXPECT_EQ((co_await far.read_some(bytes)).error, net_errc::end_of_stream);
    auto [a, b] = unix_datagram::pair().or_throw();
    co_await a.send("one");
    co_await a.send("two");
    EXPECT_EQ((co_await b.receive(bytes)).bytes, 3u);
    EXPECT_EQ((co_await b.receive(bytes)).bytes, 3u);
  });
  const scratch_path path;
  rt.run([&]() -> task<> {
    auto to = unix_datagram::bind(path.at()).or_throw();
    auto [from, other] = unix_datagram::pair().or_throw();
    bytes64 bytes;
    EXPECT_FALSE(from.connect(path.at()));
    co_await from.send("by path");
    EXPECT_EQ((co_await to.receive(bytes)).bytes, 7u);
    to.close();
    EXPECT_FALSE(path.exists());
  });
}

// ---- Addresses

// ---- Sockets that others have opened

TEST_F(net, a_listener_takes_over_a_socket_that_listens_and_no_other) {
  rt.run([]() -> task<> {
    const int number = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const endpoint here = endpoint::loopback(0);
    EXPECT_EQ(::bind(number, here.address(), here.size()), 0);
    EXPECT_EQ(tcp_listener::adopt(number).error, std::errc::invalid_argument);
    EXPECT_EQ(::listen(number, 4), 0) << "the caller has kept it";
    auto listener = tcp_listener::adopt(number).or_throw();
    auto client = (co_await tcp_conn::connect(listener.local().or_throw())).or_throw();
    auto server = (co_await listener.accept()).or_throw();
    co_await client.write_all("hello");
    bytes64 bytes;
    EXPECT_EQ((co_await server.read_some(bytes)).bytes, 5u);
    EXPECT_EQ(tcp_listener::adopt(-1).error, std::errc::bad_file_descriptor);
    EXPECT_EQ(tcp_listener::adopt(number).error, std::errc::file_exists);
    EXPECT_FALSE(listener.local().error) << "it was not closed";
    const int other = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const endpoint path = endpoint::path("@verge-adopt-" + std::to_string(::getpid())).or_throw();
    EXPECT_EQ(::bind(other, path.address(), path.size()), 0);
    EXPECT_EQ(::listen(other, 4), 0);
    EXPECT_EQ(tcp_listener::adopt(other).error, std::errc::invalid_argument);
    ::close(other);
  });
}

TEST(endpoint, is_written_as_it_is_read) {
  for (const char* s :
       {"127.0.0.1:80", "0.0.0.0:0", "[::1]:65535", "[fe80::1%2]:80", "/run/x", "@abstract"}) {
    const auto e = endpoint::parse(s);
    EXPECT_FALSE(e.error) << s;
    EXPECT_EQ(e->to_string(), s);
    EXPECT_EQ(endpoint::parse(s).value, e.value);
  }
  EXPECT_EQ(endpoint::loopback(80).to_string(), "127.0.0.1:80");
  EXPECT_EQ(endpoint::any_v6(80).to_string(), "[::]:80");
  EXPECT_EQ(endpoint::parse("[::1]:443")->port(), 443);
  EXPECT_EQ(endpoint().to_string(), "");
  EXPECT_EQ(endpoint().port(), 0);
  EXPECT_EQ(endpoint::parse("/run/x")->port(), 0);
  EXPECT_FALSE(endpoint::loopback(1) == endpoint::loopback(2));
}

TEST(endpoint, invalid_text_is_rejected) {
  for (const char* s :
       {"", "localhost:80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
        "127.0.0.1:80x", "1.2.3:80", "[::1:80", "[::1]80", "[::1%eth]:80", "[]:80", ":80",
        "300.0.0.1:80", "1111:2222:3333:4444:5555:6666:7777:8888:9999:80"}) {
    EXPECT_EQ(endpoint::parse(s).error, net_errc::bad_address) << s;
  }
  EXPECT_EQ(endpoint::path("").error, net_errc::bad_address);
  EXPECT_EQ(endpoint::path("@").error, net_errc::bad_address);
  EXPECT_EQ(endpoint::parse("@").error, net_errc::bad_address);
  EXPECT_EQ(endpoint::path("/" + std::string(107, 'x')).error, std::errc::invalid_argument);
  EXPECT_FALSE(endpoint::path("/" + std::string(106, 'x')).error);
  EXPECT_NE(make_error_code(net_errc::bad_address).message().find("[::1]:80"), std::string::npos);
}

}  // namespace
}  // namespace verge::test
