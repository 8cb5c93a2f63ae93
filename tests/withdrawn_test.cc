// SPDX-License-Identifier: Apache-2.0

// What an operation has done when it is given up: by timeout(), by under(), with its task. One test
// per kind of operation; docs/tasks-and-channels.md has the same table.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <verge/chan.h>
#include <verge/context.h>
#include <verge/fd.h>
#include <verge/net.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/simulation.h>
#include <verge/timeout.h>
#include <verge/under.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <support/as_default.h>
#include <support/net_fixture.h>
#include <support/patience.h>
#include <support/scale.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;

/// How an operation is given up.
enum class how : std::uint8_t {
  timeout_on_thread,
  timeout_in_task,
  timeout_around_timeout,
  timeout_inside_timeout,
  timeout_around_under,
  timeout_inside_under,
  under_on_thread,
  under_in_task,
  under_around_timeout,
  under_inside_timeout,
};

bool by_context(how h) { return h >= how::under_on_thread; }

const char* name_of(how h) {
  constexpr std::array names{"timeout_on_thread",      "timeout_in_task",
                             "timeout_around_timeout", "timeout_inside_timeout",
                             "timeout_around_under",   "timeout_inside_under",
                             "under_on_thread",        "under_in_task",
                             "under_around_timeout",   "under_inside_timeout"};
  return names[static_cast<std::size_t>(h)];
}

class given_up : public net, public testing::WithParamInterface<how> {
 protected:
  /// Starts an operation and gives it up once it waits.
  template <class Make, class Waits>
  auto give_up(Make make, Waits waits) {
    auto [ctx, cancel] = with_cancel(background());
    if (!by_context(GetParam())) return limited(make, ctx);
    std::thread canceller([&waits, c = std::move(cancel)] {
      EXPECT_TRUE(eventually(waits));
      c();
    });
    auto result = limited(make, ctx);
    canceller.join();
    return result;
  }

  /// Checks the error for each way of giving up.
  static void expect_given_up(const std::error_code& error) {
    if (by_context(GetParam())) {
      EXPECT_EQ(error, context_errc::cancelled);
      EXPECT_EQ(error, std::errc::operation_canceled);
    } else {
      EXPECT_EQ(error, net_errc::timed_out);
      EXPECT_EQ(error, std::errc::timed_out);
    }
  }

  as_default here{rt};

 private:
  template <class Make>
  auto limited(Make& make, const context& ctx) {
    switch (GetParam()) {
      case how::timeout_on_thread:
        return timeout(make(), 0s).wait();
      case how::timeout_in_task:
        return in_task([&] { return timeout(make(), 1ms); });
      case how::timeout_around_timeout:
        return in_task([&] { return timeout(timeout(make(), 1h), 1ms); });
      case how::timeout_inside_timeout:
        return in_task([&] { return timeout(timeout(make(), 1ms), 1h); });
      case how::timeout_around_under:
        return in_task([&] { return timeout(under(ctx, make()), 1ms); });
      case how::timeout_inside_under:
        return in_task([&] { return under(ctx, timeout(make(), 1ms)); });
      case how::under_on_thread:
        return under(ctx, make()).wait();
      case how::under_in_task:
        return in_task([&] { return under(ctx, make()); });
      case how::under_around_timeout:
        return in_task([&] { return under(ctx, timeout(make(), 1h)); });
      case how::under_inside_timeout:
        break;
    }
    return in_task([&] { return timeout(under(ctx, make()), 1h); });
  }

  template <class Make>
  auto in_task(Make make) {
    using result = decltype(make().wait());
    return rt.run([](Make& m) -> task<result> { co_return co_await m(); }(make));
  }
};

INSTANTIATE_TEST_SUITE_P(withdrawn, given_up,
                         testing::Values(how::timeout_on_thread, how::timeout_in_task,
                                         how::timeout_around_timeout, how::timeout_inside_timeout,
                                         how::timeout_around_under, how::timeout_inside_under,
                                         how::under_on_thread, how::under_in_task,
                                         how::under_around_timeout, how::under_inside_timeout),
                         [](const auto& of) { return std::string(name_of(of.param)); });

// ---- Streams

TEST_P(given_up, read_some_has_read_nothing) {
  auto [from, to] = make_pipe().or_throw();
  bytes64 bytes;
  const io_result got = give_up([&f = from, &bytes] { return f.read_some(bytes); },
                                [&f = from] { return has_reader(f); });
  EXPECT_EQ(got.bytes, 0u);
  expect_given_up(got.error);
  EXPECT_TRUE(to.write_all("abc").wait());
  EXPECT_EQ(text(bytes, from.read_some(bytes).wait().or_throw()), "abc");
}

TEST_P(given_up, read_full_reports_how_much_it_has_read_and_the_next_read_continues_there) {
  auto [from, to] = make_pipe().or_throw();
  EXPECT_TRUE(to.write_all("abc").wait());
  bytes64 bytes;
  const io_result got = give_up([&f = from, &bytes] { return f.read_full(bytes); },
                                [&f = from] { return has_reader(f); });
  EXPECT_EQ(text(bytes, got.bytes), "abc");
  expect_given_up(got.error);
  EXPECT_TRUE(to.write_all("def").wait());
  EXPECT_EQ(text(bytes, from.read_some(bytes).wait().or_throw()), "def");
}

TEST_P(given_up, write_some_has_written_nothing) {
  auto [from, to] = make_pipe().or_throw();
  const std::string much(1 << 20, 'x');
  const std::size_t room = to.write_some(much).wait().or_throw();
  const io_result put =
      give_up([&t = to, &much] { return t.write_some(much); }, [&t = to] { return has_writer(t); });
  EXPECT_EQ(put.bytes, 0u);
  expect_given_up(put.error);
  std::string read(room, '\0');
  EXPECT_EQ(from.read_full(read).wait().or_throw(), room);
  EXPECT_EQ(timeout(from.read_some(read), 0s).wait().error, net_errc::timed_out) << "no more";
}

TEST_P(given_up, write_all_reports_how_much_was_written) {
  auto [from, to] = make_pipe().or_throw();
  const std::string much(1 << 20, 'x');
  const io_result put =
      give_up([&t = to, &much] { return t.write_all(much); }, [&t = to] { return has_writer(t); });
  EXPECT_GT(put.bytes, 0u);
  expect_given_up(put.error);
  std::string read(put.bytes, '\0');
  EXPECT_EQ(from.read_full(read).wait().or_throw(), put.bytes);
  EXPECT_EQ(timeout(from.read_some(read), 0s).wait().error, net_errc::timed_out) << "no more";
}

TEST_P(given_up, readable_and_writable_give_the_error) {
  auto [from, to] = make_pipe().or_throw();
  expect_given_up(
      give_up([&f = from] { return f.readable(); }, [&f = from] { return has_reader(f); }));
  static_cast<void>(to.write_some(std::string(1 << 20, 'x')).wait());
  expect_given_up(give_up([&t = to] { return t.writable(); }, [&t = to] { return has_writer(t); }));
}

// ---- Connections

TEST_P(given_up, accept_leaves_the_connection_to_the_next_one) {
  auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  auto got = give_up([&] { return listener.accept(); }, [&] { return has_reader(listener); });
  EXPECT_FALSE(got.value);
  expect_given_up(got.error);
  auto near = tcp_conn::connect(listener.local().or_throw()).wait().or_throw();
  EXPECT_TRUE(near.write_all("abc").wait());
  auto far = listener.accept().wait().or_throw();
  bytes64 bytes;
  EXPECT_EQ(text(bytes, far.read_some(bytes).wait().or_throw()), "abc");
}

TEST_P(given_up, connect_gives_no_connection) {
  unresponsive server;
  std::atomic<bool> begun{false};
  auto got = give_up(
      [&] {
        begun = true;
        return tcp_conn::connect(server.at());
      },
      [&] { return begun.load(); });
  EXPECT_FALSE(got.value);
  expect_given_up(got.error);
}

// ---- Datagrams

TEST_P(given_up, receive_leaves_the_datagram_to_the_next_one) {
  auto [near, far] = unix_datagram::pair().or_throw();
  bytes64 bytes;
  const datagram got = give_up([&f = far, &bytes] { return f.receive(bytes); },
                               [&f = far] { return has_reader(f); });
  EXPECT_EQ(got.bytes, 0u);
  expect_given_up(got.error);
  EXPECT_TRUE(near.send("abc").wait());
  EXPECT_EQ(text(bytes, far.receive(bytes).wait().bytes), "abc");
}

TEST_P(given_up, send_has_not_sent_the_datagram) {
  auto [near, far] = unix_datagram::pair().or_throw();
  std::size_t sent = 0;
  while (timeout(near.send("abc"), 0s).wait()) ++sent;
  const io_result put =
      give_up([&n = near] { return n.send("late"); }, [&n = near] { return has_writer(n); });
  EXPECT_EQ(put.bytes, 0u);
  expect_given_up(put.error);
  bytes64 bytes;
  for (; sent != 0; --sent) EXPECT_EQ(text(bytes, far.receive(bytes).wait().bytes), "abc");
  EXPECT_EQ(timeout(far.receive(bytes), 0s).wait().error, net_errc::timed_out) << "no more";
}

// ---- Under a context that is done nothing is tried

TEST_F(net, under_a_context_that_is_done_nothing_is_tried) {
  auto [from, to] = make_pipe().or_throw();
  EXPECT_TRUE(to.write_all("abc").wait());
  auto [ctx, cancel] = with_cancel(background());
  cancel();
  bytes64 bytes;
  const io_result got = under(ctx, from.read_some(bytes)).wait();
  EXPECT_EQ(got.bytes, 0u);
  EXPECT_EQ(got.error, context_errc::cancelled);
  EXPECT_EQ(under(ctx, timeout(from.read_some(bytes), 1h)).wait().error, context_errc::cancelled);
  EXPECT_EQ(timeout(under(ctx, from.read_some(bytes)), 1h).wait().error, context_errc::cancelled);
  EXPECT_EQ(text(bytes, from.read_some(bytes).wait().or_throw()), "abc");
}

// ---- With its task

TEST_F(net, a_cancelled_task_is_told_what_its_read_has_read_and_the_next_operation_throws) {
  as_default here(rt);
  auto [from, to] = make_pipe().or_throw();
  EXPECT_TRUE(to.write_all("abc").wait());
  io_result got;
  auto reader = rt.spawn([&f = from, &got]() -> task<> {
    bytes64 bytes;
    got = co_await f.read_full(bytes);
    EXPECT_EQ(text(bytes, got.bytes), "abc");
    static_cast<void>(co_await f.read_some(bytes));
    ADD_FAILURE() << "this one has done nothing, and throws";
  });
  EXPECT_TRUE(eventually([&f = from] { return has_reader(f); }));
  reader.cancel();
  EXPECT_THROW(reader.join(), cancelled);
  EXPECT_EQ(got.bytes, 3u);
  EXPECT_EQ(got.error, net_errc::cancelled);
  EXPECT_EQ(got.error, std::errc::operation_canceled);
}

TEST_F(net, a_cancelled_task_is_told_how_much_its_write_has_written) {
  as_default here(rt);
  auto [from, to] = make_pipe().or_throw();
  const std::string much(1 << 20, 'x');
  auto writer = rt.spawn([&t = to, &much]() -> task<io_result> {
    co_return co_await timeout(under(background(), t.write_all(much)), 1h);
  });
  EXPECT_TRUE(eventually([&t = to] { return has_writer(t); }));
  writer.cancel();
  const io_result put = writer.join();
  EXPECT_EQ(put.error, net_errc::cancelled);
  std::string read(put.bytes, '\0');
  EXPECT_EQ(from.read_full(read).wait().or_throw(), put.bytes);
  EXPECT_EQ(timeout(from.read_some(read), 0s).wait().error, net_errc::timed_out) << "no more";
}

/// A task that uses or_throw() is still cancelled, and a limit on the task still applies.
TEST_F(net, or_throw_of_what_was_cancelled_throws_cancelled) {
  as_default here(rt);
  auto [from, to] = make_pipe().or_throw();
  EXPECT_TRUE(to.write_all("abc").wait());
  auto read = [](fd& f, context ctx) -> task<std::size_t> {
    bytes64 bytes;
    co_return (co_await under(ctx, f.read_full(bytes))).or_throw();
  };
  EXPECT_THROW(rt.run(timeout(read(from, background()), 1ms)), timed_out);
  auto [ctx, cancel] = with_cancel(background());
  auto reader = rt.spawn(read(from, ctx));
  EXPECT_TRUE(eventually([&f = from] { return has_reader(f); }));
  cancel();
  EXPECT_THROW(reader.join(), cancelled);
  bytes64 bytes;
  EXPECT_THROW(static_cast<void>(timeout(from.read_some(bytes), 0s).wait().or_throw()),
               std::system_error)
      << "a time-out is an error like any other";
}

// ---- A limit that the engine does not support

TEST(withdrawn, a_limit_that_cannot_be_kept_loses_nothing_either) {
  runtime rt({.processors = 1, .engine = engine::simple_wheel});
  as_default here(rt);
  auto [from, to] = make_pipe().or_throw();
  bytes64 bytes;
  EXPECT_THROW(static_cast<void>(timeout(from.read_full(bytes), 1000h).wait()),
               std::invalid_argument);
  EXPECT_TRUE(to.write_all("abc").wait());
  const io_result got = timeout(from.read_full(bytes), 1000h).wait();
  EXPECT_EQ(text(bytes, got.bytes), "abc");
  EXPECT_EQ(got.error, std::errc::invalid_argument);
}

// ---- Operations without an error in their result throw

TEST(withdrawn, recv_send_and_select_have_not_happened) {
  simulation sim;
  sim.run([]() -> task<> {
    chan<int> ch;
    EXPECT_THROW(co_await timeout(recv(ch), 1s), timed_out);
    EXPECT_THROW(co_await timeout(send(ch, 1), 1s), timed_out);
    EXPECT_THROW(co_await timeout(verge::select(recv(ch), send(ch, 2)), 1s), timed_out);
    auto [ctx, cancel] = with_timeout(background(), 1s);
    EXPECT_THROW(co_await under(ctx, recv(ch)), context_error);
    EXPECT_THROW(co_await under(ctx, send(ch, 3)), context_error);
    EXPECT_THROW(co_await under(ctx, verge::select(recv(ch), send(ch, 4))), context_error);
    EXPECT_FALSE(ch.try_recv()) << "no sender";
    EXPECT_FALSE(ch.try_send(5)) << "no receiver";
  });
}

TEST(withdrawn, sleep_ends_and_join_leaves_the_task_running) {
  simulation sim;
  sim.run([]() -> task<> {
    const auto start = clock::now();
    EXPECT_THROW(co_await timeout(verge::sleep(1h), 1s), timed_out);
    auto h = go([]() -> task<int> {
      co_await verge::sleep(10s);
      co_return 42;
    });
    EXPECT_THROW(co_await timeout(h, 1s), timed_out);
    auto [ctx, cancel] = with_timeout(background(), 1s);
    EXPECT_THROW(co_await under(ctx, h), context_error);
    EXPECT_EQ(co_await h, 42);
    EXPECT_EQ(clock::now() - start, 11s);
  });
}

TEST(withdrawn, a_task_is_cancelled_and_waited_for) {
  simulation sim;
  sim.run([]() -> task<> {
    bool ended = false;
    auto work = [&ended]() -> task<> {
      try {
        co_await verge::sleep(1h);
      } catch (const cancelled&) {
        ended = true;
        throw;
      }
    };
    EXPECT_THROW(co_await timeout(work(), 1s), timed_out);
    EXPECT_TRUE(ended);
  });
}

// ---- Races between completion and giving up

TEST_F(net, no_byte_is_lost_between_a_read_and_its_limit) {
  as_default here(rt);
  auto [from, to] = make_pipe().or_throw();
  const std::size_t total = static_cast<std::size_t>(scale(200'000, 20'000));
  auto writer = rt.spawn([&t = to, total]() -> task<> {
    for (std::size_t i = 0; i < total; i += 5) {
      EXPECT_TRUE(co_await t.write_all("abcde"));
      if (i % 35 == 0) co_await verge::yield();
    }
    t.close();
  });
  std::size_t received = 0;
  rt.run([&f = from, &received]() -> task<> {
    std::array<char, 7> bytes;
    for (std::int64_t i = 0;; ++i) {
      auto [ctx, cancel] = with_timeout(background(), std::chrono::nanoseconds(i % 5000));
      const io_result got =
          i % 2 == 0 ? co_await timeout(f.read_full(bytes), std::chrono::nanoseconds(i % 5000))
                     : co_await under(ctx, f.read_full(bytes));
      for (std::size_t k = 0; k < got.bytes; ++k) {
        EXPECT_EQ(bytes[k], "abcde"[(received + k) % 5]) << "in their order";
      }
      received += got.bytes;
      if (got.error == net_errc::end_of_stream) co_return;
    }
  });
  writer.join();
  EXPECT_EQ(received, total);
}

TEST_F(net, no_connection_is_lost_between_an_accept_and_its_limit) {
  as_default here(rt);
  auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  const int total = scale(500, 50);
  auto client = rt.spawn([&]() -> task<> {
    for (int i = 0; i < total; ++i) {
      auto conn = (co_await tcp_conn::connect(listener.local().or_throw())).or_throw();
      bytes64 bytes;
      EXPECT_EQ((co_await conn.read_some(bytes)).or_throw(), 1u) << "it was accepted and served";
    }
  });
  rt.run([&]() -> task<> {
    for (int accepted = 0, i = 0; accepted < total; ++i) {
      auto [conn, error] = co_await timeout(listener.accept(), std::chrono::microseconds(i % 100));
      if (error) {
        EXPECT_EQ(error, net_errc::timed_out);
        continue;
      }
      ++accepted;
      EXPECT_TRUE(co_await conn.write_all("x"));
    }
  });
  client.join();
}

/// Woken by a hint it tries once more, and is done; its task is cancelled meanwhile.
struct done_when_tried_again {
  static constexpr const char* waiting_for = "a hint";
  static constexpr bool cancellable = true;
  bool start(detail::waiter& w) noexcept {
    if (std::exchange(tried, true)) {
      detail::current_job()->cancellation.fire(detail::waiter::by_cancellation);
      return false;
    }
    EXPECT_TRUE(w.claim(detail::waiter::by_hint));
    w.wake();
    return true;
  }
  void again() noexcept {}
  void withdraw() noexcept { ADD_FAILURE() << "it is done"; }
  static int finish(std::uint32_t /*winner*/) { return 7; }

  bool tried{false};
};

TEST(an_operation_that_is_tried_again, keeps_its_result_though_its_task_is_cancelled_meanwhile) {
  runtime rt({.processors = 1});
  EXPECT_EQ(rt.spawn([] { return detail::wait_on_thread<done_when_tried_again>(); }).join(), 7);
  EXPECT_EQ(rt.spawn([]() -> task<int> {
                co_return co_await detail::operation_awaiter<done_when_tried_again>();
              }).join(),
            7);
}

}  // namespace
}  // namespace verge::test
