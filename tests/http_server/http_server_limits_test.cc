// SPDX-License-Identifier: Apache-2.0

// The example server's limits on connections and memory, and what it frees.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <http_server/client.h>
#include <http_server/server_in_process.h>
#include <http_server/server_process.h>
#include <support/patience.h>
#include <support/scale.h>

namespace verge::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

/// The complete answer to a request, however long its body is.
std::string answer_of(const client& c) {
  std::string all;
  for (std::string s = c.some(); !s.empty(); s = c.some()) {
    all += s;
    const auto body = all.find("\r\n\r\n");
    const auto length = all.find("Content-Length: ");
    if (body != all.npos &&
        all.size() == body + 4 + std::stoul(all.substr(length + 16, body - length)))
      break;
  }
  return all;
}

// ---- Memory -------------------------------------------------------------------------------------

TEST(http_server, takes_no_more_memory_and_no_more_descriptors_the_tenth_time) {
  http_server_process s;
  const auto wave = [&] {
    std::vector<client> all;
    for (int i = 0; i < 200; ++i) all.emplace_back(s.port());
    for (const client& c : all) ASSERT_TRUE(c.send(get));
    for (const client& c : all) ASSERT_THAT(c.bytes(20), StartsWith("HTTP/1.1 200"));
  };
  const std::size_t descriptors = s.descriptors();
  const auto settled = [&] { return eventually([&] { return s.descriptors() <= descriptors; }); };
  for (int i = 0; i < 5; ++i) wave();
  ASSERT_TRUE(settled()) << s.descriptors() << " instead of " << descriptors;
  // A thread that takes part for the first time brings an arena of memory with it, so it may grow
  // once or twice; with a leak it grows every time.
  bool grows = true;
  for (int attempt = 0; grows && attempt < 4; ++attempt) {
    const std::size_t kilobytes = s.kilobytes();
    for (int i = 0; i < scale(20, 5); ++i) wave();
    ASSERT_TRUE(settled()) << s.descriptors() << " instead of " << descriptors;
    grows = s.kilobytes() >= kilobytes + 3000;
  }
  if (!is_sanitized) {
    EXPECT_FALSE(grows) << "by 3,000 KB and more with each twenty waves";
  }
}

TEST(http_server, frees_the_buffers_of_idle_connections) {
  http_server_process s({"--idle", "600000"});
  const std::string body(1 << 20, 'a');
  std::vector<client> all;
  const auto echo_once = [&](const client& c) {
    ASSERT_TRUE(c.send(post(body)));
    ASSERT_GT(answer_of(c).size(), body.size());
  };
  all.emplace_back(s.port());
  echo_once(all.back());
  const std::size_t kilobytes = s.kilobytes();
  constexpr std::size_t n = 100;
  while (all.size() < n) {
    all.emplace_back(s.port());
    echo_once(all.back());
  }
  std::printf("%zu kB with one idle connection, %zu kB with %zu\n", kilobytes, s.kilobytes(), n);
  // The allocator keeps some of it, but that does not grow with their number.
  if (!is_sanitized) {
    EXPECT_TRUE(eventually([&] { return s.kilobytes() < kilobytes + 25'000; })) << s.kilobytes();
  }
}

TEST(http_server, counts_what_its_buffers_take) {
  server_in_process s({}, &echo);
  constexpr std::size_t idle = http::server::bytes_per_connection;
  const std::string request = post(std::string(500'000, 'a'));
  client c(s.port());
  ASSERT_TRUE(c.send(request.substr(0, request.size() - 1)));
  EXPECT_TRUE(eventually([&] { return s->memory() > idle + 499'000; })) << s->memory();
  EXPECT_LT(s->memory(), idle + 520'000);
  ASSERT_TRUE(c.send("a"));
  EXPECT_THAT(answer_of(c), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_TRUE(eventually([&] { return s->memory() == idle; })) << s->memory();
  c.end_of_requests();
  c.rest();
  EXPECT_TRUE(eventually([&] { return s->memory() == 0; })) << s->memory();
}

TEST(http_server, rejects_requests_that_memory_has_no_room_for_and_continues) {
  server_in_process s({.memory = 1'000'000}, &echo);
  const std::string request = post(std::string(600'000, 'a'));
  client first(s.port());
  ASSERT_TRUE(first.send(request.substr(0, request.size() - 1)));
  ASSERT_TRUE(eventually([&] { return s->memory() > 600'000; })) << s->memory();

  client second(s.port());
  second.send(request);  // the server may hang up before it has all of it
  EXPECT_THAT(second.rest(), AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("\r\nRetry-After: "),
                                   HasSubstr("\r\nConnection: close\r\n")));
  client small(s.port());
  ASSERT_TRUE(small.send(post("abc")));
  EXPECT_THAT(answer_of(small), StartsWith("HTTP/1.1 200 OK"));

  ASSERT_TRUE(first.send("a"));
  EXPECT_THAT(answer_of(first), StartsWith("HTTP/1.1 200 OK"));
  client third(s.port());
  ASSERT_TRUE(eventually([&] { return s->memory() < 100'000; })) << s->memory();
  ASSERT_TRUE(third.send(request));
  EXPECT_THAT(answer_of(third), StartsWith("HTTP/1.1 200 OK")) << "there is room again";
}

TEST(http_server, does_not_send_an_answer_that_memory_has_no_room_for) {
  server_in_process s({.memory = 1'000'000}, [](const http::request& r) {
    return http::response{.body = std::string(r.path() == "/much" ? 2'000'000 : 10, 'a')};
  });
  client c(s.port());
  ASSERT_TRUE(c.send(std::string(get) + "GET /much HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_THAT(c.rest(), AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("HTTP/1.1 503 ")));
}

// ---- Connections --------------------------------------------------------------------------------

TEST(http_server, accepts_no_more_connections_than_it_may_have_until_one_has_ended) {
  server_in_process s({.connections = 3}, &echo);
  const auto ask = [](const client& c) {
    ASSERT_TRUE(c.send(post("abc")));
    ASSERT_THAT(answer_of(c), StartsWith("HTTP/1.1 200 OK"));
  };
  std::vector<client> all;
  for (int i = 0; i < 3; ++i) {
    all.emplace_back(s.port());
    ask(all.back());
  }
  client waiting(s.port());  // in the kernel's queue
  ASSERT_TRUE(waiting.send(post("abc")));
  for (int i = 0; i < 100; ++i) ask(all[static_cast<std::size_t>(i % 3)]);
  EXPECT_EQ(s->connections(), 3U);
  EXPECT_EQ(s->open_connections(), 3U);
  all.pop_back();
  EXPECT_THAT(answer_of(waiting), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_EQ(s->open_connections(), 3U);
}

// Connections come and go at the limit, so that the last one of many often ends while the next one
// is accepted.
TEST(http_server, serves_every_client_while_it_is_full) {
  server_in_process s({.connections = 2}, &echo);
  std::vector<std::jthread> clients;
  for (int i = 0; i < 8; ++i)
    clients.emplace_back([&] {
      for (int n = 0; n < scale(500, 100); ++n) {
        client c(s.port());
        if (!c.send(post("abc"))) ADD_FAILURE() << "hung up";
        EXPECT_THAT(answer_of(c), StartsWith("HTTP/1.1 200 OK"));
      }
    });
  clients.clear();
  EXPECT_EQ(s->connections(), static_cast<std::uint64_t>(8 * scale(500, 100)));
}

TEST(http_server, ends_cleanly_while_it_is_full) {
  server_in_process s({.connections = 1}, &echo);
  client c(s.port());
  ASSERT_TRUE(c.send(post("abc")));
  ASSERT_THAT(answer_of(c), StartsWith("HTTP/1.1 200 OK"));
}

}  // namespace
}  // namespace verge::test
