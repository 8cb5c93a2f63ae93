// The example server, from outside: with curl, with wrk, and with clients that misbehave.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <verge/net.h>
#include <verge/runtime.h>
#include <verge/time.h>
#include <verge/timeout.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include <http_server/server_process.h>
#include <support/patience.h>
#include <support/scale.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

constexpr std::string_view get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

int count(std::string_view text, std::string_view part) {
  int n = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

// ---- What it answers ----------------------------------------------------------------------------

TEST(http_server, answers_curl) {
  server_process s({});
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
  server_process s({});
  client c(s.port());
  std::string requests;
  std::string bodies;
  for (int i = 0; i < 200; ++i) {
    const std::string body = std::string("<").append(std::to_string(i)).append(">");
    requests +=
        "POST /echo HTTP/1.1\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    bodies += body;
  }
  ASSERT_TRUE(c.send(requests + "GET / HTTP/1.1\r\nConnection: close\r\n\r\n"));
  const std::string all = c.rest();
  EXPECT_EQ(count(all, "HTTP/1.1 200 OK"), 201);
  std::string seen;
  for (std::size_t at = all.find('<'); at != all.npos; at = all.find('<', at + 1))
    seen += all.substr(at, all.find('>', at) - at + 1);
  EXPECT_EQ(seen, bodies);
  EXPECT_THAT(all, testing::EndsWith("Hello, World!"));
}

TEST(http_server, answers_a_request_that_comes_byte_by_byte) {
  server_process s({});
  client c(s.port());
  for (const char byte : get) ASSERT_TRUE(c.send({&byte, 1}));
  EXPECT_THAT(c.bytes(20), StartsWith("HTTP/1.1 200 OK"));
}

// ---- What it refuses ----------------------------------------------------------------------------

struct bad_request {
  std::string what;
  std::string bytes;
  std::string status;
};

TEST(http_server, refuses_what_is_no_request_or_too_large) {
  server_process s({});
  const std::string long_text(100'000, 'a');
  std::string many;
  for (int i = 0; i < 200; ++i) many.append("X-").append(std::to_string(i)).append(": y\r\n");
  const std::vector<bad_request> all{
      {"noise", "\x16\x03\x01\x02\x00\x01\r\n\r\n", "400"},
      {"no such method", "FETCH / HTTP/1.1\r\n\r\n", "400"},
      {"no such version", "GET / HTTP/3.7.1\r\n\r\n", "400"},
      {"a header without a name", "GET / HTTP/1.1\r\n: x\r\n\r\n", "400"},
      {"two lengths", "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400"},
      {"a length that is none", "POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n", "400"},
      {"a bad chunk", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
      {"a target that is too long", "GET /" + long_text + " HTTP/1.1\r\n\r\n", "431"},
      {"a header that is too long", "GET / HTTP/1.1\r\nX: " + long_text + "\r\n\r\n", "431"},
      {"too many headers", "GET / HTTP/1.1\r\n" + many + "\r\n", "431"},
      {"a body that is too large", "POST / HTTP/1.1\r\nContent-Length: 9000000\r\n\r\nabc", "413"},
      {"a chunk that is too large",
       "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n200000\r\n" +
           std::string(0x200000, 'a'),
       "413"},
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
  EXPECT_THAT(c.bytes(20), StartsWith("HTTP/1.1 200 OK")) << "and lives on";
}

TEST(http_server, refuses_half_a_request) {
  server_process s({});
  for (const std::string_view half : {"GET / HT", "GET / HTTP/1.1\r\nHost: x\r\n",
                                      "POST /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc"}) {
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

TEST(http_server, refuses_options_that_it_does_not_know) {
  const std::string program = VERGE_HTTP_SERVER;
  EXPECT_THAT(output_of(program + " --speed 9"), HasSubstr("no option '--speed'"));
  EXPECT_THAT(output_of(program + " --port 70000"), HasSubstr("up to 65535"));
  EXPECT_THAT(output_of(program + " --engine steam"), HasSubstr("hybrid"));
  EXPECT_THAT(output_of(program + " --help"), StartsWith("usage"));
}

// ---- Deadlines ----------------------------------------------------------------------------------

TEST(http_server, cuts_off_a_client_that_trickles_its_request) {
  server_process s({"--request", "300", "--idle", "60000"});
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

TEST(http_server, pushes_the_deadline_back_with_every_request) {
  server_process s({"--idle", "1000"});
  client c(s.port());
  const auto start = steady_clock::now();
  auto asked = start;
  for (int i = 0; i < 6; ++i) {
    const auto before = std::exchange(asked, steady_clock::now());
    if (!c.send(get) || c.bytes(20).empty()) {
      // A machine that has stood still for so long has let it pass.
      EXPECT_GE(steady_clock::now() - before, 1000ms);
      return;
    }
    std::this_thread::sleep_for(250ms);  // a quarter of the idle time, all in all more than it
  }
  c.rest();
  EXPECT_GE(steady_clock::now() - asked, 1000ms);
  EXPECT_GE(steady_clock::now() - start, 2000ms);
}

TEST(http_server, closes_a_connection_whose_answers_nobody_takes) {
  server_process s({"--idle", "500"});
  client c(s.port());
  const std::string request =
      "POST /echo HTTP/1.1\r\nContent-Length: 500000\r\n\r\n" + std::string(500'000, 'a');
  while (c.send(request)) {  // until the server has had enough
  }
}

/// So many connections that have had one answer and then say nothing.
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
  server_process s({"--idle", std::to_string(idle.count())});

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
      // Spread over as long as they sit idle, as clients are.
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
  // What is left is a tenth of the rush, and the nodes that the runtime keeps for the next one.
  if (!is_sanitized) {
    EXPECT_TRUE(eventually([&] { return s.kilobytes() < kilobytes + 20'000; })) << s.kilobytes();
  }
}

TEST(http_server, takes_no_more_memory_and_no_more_descriptors_the_tenth_time) {
  server_process s({});
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
  const std::size_t kilobytes = s.kilobytes();
  for (int i = 0; i < scale(20, 5); ++i) wave();
  ASSERT_TRUE(settled()) << s.descriptors() << " instead of " << descriptors;
  if (!is_sanitized) {
    EXPECT_LT(s.kilobytes(), kilobytes + 3000);
  }
}

// ---- Load ---------------------------------------------------------------------------------------

TEST(http_server, serves_wrk_with_a_thousand_connections_without_an_error) {
  server_process s({});
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

// ---- Out of descriptors -------------------------------------------------------------------------

TEST(http_server, waits_when_it_is_out_of_descriptors_and_loses_nobody) {
  server_process s({}, 40);
  std::vector<client> all;
  for (int i = 0; i < 100; ++i) {
    all.emplace_back(s.port());
    ASSERT_TRUE(all.back().send(get));
  }
  EXPECT_TRUE(eventually([&] { return s.descriptors() >= 40; })) << s.descriptors();
  // Those that were accepted get their answer and go, and make room for the others.
  for (client& c : all) {
    EXPECT_THAT(c.bytes(20), StartsWith("HTTP/1.1 200 OK"));
    client(std::move(c));
  }
  client again(s.port());
  ASSERT_TRUE(again.send(get));
  EXPECT_THAT(again.bytes(20), StartsWith("HTTP/1.1 200 OK"));
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
  server_process s({"--request", "60000"});
  client idle(s.port());
  ASSERT_TRUE(idle.send(get));
  ASSERT_FALSE(idle.bytes(20).empty());
  client busy(s.port());
  ASSERT_TRUE(
      busy.send("POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nab"));
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
    server_process s({});
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
