// SPDX-License-Identifier: Apache-2.0

// The example server's deadlines: for the next request, for a request, for an answer.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <verge/net.h>
#include <verge/runtime.h>
#include <verge/time.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include <http_server/client.h>
#include <http_server/server_in_process.h>
#include <http_server/server_process.h>
#include <support/patience.h>
#include <support/scale.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::StartsWith;

// ---- Requests -----------------------------------------------------------------------------------

TEST(http_server, disconnects_a_client_that_sends_its_request_slowly) {
  http_server_process s({"--request", "300", "--idle", "60000"});
  const auto start = steady_clock::now();
  client c(s.port());
  ASSERT_TRUE(c.send("GET / HTTP/1.1\r\n"));
  // A header now and then: each is in time, but the request is not.
  std::string said;
  std::jthread trickle([&](std::stop_token stop) {
    while (!stop.stop_requested() && c.send("X: y\r\n")) std::this_thread::sleep_for(10ms);
  });
  said = c.rest();
  EXPECT_THAT(said, StartsWith("HTTP/1.1 408 "));
  EXPECT_GE(steady_clock::now() - start, 300ms);
}

TEST(http_server, extends_the_deadline_with_every_request) {
  http_server_process s({"--idle", "1000"});
  client c(s.port());
  const auto start = steady_clock::now();
  auto asked = start;
  for (int i = 0; i < 6; ++i) {
    const auto before = std::exchange(asked, steady_clock::now());
    if (!c.send(get) || c.bytes(20).empty()) {
      // It passes if the machine has stalled for that long.
      EXPECT_GE(steady_clock::now() - before, 1000ms);
      return;
    }
    std::this_thread::sleep_for(250ms);  // a quarter of the idle time, all in all more than it
  }
  c.rest();
  EXPECT_GE(steady_clock::now() - asked, 1000ms);
  EXPECT_GE(steady_clock::now() - start, 2000ms);
}

// Empty lines before a request are no request.
TEST(http_server, closes_an_idle_connection_that_sends_empty_lines) {
  server_in_process s({.idle = 500ms}, &echo);
  const auto start = steady_clock::now();
  client c(s.port());
  std::jthread trickle([&](std::stop_token stop) {
    while (!stop.stop_requested() && c.send("\r\n")) std::this_thread::sleep_for(10ms);
  });
  EXPECT_TRUE(eventually([&] { return s->connections() == 1 && s->open_connections() == 0; }));
  EXPECT_GE(steady_clock::now() - start, 500ms);
  trickle.request_stop();
  EXPECT_EQ(c.rest(), "") << "nothing was asked";
}

// ---- Answers ------------------------------------------------------------------------------------

constexpr std::size_t much = 40'000'000;

http::response answer_much(const http::request&) { return {.body = std::string(much, 'a')}; }

/// Requests much after a while, and reads it a few megabytes at a time, with pauses. Returns the
/// number of bytes received, and whether no step took much longer than it should: deadlines pass
/// while the machine stalls.
std::pair<std::size_t, bool> take_slowly(std::uint16_t port, std::chrono::milliseconds before,
                                         std::chrono::milliseconds pause) {
  client c(port);
  auto last = steady_clock::now();
  bool in_time = true;
  const auto rest_for = [&](std::chrono::milliseconds d) {
    std::this_thread::sleep_for(d);
    const auto now = steady_clock::now();
    in_time = in_time && now - std::exchange(last, now) < d + 300ms;
  };
  rest_for(before);
  c.send(get);
  std::size_t all = 0;
  // The connection stays open, so there is no end; but the head has more than a hundred bytes.
  while (all < much + 100) {
    const std::size_t n = c.read_away(std::min<std::size_t>(2'000'000, much + 100 - all));
    if (n == 0) break;
    all += n;
    rest_for(pause);
  }
  return {all, in_time};
}

/// The same, repeated until it was in time.
std::size_t taken_slowly(std::uint16_t port, std::chrono::milliseconds before,
                         std::chrono::milliseconds pause) {
  for (int i = 0; i < 20; ++i) {
    const auto [bytes, in_time] = take_slowly(port, before, pause);
    if (in_time || bytes > much) return bytes;
  }
  ADD_FAILURE() << "the machine stalls all the time";
  return 0;
}

// The idle time is nearly over when the request comes, and long over before the answer is sent.
TEST(http_server, gives_an_answer_its_own_deadline) {
  server_in_process s({.idle = 1500ms}, &answer_much);
  EXPECT_GT(taken_slowly(s.port(), 1000ms, 50ms), much) << "with the head";
}

// In total it takes longer than the deadline, but never that long without progress.
TEST(http_server, lets_an_answer_that_makes_progress_take_any_time) {
  server_in_process s({.write = 1500ms}, &answer_much);
  EXPECT_GT(taken_slowly(s.port(), 0ms, 200ms), much);
}

TEST(http_server, closes_a_connection_whose_answer_is_not_read) {
  server_in_process s({.write = 300ms}, &answer_much);
  const auto start = steady_clock::now();
  client c(s.port());
  ASSERT_TRUE(c.send(get));
  EXPECT_TRUE(eventually([&] { return s->connections() == 1 && s->open_connections() == 0; }));
  EXPECT_GE(steady_clock::now() - start, 300ms);
  EXPECT_LT(c.read_away(2 * much), much);
}

TEST(http_server, closes_a_connection_that_sends_requests_and_reads_nothing) {
  http_server_process s({"--write", "300"});
  client c(s.port());
  const std::string request = post(std::string(500'000, 'a'));
  while (c.send(request)) {  // until the server closes it
  }
}

// ---- Many connections ---------------------------------------------------------------------------

/// Connections that have received one answer and then stay silent.
struct idle_figures {
  int early{0};
  int closed{0};
  std::vector<double> late_ms;
};

task<> sit_idle(endpoint to, std::chrono::milliseconds idle, idle_figures& all, std::mutex& lock) {
  auto conn = (co_await tcp_conn::connect(to)).or_throw();
  std::array<char, 512> bytes;
  const auto asked = clock::now();
  (co_await conn.write_all(get)).or_throw();
  (co_await conn.read_some(bytes)).or_throw();
  const auto answered = clock::now();
  const auto [n, error] = co_await conn.read_some(bytes);
  const auto closed = clock::now();
  const std::lock_guard held(lock);
  all.closed += error == net_errc::end_of_stream;
  all.early += closed - asked < idle;
  all.late_ms.push_back(
      std::chrono::duration<double, std::milli>(closed - answered - idle).count());
}

TEST(http_server, closes_ten_thousand_idle_connections_each_on_time) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const int wanted = scale(10'000, 500);
  const int n = std::min(wanted, static_cast<int>(std::min<rlim_t>(limit.rlim_max, 100'000)) - 100);
  const auto idle = scale(3000ms, 1000ms);
  http_server_process s({"--idle", std::to_string(idle.count())});

  const auto ask_once = [&] {
    client c(s.port());
    EXPECT_TRUE(c.send(get));
    EXPECT_FALSE(c.bytes(20).empty());
  };
  const std::size_t descriptors = s.descriptors();
  ask_once();
  ASSERT_TRUE(eventually([&] { return s.descriptors() <= descriptors; })) << s.descriptors();
  const std::size_t kilobytes = s.kilobytes();

  idle_figures all;
  std::mutex lock;
  std::size_t at_most = 0;
  {
    runtime rt({.processors = 2});
    rt.run([&]() -> task<> {
      std::vector<join_handle<>> clients;
      // Spread over the idle time, like real clients.
      for (int i = 0; i < n; ++i) {
        clients.push_back(go(sit_idle(endpoint::loopback(s.port()), idle, all, lock)));
        if (i % 10 == 9) co_await verge::sleep(10 * idle / n);
      }
      at_most = s.kilobytes();
      for (auto& c : clients) co_await c;
    });
  }
  std::sort(all.late_ms.begin(), all.late_ms.end());
  const auto quantile = [&](double q) {
    return all.late_ms[static_cast<std::size_t>(q * static_cast<double>(n - 1))];
  };
  std::printf("%d idle connections, late by: p50 %.2f ms, p99 %.2f ms, most %.2f ms\n", n,
              quantile(0.5), quantile(0.99), quantile(1));
  EXPECT_EQ(all.closed, n);
  EXPECT_EQ(all.early, 0);
  EXPECT_LT(quantile(0.5), 10'000) << "ms";

  EXPECT_TRUE(eventually([&] { return s.descriptors() <= descriptors; })) << s.descriptors();
  std::printf("memory of the server: %zu kB before, %zu kB with them, %zu kB after\n", kilobytes,
              at_most, s.kilobytes());
  // What is left is a tenth of the peak, and the nodes that the runtime keeps for later.
  if (!is_sanitized) {
    EXPECT_TRUE(eventually([&] { return s.kilobytes() < kilobytes + 20'000; })) << s.kilobytes();
  }
}

}  // namespace
}  // namespace verge::test
