// SPDX-License-Identifier: Apache-2.0

// Connections: bytes, closing, and the end of their runtime. Errors and concurrent waits are in
// net_waiting_test.cc, other sockets in net_kinds_test.cc, deadlines in conformance/net_test.cc.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <verge/runtime.h>
#include <verge/simulation.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <support/allocations.h>
#include <support/as_default.h>
#include <support/net_fixture.h>
#include <support/patience.h>
#include <support/scale.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;

// ---- Bytes

TEST_F(net, bytes_go_both_ways_over_ipv4_and_ipv6) {
  for (const endpoint& at : {endpoint::loopback(0), endpoint::loopback_v6(0)}) {
    rt.run([&]() -> task<> {
      auto [near, far] = co_await connected(at);
      bytes64 bytes;
      EXPECT_EQ((co_await near.write_all("hello")).or_throw(), 5u);
      EXPECT_EQ(text(bytes, (co_await far.read_some(bytes)).or_throw()), "hello");
      EXPECT_EQ((co_await far.write_all("and back")).or_throw(), 8u);
      EXPECT_EQ((co_await near.read_full(buffer(bytes.data(), 8))).or_throw(), 8u);
      EXPECT_EQ(text(bytes, 8), "and back");
      EXPECT_EQ(near.local()->to_string(), far.peer()->to_string());
      EXPECT_EQ(near.local()->kind(), at.kind());
    });
  }
}

TEST_F(net, an_ipv6_listener_takes_ipv4_connections_unless_told_otherwise) {
  rt.run([]() -> task<> {
    auto both = tcp_listener::listen(endpoint::any_v6(0)).or_throw();
    const auto port = both.local()->port();
    EXPECT_FALSE((co_await tcp_conn::connect(endpoint::loopback(port))).error);
    EXPECT_FALSE((co_await tcp_conn::connect(endpoint::loopback_v6(port))).error);
    auto one = tcp_listener::listen(endpoint::any_v6(0), {.only_v6 = true}).or_throw();
    const auto refused = co_await tcp_conn::connect(endpoint::loopback(one.local()->port()));
    EXPECT_EQ(refused.error, std::errc::connection_refused);
  });
}

TEST_F(net, plain_threads_use_it_with_wait) {
  as_default here(rt);
  auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  std::thread server([&] {
    auto conn = listener.accept().wait().or_throw();
    bytes64 bytes;
    while (auto got = conn.read_some(bytes).wait()) {
      EXPECT_TRUE(conn.write_all({bytes.data(), got.bytes}).wait());
    }
  });
  auto conn = tcp_conn::connect(listener.local().or_throw()).wait().or_throw();
  bytes64 bytes;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(conn.write_all("ping").wait());
    EXPECT_EQ(conn.read_full(buffer(bytes.data(), 4)).wait().bytes, 4u);
    EXPECT_EQ(text(bytes, 4), "ping");
  }
  conn.close();
  server.join();
}

TEST_F(net, more_than_fits_into_the_kernel_arrives_whole_and_in_order) {
  auto ends = connect();
  auto& near = ends.near;
  auto& far = ends.far;
  std::string sent(scale<std::size_t>(16, 2) << 20, '\0');
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 31 / 7);
  auto writer = rt.spawn([&]() -> task<io_result> { co_return co_await near.write_all(sent); });
  std::string got(sent.size(), '\0');
  const io_result read =
      rt.run([&]() -> task<io_result> { co_return co_await far.read_full(got); });
  EXPECT_EQ(read.or_throw(), sent.size());
  EXPECT_EQ(writer.join().or_throw(), sent.size());
  EXPECT_TRUE(got == sent);
}

TEST_F(net, a_read_that_stops_half_way_says_how_far_it_came) {
  auto ends = connect();
  auto& near = ends.near;
  auto& far = ends.far;
  rt.run([&]() -> task<> {
    co_await near.write_all("half");
    near.shutdown_write();
    bytes64 bytes;
    const io_result read = co_await far.read_full(bytes);
    EXPECT_EQ(read.bytes, 4u);
    EXPECT_EQ(read.error, net_errc::end_of_stream);
    EXPECT_EQ((co_await far.read_some(bytes)).error, net_errc::end_of_stream);
  });
}

/// A read that fills its buffer has not seen that the stream is empty: the next one must not wait
/// for an event, since there may be none.
TEST_F(net, what_a_full_buffer_leaves_is_read_without_another_event) {
  auto ends = connect();
  auto& near = ends.near;
  auto& far = ends.far;
  rt.run([&]() -> task<> {
    std::array<std::byte, 4> four;
    for (int i = 0; i < 3; ++i) {
      co_await near.write_all("abcdefghijkl");
      for (int part = 0; part < 3; ++part) {
        EXPECT_EQ((co_await far.read_some(four)).bytes, 4u) << "of round " << i;
      }
    }
  });
}

TEST_F(net, half_a_connection_can_be_closed_and_the_other_half_used) {
  auto ends = connect();
  auto& near = ends.near;
  auto& far = ends.far;
  rt.run([&]() -> task<> {
    bytes64 bytes;
    co_await near.write_all("request");
    EXPECT_FALSE(near.shutdown_write());
    EXPECT_EQ((co_await far.read_full(bytes)).bytes, 7u);
    co_await far.write_all("answer");
    EXPECT_EQ((co_await near.read_some(bytes)).bytes, 6u);
    EXPECT_EQ((co_await near.write_all("more")).error, std::errc::broken_pipe);
  });
}

TEST_F(net, a_connection_that_is_closed_for_reading_has_come_to_its_end) {
  auto ends = connect();
  rt.run([&]() -> task<> {
    bytes64 bytes;
    EXPECT_FALSE(ends.near.shutdown_read());
    EXPECT_EQ((co_await ends.near.read_some(bytes)).error, net_errc::end_of_stream);
    EXPECT_FALSE((co_await ends.near.write_all("request")).error);
    EXPECT_EQ((co_await ends.far.read_some(bytes)).bytes, 7u);
    ends.far.close();
    // A reset, or an end in both directions: then there is no connection any more.
    EXPECT_FALSE(ends.near.shutdown_write());
    EXPECT_EQ(ends.near.shutdown_read(), std::errc::not_connected);
    EXPECT_EQ(ends.near.shutdown_write(), std::errc::not_connected);
  });
}

/// Of the one that it listens at: those before may have left connections that wait for their end.
TEST_F(net, a_listener_may_use_its_address_again) {
  const auto listener = rt.run([] { return tcp_listener::listen(endpoint::loopback(0)); });
  int on = 0;
  socklen_t size = sizeof on;
  EXPECT_EQ(::getsockopt(listener.value.native_handle(), SOL_SOCKET, SO_REUSEADDR, &on, &size), 0);
  EXPECT_NE(on, 0);
}

TEST_F(net, several_may_listen_at_one_address_if_all_of_them_say_so) {
  const as_default here(rt);
  const auto first = tcp_listener::listen(endpoint::loopback(0), {.reuse_port = true}).or_throw();
  const endpoint at = first.local().or_throw();
  EXPECT_FALSE(tcp_listener::listen(at, {.reuse_port = true}).error);
  EXPECT_EQ(tcp_listener::listen(at).error, std::errc::address_in_use);
  const auto alone = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  EXPECT_EQ(tcp_listener::listen(alone.local().or_throw(), {.reuse_port = true}).error,
            std::errc::address_in_use);
}

TEST_F(net, a_deadline_to_read_leaves_writes_alone) {
  auto [near, far] = connect();
  rt.run([&, &near = near]() -> task<> {
    EXPECT_FALSE(near.set_read_deadline(clock::now() - 1s));
    EXPECT_TRUE(co_await near.write_all("x"));
    bytes64 bytes;
    EXPECT_EQ((co_await near.read_some(bytes)).error, std::errc::timed_out);
    EXPECT_FALSE(near.set_deadline(clock::time_point::max()));
    EXPECT_FALSE(near.set_write_deadline(clock::now() - 1s));
    EXPECT_EQ((co_await near.write_all("x")).error, std::errc::timed_out);
  });
}

TEST_F(net, small_writes_are_sent_at_once_until_set_no_delay_says_false) {
  auto [client, server] = connect();
  const auto no_delay = [](const tcp_conn& c) {
    int on = -1;
    socklen_t size = sizeof on;
    EXPECT_EQ(::getsockopt(c.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, &size), 0);
    return on != 0;
  };
  EXPECT_TRUE(no_delay(client) && no_delay(server)) << "the initial setting";
  EXPECT_FALSE(client.set_no_delay(false));
  EXPECT_FALSE(no_delay(client));
  EXPECT_FALSE(client.set_no_delay(true));
  EXPECT_TRUE(no_delay(client));
}

TEST_F(net, an_empty_buffer_is_done_at_once) {
  auto ends = connect();
  auto& near = ends.near;
  rt.run([&]() -> task<> {
    EXPECT_EQ((co_await near.read_some(buffer(nullptr, 0))).or_throw(), 0u);
    EXPECT_EQ((co_await near.read_full(buffer(nullptr, 0))).or_throw(), 0u);
    EXPECT_EQ((co_await near.write_all("")).or_throw(), 0u);
  });
}

// A message and the end of the stream may come as one event; the end must still be seen.
TEST_F(net, the_end_right_behind_a_message_is_not_missed) {
  for (int i = 0; i < scale(2000, 200); ++i) {
    auto [near, far] = connect();
    auto reader = rt.spawn([&far = far]() -> task<std::size_t> {
      bytes64 bytes;
      std::size_t sum = 0;
      for (;;) {
        const io_result got = co_await far.read_some(bytes);
        sum += got.bytes;
        if (got.error) co_return got.error == net_errc::end_of_stream ? sum : 0;
      }
    });
    rt.run([&near = near]() -> task<> {
      co_await near.write_all("last words");
      near.close();
    });
    EXPECT_EQ(reader.join(), 10u);
  }
}

TEST_F(net, many_connections_echo_at_once) {
  constexpr int connections = 50;
  const int messages = scale(200, 40);
  rt.run([&]() -> task<> {
    auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
    auto server = go([&]() -> task<> {
      while (auto conn = co_await listener.accept()) {
        go(
            [](tcp_conn c) -> task<> {
              bytes64 bytes;
              while (auto got = co_await c.read_some(bytes)) {
                if (!co_await c.write_all({bytes.data(), got.bytes})) co_return;
              }
            },
            std::move(*conn))
            .detach();
      }
    });
    const endpoint at = listener.local().or_throw();
    std::vector<join_handle<int>> clients;
    for (int i = 0; i < connections; ++i) {
      clients.push_back(go([&, i]() -> task<int> {
        auto conn = (co_await tcp_conn::connect(at)).or_throw();
        bytes64 bytes;
        int right = 0;
        for (int n = 0; n < messages; ++n) {
          const std::string message = std::to_string(i) + ":" + std::to_string(n);
          co_await conn.write_all(message);
          co_await conn.read_full(buffer(bytes.data(), message.size()));
          right += text(bytes, message.size()) == message;
        }
        co_return right;
      }));
    }
    for (auto& c : clients) EXPECT_EQ(co_await c, messages);
    listener.close();
    co_await server;
  });
}

TEST_F(net, operations_allocate_nothing) {
  auto ends = connect();
  auto& near = ends.near;
  auto& far = ends.far;
  far.set_read_deadline(clock::now() + 1h);  // its timer is created here
  // The runtime may start a thread meanwhile, which allocates; but not every time.
  std::size_t least = SIZE_MAX;
  for (int round = 0; round < 20 && least != 0; ++round) {
    const auto made = rt.run([&]() -> task<std::size_t> {
      bytes64 bytes;
      const std::size_t before = allocations();
      for (int i = 0; i < 100; ++i) {
        far.set_read_deadline(clock::now() + 1h);
        co_await near.write_all("to and fro");
        co_await far.read_full(buffer(bytes.data(), 10));
      }
      co_return allocations() - before;
    });
    least = std::min(least, made);
  }
  EXPECT_EQ(least, 0u);
}

// ---- Closing

TEST_F(net, closing_ends_all_waits) {
  auto [near, far] = connect();
  auto listener = rt.run([]() -> task<tcp_listener> {
    co_return tcp_listener::listen(endpoint::loopback(0)).or_throw();
  });
  auto reader = rt.spawn([&n = near]() -> task<io_result> {
    bytes64 bytes;
    co_return co_await n.read_some(bytes);
  });
  auto writer = rt.spawn([&n = near]() -> task<io_result> {
    co_return co_await n.write_all(std::string(16 << 20, 'x'));
  });
  auto acceptor =
      rt.spawn([&]() -> task<std::error_code> { co_return (co_await listener.accept()).error; });
  EXPECT_TRUE(eventually(
      [&l = listener, &n = near] { return has_reader(n) && has_writer(n) && has_reader(l); }));
  EXPECT_FALSE(near.close());
  EXPECT_FALSE(listener.close());
  EXPECT_EQ(reader.join().error, net_errc::closed);
  const io_result written = writer.join();
  EXPECT_EQ(written.error, net_errc::closed);
  EXPECT_LT(written.bytes, 16u << 20);
  EXPECT_EQ(acceptor.join(), net_errc::closed);
}

TEST_F(net, operations_on_a_closed_connection_fail_with_closed) {
  auto [near, far] = connect();
  EXPECT_FALSE(near.close());
  EXPECT_EQ(near.close(), net_errc::closed) << "a second time";
  EXPECT_EQ(near.close(), std::errc::bad_file_descriptor);
  bytes64 bytes;
  EXPECT_EQ(near.read_some(bytes).wait().error, net_errc::closed);
  EXPECT_EQ(near.write_all("x").wait().error, net_errc::closed);
  EXPECT_EQ(near.set_deadline(clock::now() + 1s), net_errc::closed);
  EXPECT_EQ(near.shutdown_write(), net_errc::closed);
  EXPECT_EQ(near.local().error, net_errc::closed);
  EXPECT_EQ(far.read_some(bytes).wait().error, net_errc::end_of_stream);
}

TEST_F(net, a_handle_without_a_descriptor_says_closed) {
  tcp_conn none;
  EXPECT_FALSE(none);
  bytes64 bytes;
  EXPECT_EQ(none.read_some(bytes).wait().error, net_errc::closed);
  EXPECT_EQ(none.close(), net_errc::closed);
  EXPECT_EQ(none.set_read_deadline(no_deadline), net_errc::closed);
  EXPECT_EQ(none.peer().error, net_errc::closed);
  EXPECT_EQ(none.native_handle(), -1);
  tcp_listener nobody;
  EXPECT_EQ(nobody.accept().wait().error, net_errc::closed);
}

TEST_F(net, destroying_the_handle_ends_what_waits_too) {
  auto ends = connect();
  auto near = std::make_unique<tcp_conn>(std::move(ends.near));
  auto reader = rt.spawn([&conn = *near]() -> task<std::error_code> {
    static bytes64 bytes;
    co_return (co_await conn.read_some(bytes)).error;
  });
  EXPECT_TRUE(eventually([&] { return has_reader(*near); }))
      << "only then may the handle be destroyed";
  near.reset();
  EXPECT_EQ(reader.join(), net_errc::closed);
}

// The number of a closed descriptor is reused by the next one that is opened: a system call that is
// about to use the old one must not reach the new one.
TEST_F(net, a_number_is_not_reused_while_a_system_call_is_about_to_use_it) {
  as_default here(rt);
  std::atomic<bool> over{false};
  std::atomic<tcp_conn*> victim{nullptr};
  std::atomic<int> stray{0};
  std::thread writer([&] {
    while (!over.load()) {
      tcp_conn* c = victim.load();
      if (c == nullptr) continue;
      while (!c->write_some("stray").wait().error) {
      }
      victim.store(nullptr);
    }
  });
  for (int i = 0; i < scale(300, 60); ++i) {
    auto ends = rt.run(connected());
    victim.store(&ends.near);
    std::atomic<bool> drained{false};
    std::thread reader([&] {
      std::vector<char> sink(1 << 16);
      while (ends.far.read_some(sink).wait()) {
      }
      drained.store(true);
    });
    ends.near.close();
    auto innocent = rt.run(connected());  // most likely with the same numbers
    while (victim.load() != nullptr) std::this_thread::yield();
    innocent.near.shutdown_write();
    bytes64 bytes;
    stray += innocent.far.read_some(bytes).wait().bytes != 0;
    reader.join();
  }
  over.store(true);
  writer.join();
  EXPECT_EQ(stray.load(), 0) << "bytes in connections that were not written to";
}

// ---- Runtimes

TEST_F(net, there_are_no_sockets_in_simulated_time) {
  simulation sim;
  EXPECT_EQ(tcp_listener::listen(endpoint::loopback(0)).error, net_errc::simulated_time);
  EXPECT_EQ(tcp_conn::connect(endpoint::loopback(1)).wait().error, net_errc::simulated_time);
  EXPECT_EQ(udp_socket::bind(endpoint::loopback(0)).error, std::errc::operation_not_supported);
}

/// Neither a file nor a connection, though the system has both.
TEST_F(net, what_is_refused_in_simulated_time_leaves_nothing_behind) {
  auto listener = rt.run([] { return tcp_listener::listen(endpoint::loopback(0)).or_throw(); });
  const endpoint at = listener.local().or_throw();
  const std::string path = testing::TempDir() + "verge_simulated_" + std::to_string(::getpid());
  {
    simulation sim;
    EXPECT_EQ(tcp_conn::connect(at).wait().error, net_errc::simulated_time);
    const endpoint file = endpoint::path(path).or_throw();
    EXPECT_EQ(unix_listener::listen(file).error, net_errc::simulated_time);
  }
  EXPECT_NE(::access(path.c_str(), F_OK), 0) << "there is a file";
  pollfd of{.fd = listener.native_handle(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&of, 1, 0), 0) << "there is a connection";
}

TEST(net_and_runtimes, tasks_of_two_runtimes_talk_and_each_wakes_its_own) {
  runtime first{{.processors = 1}};
  runtime second{{.processors = 1}};
  auto ends = first.run(connected());
  auto echo = second.spawn([&]() -> task<> {
    bytes64 bytes;
    while (auto got = co_await ends.far.read_some(bytes)) {
      if (!co_await ends.far.write_all({bytes.data(), got.bytes})) co_return;
    }
  });
  first.run([&]() -> task<> {
    bytes64 bytes;
    for (int i = 0; i < 100; ++i) {
      co_await ends.near.write_all("x");
      EXPECT_EQ((co_await ends.near.read_some(bytes)).bytes, 1u);
    }
    ends.near.close();
  });
  echo.join();
}

TEST(net_and_runtimes, a_runtime_that_ends_tells_threads_that_wait_for_its_sockets) {
  std::optional<runtime> rt(std::in_place, runtime_options{.processors = 2});
  auto ends = rt->run(connected());
  ends.near.set_read_deadline(clock::now() + 1h);
  std::thread reader([&] {
    bytes64 bytes;
    EXPECT_EQ(ends.near.read_some(bytes).wait().error, net_errc::runtime_ended);
  });
  auto suspended = rt->spawn([&]() -> task<> {
    bytes64 bytes;
    static_cast<void>(co_await ends.far.read_some(bytes));
  });
  EXPECT_TRUE(eventually([&] { return has_reader(ends.near) && has_reader(ends.far); }));
  rt.reset();
  reader.join();
  EXPECT_THROW(suspended.join(), cancelled);
  // What need not wait still works, and the rest reports the reason.
  EXPECT_TRUE(ends.near.write_all("x").wait());
  bytes64 bytes;
  EXPECT_TRUE(ends.far.read_some(bytes).wait());
  EXPECT_EQ(ends.far.read_some(bytes).wait().error, net_errc::runtime_ended);
  EXPECT_EQ(ends.far.set_deadline(clock::now() + 1s), net_errc::runtime_ended);
  EXPECT_EQ(ends.far.set_deadline(clock::now() + 1s), std::errc::operation_canceled);
  EXPECT_EQ(ends.far.set_deadline(clock::now() - 1s), net_errc::runtime_ended);
  EXPECT_FALSE(ends.far.close());
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST_F(net, a_child_that_closes_its_copy_does_not_disturb_the_parent) {
  auto [near, far] = connect();
  near.set_deadline(clock::now() + 1h);
  const pid_t child = fork();
  if (child == 0) {
    // No thread would wake it here, so it does not wait.
    bytes64 bytes;
    const bool refused = near.read_some(bytes).wait().error == net_errc::runtime_ended;
    const bool closed = !near.close() && !far.close();
    _exit(refused && closed ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  bytes64 bytes;
  auto reader = rt.spawn([&f = far, &bytes]() -> task<std::size_t> {
    co_return (co_await f.read_some(bytes)).or_throw();
  });
  EXPECT_TRUE(eventually([&f = far] { return has_reader(f); }));
  EXPECT_TRUE(near.write_all("hello").wait());
  EXPECT_EQ(reader.join(), 5u);
}
#endif

}  // namespace
}  // namespace verge::test
