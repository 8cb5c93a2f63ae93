// Sockets: connections, datagrams, unix sockets, what goes wrong on them, and who may wait with
// whom. Deadlines are the subject of conformance/net_test.cc.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <verge/chan.h>
#include <verge/net.h>
#include <verge/runtime.h>
#include <verge/simulation.h>
#include <verge/task.h>
#include <verge/timeout.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <support/allocations.h>
#include <support/as_default.h>
#include <support/patience.h>
#include <support/scale.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;

using bytes64 = std::array<char, 64>;
std::string_view text(const bytes64& bytes, std::size_t n) { return {bytes.data(), n}; }

/// A connection within this machine, both ends of it.
struct two_ends {
  tcp_conn near;
  tcp_conn far;
};

task<two_ends> connected(endpoint at = endpoint::loopback(0)) {
  auto listener = tcp_listener::listen(at).or_throw();
  auto near = (co_await tcp_conn::connect(listener.local().or_throw())).or_throw();
  auto far = (co_await listener.accept()).or_throw();
  co_return two_ends{std::move(near), std::move(far)};
}

class net : public testing::Test {
 protected:
  two_ends connect() { return rt.run(connected()); }

  runtime rt{{.processors = 2}};
};

/// A name for a unix socket that nobody else has.
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
  auto [near, far] = connect();
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
  auto [near, far] = connect();
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

TEST_F(net, half_a_connection_can_be_closed_and_the_other_half_used) {
  auto [near, far] = connect();
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

TEST_F(net, an_empty_buffer_is_done_at_once) {
  auto [near, far] = connect();
  rt.run([&]() -> task<> {
    EXPECT_EQ((co_await near.read_some(buffer(nullptr, 0))).or_throw(), 0u);
    EXPECT_EQ((co_await near.read_full(buffer(nullptr, 0))).or_throw(), 0u);
    EXPECT_EQ((co_await near.write_all("")).or_throw(), 0u);
  });
}

// A message and the end of the stream may come as one event; the end must be seen all the same.
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
  auto [near, far] = connect();
  far.set_read_deadline(clock::now() + 1h);  // its timer is made here
  // The runtime may start a thread meanwhile, and that allocates; not every time, though.
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

TEST_F(net, closing_ends_whatever_waits) {
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
  std::this_thread::sleep_for(5ms);  // most times they wait by then; all is well if they do not
  EXPECT_FALSE(near.close());
  EXPECT_FALSE(listener.close());
  EXPECT_EQ(reader.join().error, net_errc::closed);
  const io_result written = writer.join();
  EXPECT_EQ(written.error, net_errc::closed);
  EXPECT_LT(written.bytes, 16u << 20);
  EXPECT_EQ(acceptor.join(), net_errc::closed);
}

TEST_F(net, what_is_closed_stays_closed_and_says_so) {
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
  std::atomic<bool> begun{false};
  auto reader = rt.spawn([&begun, &conn = *near]() -> task<std::error_code> {
    static bytes64 bytes;
    auto op = conn.read_some(bytes);
    begun = true;
    co_return (co_await op).error;
  });
  EXPECT_TRUE(eventually([&] { return begun.load(); }));
  std::this_thread::sleep_for(50ms);  // until it waits: only then may the handle go
  near.reset();
  EXPECT_EQ(reader.join(), net_errc::closed);
}

// The number of a closed descriptor is given to the next one that is opened: a system call of the
// old one that is still on its way must not end up there.
TEST_F(net, a_number_is_not_used_again_while_somebody_is_about_to_use_it) {
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
  EXPECT_EQ(stray.load(), 0) << "bytes in connections that nobody wrote to";
}

// ---- What goes wrong

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
  std::this_thread::sleep_for(1ms);
  listener.close();
  EXPECT_FALSE(tcp_listener::listen(at).error);
  EXPECT_EQ(acceptor.join(), net_errc::closed);
}

TEST_F(net, a_connection_that_is_reset_says_so) {
  auto [near, far] = connect();
  bytes64 bytes;
  auto reader =
      rt.spawn([&f = far, &bytes]() -> task<io_result> { co_return co_await f.read_some(bytes); });
  near.set_linger(0s);
  near.close();
  EXPECT_EQ(reader.join().error, std::errc::connection_reset);
}

TEST_F(net, writing_to_who_has_gone_is_an_error_and_no_signal) {
  ASSERT_EQ(std::signal(SIGPIPE, SIG_DFL), SIG_DFL) << "or the test would show nothing";
  auto [near, far] = connect();
  far.close();
  std::error_code error;
  for (int i = 0; i < 1000 && !error; ++i) error = near.write_all("anybody there?").wait().error;
  EXPECT_TRUE(error == std::errc::broken_pipe || error == std::errc::connection_reset)
      << error.message();
}

/// A limit on the number of descriptors, for as long as it lives, that leaves so many free.
class descriptor_limit {
 public:
  explicit descriptor_limit(rlim_t room) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int probe = ::dup(STDERR_FILENO);  // the lowest that is free
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
  std::this_thread::sleep_for(20ms);  // it has tried again by now
  EXPECT_EQ(accepted, 3) << "more than there were descriptors for";
  EXPECT_FALSE(server.done()) << "accept gave up";
  limit.reset();
  EXPECT_FALSE(server.join());
  EXPECT_EQ(accepted, connections);
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
  EXPECT_THROW(static_cast<void>(timeout(listener.accept(), 10ms).wait()), timed_out);
  auto cancelled_one = rt.spawn(accept);
  std::this_thread::sleep_for(3ms);
  cancelled_one.cancel();
  EXPECT_THROW(cancelled_one.join(), cancelled);
  auto closed_one = rt.spawn(accept);
  std::this_thread::sleep_for(3ms);
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

// ---- Who waits with whom

TEST_F(net, two_readers_of_one_stream_are_a_mistake) {
  as_default here(rt);
  auto [near, far] = connect();
  bytes64 bytes;
  std::string said;
  auto first =
      rt.spawn([&n = near, &bytes]() -> task<> { static_cast<void>(co_await n.read_some(bytes)); });
  // Whoever comes second is told. Until both are there, this one waits for a moment at a time.
  while (said.empty()) {
    try {
      bytes64 others;
      if (first.done()) first.join();
      static_cast<void>(timeout(near.read_some(others), 1ms).wait());
    } catch (const timed_out&) {
    } catch (const std::logic_error& e) {
      said = e.what();
    }
  }
  EXPECT_NE(said.find("two operations read"), std::string::npos) << said;
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
    EXPECT_TRUE(conn.read_some(bytes).wait().error) << "until somebody has accepted and let go";
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
  std::this_thread::sleep_for(1ms);
  reader.cancel();
  EXPECT_THROW(reader.join(), cancelled);
  near.write_all("still here").wait().or_throw();
  bytes64 bytes;
  EXPECT_EQ(text(bytes, far.read_some(bytes).wait().or_throw()), "still here");
}

TEST_F(net, timeout_withdraws_an_operation_and_the_next_one_goes_on) {
  auto [near, far] = connect();
  rt.run([&n = near, &f = far]() -> task<> {
    bytes64 bytes;
    const auto start = clock::now();
    bool late = false;
    try {
      static_cast<void>(co_await timeout(f.read_some(bytes), 20ms));
    } catch (const timed_out&) {
      late = true;
    }
    EXPECT_TRUE(late);
    EXPECT_GE(clock::now() - start, 20ms);
    co_await n.write_all("later");
    EXPECT_EQ((co_await timeout(f.read_some(bytes), 1min)).or_throw(), 5u);
  });
}

// Every byte that comes wakes the reader, who waits again: the limit is on all of it together.
TEST_F(net, timeout_limits_a_read_that_is_woken_again_and_again) {
  auto [near, far] = connect();
  std::atomic<bool> over{false};
  auto dripping = rt.spawn([&]() -> task<> {
    while (!over.load()) {
      if (!co_await near.write_all(".")) co_return;
      co_await verge::sleep(1ms);
    }
  });
  std::string big(1 << 20, '\0');
  const auto start = clock::now();
  EXPECT_THROW(static_cast<void>(timeout(far.read_full(big), 50ms).wait()), timed_out);
  EXPECT_GE(clock::now() - start, 50ms);
  EXPECT_THROW(
      rt.run([&]() -> task<> { static_cast<void>(co_await timeout(far.read_full(big), 50ms)); }),
      timed_out);
  over.store(true);
  dripping.join();
}

/// A listener that does not accept, and whose queue is full: connecting to it takes for ever.
class unresponsive {
 public:
  unresponsive() : listener_(tcp_listener::listen(endpoint::loopback(0), {.backlog = 0}).value) {
    for (;;) {
      auto [conn, error] = tcp_conn::connect(at(), 100ms).wait();
      if (error) break;
      filling_.push_back(std::move(conn));
    }
  }
  endpoint at() const { return listener_.local().or_throw(); }

 private:
  tcp_listener listener_;
  std::vector<tcp_conn> filling_;
};

TEST_F(net, connecting_can_be_limited_and_cancelled) {
  as_default here(rt);
  unresponsive server;
  const auto start = clock::now();
  EXPECT_EQ(tcp_conn::connect(server.at(), 20ms).wait().error, net_errc::deadline_exceeded);
  EXPECT_GE(clock::now() - start, 20ms);
  EXPECT_EQ(tcp_conn::connect(server.at(), 0s).wait().error, std::errc::timed_out);
  EXPECT_THROW(static_cast<void>(timeout(tcp_conn::connect(server.at()), 20ms).wait()), timed_out);
  auto pending =
      rt.spawn([&]() -> task<> { static_cast<void>(co_await tcp_conn::connect(server.at())); });
  std::this_thread::sleep_for(1ms);
  pending.cancel();
  EXPECT_THROW(pending.join(), cancelled);
}

TEST_F(net, a_limit_on_connecting_is_none_on_the_connection) {
  as_default here(rt);
  auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  auto near = tcp_conn::connect(listener.local().or_throw(), 10s).wait().or_throw();
  auto far = listener.accept().wait().or_throw();
  EXPECT_TRUE(near.write_all("x").wait());
}

// ---- Datagrams

TEST_F(net, datagrams_come_whole_and_say_from_whom) {
  for (const endpoint& here : {endpoint::loopback(0), endpoint::loopback_v6(0)}) {
    rt.run([&]() -> task<> {
      auto a = udp_socket::bind(here).or_throw();
      auto b = udp_socket::bind(here).or_throw();
      const endpoint at_b = b.local().or_throw();
      EXPECT_EQ((co_await a.send("one", at_b)).or_throw(), 3u);
      EXPECT_EQ((co_await a.send("", at_b)).or_throw(), 0u);
      EXPECT_EQ((co_await a.send("too long", at_b)).or_throw(), 8u);
      bytes64 bytes;
      auto got = co_await b.receive(bytes);
      EXPECT_EQ(text(bytes, got.bytes), "one");
      EXPECT_EQ(got.from, a.local().or_throw());
      EXPECT_FALSE(got.truncated);
      got = co_await b.receive(bytes);
      EXPECT_TRUE(got) << "nothing in it is no end";
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
    EXPECT_TRUE(path.exists()) << "it belongs to the one it was moved to";
  }
  EXPECT_FALSE(path.exists());
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
  EXPECT_FALSE(endpoint::loopback(1) == endpoint::loopback(2));
}

TEST(endpoint, text_that_is_no_address_is_refused) {
  for (const char* s :
       {"", "localhost:80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
        "127.0.0.1:80x", "1.2.3:80", "[::1:80", "[::1]80", "[::1%eth]:80", "[]:80", ":80",
        "300.0.0.1:80", "1111:2222:3333:4444:5555:6666:7777:8888:9999:80"}) {
    EXPECT_EQ(endpoint::parse(s).error, net_errc::bad_address) << s;
  }
  EXPECT_EQ(endpoint::path("").error, net_errc::bad_address);
  EXPECT_EQ(endpoint::path("/" + std::string(107, 'x')).error, std::errc::invalid_argument);
  EXPECT_FALSE(endpoint::path("/" + std::string(106, 'x')).error);
  EXPECT_NE(make_error_code(net_errc::bad_address).message().find("[::1]:80"), std::string::npos);
}

// ---- Runtimes

TEST_F(net, there_are_no_sockets_in_simulated_time) {
  simulation sim;
  EXPECT_EQ(tcp_listener::listen(endpoint::loopback(0)).error, net_errc::simulated_time);
  EXPECT_EQ(tcp_conn::connect(endpoint::loopback(1)).wait().error, net_errc::simulated_time);
  EXPECT_EQ(udp_socket::bind(endpoint::loopback(0)).error, std::errc::operation_not_supported);
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
  std::atomic<bool> reads{false};
  std::thread reader([&] {
    bytes64 bytes;
    reads.store(true);
    EXPECT_EQ(ends.near.read_some(bytes).wait().error, net_errc::runtime_ended);
  });
  auto suspended = rt->spawn([&]() -> task<> {
    bytes64 bytes;
    static_cast<void>(co_await ends.far.read_some(bytes));
  });
  EXPECT_TRUE(eventually([&] { return reads.load(); }));
  rt.reset();
  reader.join();
  EXPECT_THROW(suspended.join(), cancelled);
  // What need not wait goes on, and the rest says why it does not.
  EXPECT_TRUE(ends.near.write_all("x").wait());
  bytes64 bytes;
  EXPECT_TRUE(ends.far.read_some(bytes).wait());
  EXPECT_EQ(ends.far.read_some(bytes).wait().error, net_errc::runtime_ended);
  EXPECT_EQ(ends.far.set_deadline(clock::now() + 1s), net_errc::runtime_ended);
  EXPECT_EQ(ends.far.set_deadline(clock::now() + 1s), std::errc::operation_canceled);
  EXPECT_FALSE(ends.far.close());
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST_F(net, a_child_that_closes_its_copy_does_not_disturb_the_parent) {
  auto [near, far] = connect();
  near.set_deadline(clock::now() + 1h);
  const pid_t child = fork();
  if (child == 0) {
    // Nobody would wake it here, so it does not wait.
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
  std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(near.write_all("hello").wait());
  EXPECT_EQ(reader.join(), 5u);
}
#endif

}  // namespace
}  // namespace verge::test
