// SPDX-License-Identifier: Apache-2.0

// The example servers when accept fails, for a while or forever.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include <http_server/client.h>
#include <http_server/server_process.h>
#include <support/patience.h>

namespace verge::test {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::StartsWith;

struct server_kind {
  std::string name;
  std::string program;
  std::vector<std::string> arguments;
  std::string question;
  std::string answer;
  int exit_status;
};
void PrintTo(const server_kind& k, std::ostream* to) { *to << k.name; }

/// A server whose accept fails with this error that many times.
class failing_server {
 public:
  failing_server(const server_kind& kind, int error, long times)
      : folder_(std::filesystem::temp_directory_path() /
                ("verge_accept_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "count").flush();
    start_ = steady_clock::now();
    process_.emplace(
        process_options{.program = kind.program,
                        .arguments = kind.arguments,
                        .environment = {{"LD_PRELOAD", VERGE_FAILING_ACCEPT},
                                        {"ASAN_OPTIONS", "verify_asan_link_order=0"},
                                        {"FAILING_ACCEPT_ERROR", std::to_string(error)},
                                        {"FAILING_ACCEPT_TIMES", std::to_string(times)},
                                        {"FAILING_ACCEPT_COUNT", folder_ / "count"}},
                        .exit_status = kind.exit_status,
                        .errors_into = folder_ / "errors"});
  }
  ~failing_server() {
    process_.reset();
    std::filesystem::remove_all(folder_);
  }
  failing_server(const failing_server&) = delete;
  failing_server& operator=(const failing_server&) = delete;

  std::uint16_t port() const { return process_->port(); }
  bool has_ended() { return process_->has_ended(); }
  /// How often accept has failed.
  std::uintmax_t failures() const { return std::filesystem::file_size(folder_ / "count"); }
  std::chrono::nanoseconds age() const { return steady_clock::now() - start_; }
  std::string errors() const {
    std::ifstream file(folder_ / "errors");
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path folder_;
  steady_clock::time_point start_;
  std::optional<server_process> process_;
};

class accept_fails : public testing::TestWithParam<server_kind> {};

TEST_P(accept_fails, and_it_logs_the_error_and_continues) {
  failing_server s(GetParam(), EPERM, 4);
  client c(s.port());
  ASSERT_TRUE(c.send(GetParam().question));
  EXPECT_THAT(c.bytes(GetParam().answer.size()), StartsWith(GetParam().answer));
  EXPECT_EQ(s.failures(), 4U);
  EXPECT_EQ(count(s.errors(), "accept: Operation not permitted"), 4) << s.errors();
}

// Before the n-th attempt it has waited 5 ms, 10 ms, 20 ms ... up to a second each.
TEST_P(accept_fails, forever_and_it_does_not_spin) {
  failing_server s(GetParam(), EPERM, 1'000'000'000);
  ASSERT_TRUE(eventually([&] { return s.failures() >= 6; }));
  const std::uintmax_t n = s.failures();
  const auto age = s.age();
  std::chrono::milliseconds waited{0};
  auto pause = 5ms;
  for (std::uintmax_t i = 1; i < n; ++i, pause = std::min<std::chrono::milliseconds>(2 * pause, 1s))
    waited += pause;
  EXPECT_GE(age, waited) << n << " attempts";
  EXPECT_FALSE(s.has_ended());
}

// After an error of one connection accept does not wait before the next one, unless it recurs.
TEST_P(accept_fails, with_an_error_of_one_connection_forever_and_it_does_not_spin) {
  failing_server s(GetParam(), EPROTO, 1'000'000'000);
  ASSERT_TRUE(eventually([&] { return s.failures() >= 100; }));
  const std::uintmax_t n = s.failures();
  const auto age = s.age();
  // 16 at a time, and 2 ms, 4 ms, 8 ms ... up to 200 ms in between.
  std::chrono::milliseconds waited{0};
  auto pause = 2ms;
  for (std::uintmax_t i = 16; i < n; i += 16, pause = std::min(2 * pause, 200ms)) waited += pause;
  EXPECT_GE(age, waited) << n << " attempts";
  EXPECT_FALSE(s.has_ended());
}

TEST_P(accept_fails, for_lack_of_descriptors_and_it_loses_no_client) {
  const server_kind& kind = GetParam();
  server_process s({.program = kind.program,
                    .arguments = kind.arguments,
                    .exit_status = kind.exit_status,
                    .descriptors = 40});
  std::vector<client> all;
  for (int i = 0; i < 100; ++i) {
    all.emplace_back(s.port());
    ASSERT_TRUE(all.back().send(kind.question));
  }
  EXPECT_TRUE(eventually([&] { return s.descriptors() >= 40; })) << s.descriptors();
  // Accepted clients get their answer and disconnect, which makes room for the others.
  for (client& c : all) {
    EXPECT_THAT(c.bytes(kind.answer.size()), StartsWith(kind.answer));
    client(std::move(c));
  }
}

INSTANTIATE_TEST_SUITE_P(
    servers, accept_fails,
    testing::Values(server_kind{"http_server",
                                VERGE_HTTP_SERVER,
                                {"--port", "0"},
                                std::string(get),
                                "HTTP/1.1 200 OK\r\n",
                                0},
                    server_kind{
                        "echo_server", VERGE_ECHO_SERVER, {"0"}, "hello", "hello", 1000 + SIGTERM}),
    [](const auto& i) { return i.param.name; });

}  // namespace
}  // namespace verge::test
