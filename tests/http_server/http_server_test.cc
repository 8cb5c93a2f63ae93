// SPDX-License-Identifier: Apache-2.0

// The example server, from outside: with curl, with wrk, and with clients that misbehave.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include <http_server/client.h>
#include <http_server/request_table.h>
#include <http_server/server_process.h>
#include <support/output_of.h>
#include <support/patience.h>
#include <support/scale.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// ---- What it answers ----------------------------------------------------------------------------

TEST(http_server, answers_curl) {
  http_server_process s;
  const std::string curl = "curl --silent --show-error --max-time 60 ";
  EXPECT_THAT(output_of(curl + "--include " + s.url()),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("\r\nContent-Length: 13\r\n"),
                    HasSubstr("\r\n\r\nHello, World!")));
  EXPECT_THAT(output_of(curl + "--head " + s.url()),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), Not(HasSubstr("Hello"))));
  EXPECT_EQ(output_of(curl + "--data 'some text' " + s.url("/echo")), "some text");
  EXPECT_THAT(output_of(curl + "--include " + s.url("/nothing")), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(output_of(curl + "--http1.0 --include " + s.url()), HasSubstr("Connection: close"));
  EXPECT_THAT(output_of(curl + "--verbose " + s.url() + " " + s.url()),
              HasSubstr("Re-using existing connection"));
  EXPECT_EQ(output_of("head -c 900000 /dev/zero | " + curl + "--data-binary @- " + s.url("/echo") +
                      " | wc -c"),
            "900000\n")
      << "with Expect: 100-continue";
  EXPECT_EQ(output_of("head -c 900000 /dev/zero | " + curl +
                      "--header 'Transfer-Encoding: chunked' --data-binary @- " + s.url("/echo") +
                      " | wc -c"),
            "900000\n");
}

TEST(http_server, answers_requests_that_come_at_once_in_their_order) {
  http_server_process s;
  client c(s.port());
  std::string requests;
  std::string bodies;
  for (int i = 0; i < 200; ++i) {
    const std::string body = std::string("<").append(std::to_string(i)).append(">");
    requests += post(body);
    bodies += body;
  }
  ASSERT_TRUE(c.send(requests + "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  const std::string all = c.rest();
  EXPECT_EQ(count(all, "HTTP/1.1 200 OK"), 201);
  std::string seen;
  for (std::size_t at = all.find('<'); at != all.npos; at = all.find('<', at + 1))
    seen += all.substr(at, all.find('>', at) - at + 1);
  EXPECT_EQ(seen, bodies);
  EXPECT_THAT(all, testing::EndsWith("Hello, World!"));
}

TEST(http_server, answers_a_request_that_comes_byte_by_byte) {
  http_server_process s;
  client c(s.port());
  for (const char byte : get) ASSERT_TRUE(c.send({&byte, 1}));
  EXPECT_THAT(c.bytes(20), StartsWith("HTTP/1.1 200 OK"));
}

// ---- What it refuses ----------------------------------------------------------------------------

/// The status of each response in a server's output.
std::string statuses(std::string_view said) {
  std::string all;
  constexpr std::string_view mark = "HTTP/1.1 ";
  for (auto at = said.find(mark); at != said.npos; at = said.find(mark, at + 1)) {
    const std::string_view status = said.substr(at + mark.size(), 3);
    if (status != "100") all.append(all.empty() ? "" : " ").append(status);
  }
  return all;
}

TEST(http_server, answers_the_requests_of_the_table) {
  http_server_process s;
  for (const table_row& row : request_table()) {
    client c(s.port());
    c.send(row.bytes);  // the server may hang up before it has all of it
    c.end_of_requests();
    // What waits for more is an incomplete request when the stream ends.
    EXPECT_EQ(statuses(c.rest()), row.ours == "waits" ? "400" : row.ours) << row.what;
  }
}

struct bad_request {
  std::string what;
  std::string bytes;
  std::string status;
};

TEST(http_server, rejects_invalid_and_too_large_requests) {
  http_server_process s;
  const std::string long_text(100'000, 'a');
  const std::string head = "POST /echo HTTP/1.1\r\nHost: x\r\n";
  std::string many;
  for (int i = 0; i < 200; ++i) many.append("X-").append(std::to_string(i)).append(": y\r\n");
  const std::vector<bad_request> all{
      {"noise", "\x16\x03\x01\x02\x00\x01"s, "400"},
      {"a target that is too long", "GET /" + long_text + " HTTP/1.1\r\n\r\n", "431"},
      {"a header that is too long", "GET / HTTP/1.1\r\nX: " + long_text + "\r\n\r\n", "431"},
      {"too many headers", "GET / HTTP/1.1\r\n" + many + "\r\n", "431"},
      {"a body that is too large", head + "Content-Length: 9000000\r\n\r\nabc", "413"},
      {"a chunk that is too large",
       head + "Transfer-Encoding: chunked\r\n\r\n200000\r\n" + std::string(0x200000, 'a'), "413"},
      {"a request after which all is well", std::string(get) + "NONSENSE\r\n\r\n", "400"},
  };
  for (const bad_request& bad : all) {
    SCOPED_TRACE(bad.what);
    client c(s.port());
    c.send(bad.bytes);  // the server may hang up before it has all of it
    const std::string said = c.rest();
    EXPECT_THAT(said, HasSubstr("HTTP/1.1 " + bad.status + " "));
    EXPECT_THAT(said, HasSubstr("Connection: close"));
  }
  client c(s.port());
  ASSERT_TRUE(c.send(get));
  EXPECT_THAT(c.bytes(20), StartsWith("HTTP/1.1 200 OK")) << "and keeps running";
}

TEST(http_server, says_which_methods_a_page_has) {
  http_server_process s;
  client c(s.port());
  ASSERT_TRUE(
      c.send("DELETE / HTTP/1.1\r\nHost: x\r\n\r\n"
             "GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  const std::string said = c.rest();
  EXPECT_EQ(statuses(said), "405 405");
  EXPECT_THAT(said, AllOf(HasSubstr("\r\nAllow: GET, HEAD\r\n"), HasSubstr("\r\nAllow: POST\r\n")));
}

TEST(http_server, sends_100_continue_only_to_http_1_1) {
  http_server_process s;
  const std::string rest = "Host: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab";
  for (const auto& [version, n] : {std::pair("1.1", 1), std::pair("1.0", 0)}) {
    client c(s.port());
    ASSERT_TRUE(c.send(std::string("POST /echo HTTP/") + version + "\r\n" + rest));
    c.end_of_requests();
    const std::string said = c.rest();
    EXPECT_EQ(count(said, "HTTP/1.1 100 Continue\r\n\r\n"), n) << version;
    EXPECT_EQ(statuses(said), "200");
  }
}

// ---- HTTP/1.0 -----------------------------------------------------------------------------------

TEST(http_server, announces_that_it_keeps_a_connection_of_http_1_0) {
  http_server_process s;
  client c(s.port());
  const std::string keep = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
  ASSERT_TRUE(c.send(keep + keep + "GET / HTTP/1.0\r\n\r\n"));
  const std::string said = c.rest();
  EXPECT_EQ(statuses(said), "200 200 200");
  EXPECT_EQ(count(said, "\r\nConnection: keep-alive\r\n"), 2);
  EXPECT_EQ(count(said, "\r\nConnection: close\r\n"), 1);
  client modern(s.port());
  ASSERT_TRUE(modern.send(get));
  modern.end_of_requests();
  EXPECT_EQ(count(modern.rest(), "\r\nConnection:"), 0) << "the default of HTTP/1.1";
}

TEST(http_server, serves_ab_with_connections_that_are_kept) {
  http_server_process s;
  const std::string said = output_of("timeout 60 ab -k -q -n 500 -c 4 " + s.url());
  EXPECT_THAT(said, HasSubstr("Complete requests:      500\n"));
  EXPECT_THAT(said, HasSubstr("Keep-Alive requests:    500\n"));
  EXPECT_THAT(said, HasSubstr("Failed requests:        0\n"));
}

TEST(http_server, rejects_half_a_request) {
  http_server_process s;
  for (const std::string_view half :
       {"GET / HT", "GET / HTTP/1.1\r\nHost: x\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"}) {
    client c(s.port());
    ASSERT_TRUE(c.send(half));
    c.end_of_requests();
    EXPECT_THAT(c.rest(), StartsWith("HTTP/1.1 400 "));
  }
  client silent(s.port());
  silent.end_of_requests();
  EXPECT_EQ(silent.rest(), "") << "nothing was asked";
  for (int i = 0; i < 20; ++i) {
    client gone(s.port());
    ASSERT_TRUE(gone.send("GET / HT"));
  }
}

TEST(http_server, rejects_unknown_options) {
  const std::string program = VERGE_HTTP_SERVER;
  EXPECT_THAT(output_of(program + " --speed 9"), HasSubstr("no option '--speed'"));
  EXPECT_THAT(output_of(program + " --port 70000"), HasSubstr("up to 65535"));
  EXPECT_THAT(output_of(program + " --engine steam"), HasSubstr("hybrid"));
  EXPECT_THAT(output_of(program + " --help"), StartsWith("usage"));
}

// ---- Load ---------------------------------------------------------------------------------------

TEST(http_server, serves_wrk_with_a_thousand_connections_without_an_error) {
  http_server_process s;
  const std::size_t descriptors = s.descriptors();
  const int connections = scale(1000, 200);
  const std::string said =
      output_of("wrk --threads 2 --timeout 60s --duration " + std::string(scale("2s", "1s")) +
                " --connections " + std::to_string(connections) + " " + s.url());
  std::printf("%s", said.c_str());
  EXPECT_THAT(said, HasSubstr("Requests/sec"));
  EXPECT_THAT(said, Not(HasSubstr("Socket errors")));
  EXPECT_THAT(said, Not(HasSubstr("Non-2xx")));
  EXPECT_TRUE(eventually([&] { return s.descriptors() <= descriptors; })) << s.descriptors();
}

// ---- The end ------------------------------------------------------------------------------------

bool accepts(std::uint16_t port) {
  try {
    client c(port);
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

TEST(http_server, finishes_what_has_begun_when_it_is_asked_to_end) {
  http_server_process s({"--request", "60000"});
  client idle(s.port());
  ASSERT_TRUE(idle.send(get));
  ASSERT_FALSE(idle.bytes(20).empty());
  client busy(s.port());
  ASSERT_TRUE(
      busy.send("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                "Content-Length: 4\r\n\r\nab"));
  constexpr std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";
  ASSERT_EQ(busy.bytes(go_on.size()), go_on) << "now it has been received";

  s.signal(SIGTERM);
  idle.rest();
  EXPECT_TRUE(eventually([&] { return !accepts(s.port()); }));
  EXPECT_FALSE(s.has_ended()) << "one request is under way";
  ASSERT_TRUE(busy.send("cd"));
  EXPECT_THAT(busy.rest(), AllOf(StartsWith("HTTP/1.1 200 OK"), HasSubstr("Connection: close"),
                                 testing::EndsWith("abcd")));
  EXPECT_TRUE(eventually([&] { return s.has_ended(); }));
}

TEST(http_server, ends_under_load_without_an_answer_cut_short) {
  for (int round = 0; round < scale(5, 2); ++round) {
    http_server_process s;
    std::atomic<int> answered{0};
    std::vector<std::jthread> clients;
    for (int i = 0; i < 4; ++i) {
      clients.emplace_back([&] {
        try {
          for (;;) {
            client c(s.port());
            for (int n = 0; n < 50; ++n) {
              if (!c.send(get)) break;
              const std::string said = c.some();
              if (said.empty()) break;  // closed before the request was seen
              EXPECT_THAT(said, AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("Hello, World!")));
              ++answered;
            }
          }
        } catch (const std::runtime_error&) {
          // it does not listen any more
        }
      });
    }
    EXPECT_TRUE(eventually([&] { return answered > 200; }));
    EXPECT_EQ(s.end(), 0);
  }
}

}  // namespace
}  // namespace verge::test
