// SPDX-License-Identifier: Apache-2.0

// Steps of the wall clock by an hour, both ways, on a server that runs and while it does not. What
// the broker makes of them is tried in simulated time (broker_test, history_test); this is the way
// from the kernel's notice to the broker, on the real server.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "client.h"
#include "process.h"
#include "wall_clock.h"

namespace verge::crash {
namespace {

constexpr std::int64_t hour = 3'600'000'000'000;

class clock_step : public testing::Test {
 protected:
  void start() {
    server_.reset();
    server_ = std::make_unique<server_process>(place_ / "data", std::vector<std::string>{},
                                               clock_.variables());
    ASSERT_TRUE(server_->serves()) << server_->wait().error;
    c_ = std::make_unique<connection>(server_->port());
  }
  std::string put(const std::string& body, int delay) {
    c_->send("put 0 " + std::to_string(delay) + " 600 " + std::to_string(body.size()) + "\r\n" +
             body + "\r\n");
    return c_->line().value_or("");
  }
  /// The body of what is reserved within so many seconds; or the answer.
  std::string reserve(int timeout) {
    const std::string line =
        c_->ask("reserve-with-timeout " + std::to_string(timeout)).value_or("");
    if (!line.starts_with("RESERVED ")) return line;
    return c_->body(std::stoul(line.substr(line.rfind(' ') + 1))).value_or("");
  }

  scratch place_;
  wall_clock clock_{place_};
  std::unique_ptr<server_process> server_;
  std::unique_ptr<connection> c_;
};

/// Long enough for any machine; what is expected comes at once.
constexpr int long_time = 60;

TEST_F(clock_step, forward_makes_what_is_due_ready_at_once) {
  start();
  EXPECT_EQ(put("in an hour", 3600), "INSERTED 1");
  EXPECT_EQ(put("in two hours", 7200), "INSERTED 2");
  EXPECT_EQ(reserve(0), "TIMED_OUT");
  c_->send("reserve-with-timeout " + std::to_string(long_time) + "\r\n");
  connection other(server_->port());
  while (value_of(other.show("stats"), "current-waiting") != "1") {
  }
  clock_.step(hour);
  EXPECT_EQ(c_->line(), "RESERVED 1 10") << "nothing but the step wakes the server";
  EXPECT_EQ(c_->body(10), "in an hour");
  EXPECT_EQ(reserve(0), "TIMED_OUT");
  clock_.step(hour);
  EXPECT_EQ(reserve(long_time), "in two hours");
}

TEST_F(clock_step, back_leaves_what_is_ready_and_delays_the_rest) {
  start();
  EXPECT_EQ(put("soon", 1), "INSERTED 1");
  EXPECT_EQ(put("later", 1800), "INSERTED 2");
  while (c_->ask("peek-ready") == "NOT_FOUND") {
  }
  EXPECT_EQ(c_->body(4), "soon");
  clock_.step(-hour);
  EXPECT_EQ(put("in half an hour", 1800), "INSERTED 3");
  for (const bool crashes : {false, true}) {
    if (crashes) {
      server_->kill();
      start();
    }
    EXPECT_EQ(c_->ask("peek-ready"), "FOUND 1 4");
    EXPECT_EQ(c_->body(4), "soon");
    EXPECT_EQ(c_->ask("peek-delayed"), "FOUND 3 15");
    EXPECT_EQ(c_->body(15), "in half an hour");
  }
  EXPECT_EQ(reserve(0), "soon");
  EXPECT_EQ(reserve(0), "TIMED_OUT");
  clock_.step(hour / 2);
  EXPECT_EQ(reserve(long_time), "in half an hour");
  EXPECT_EQ(reserve(0), "TIMED_OUT");
  clock_.step(hour);
  EXPECT_EQ(reserve(long_time), "later");
}

/// Ahead by an hour while something is due, then right again, then a crash: nothing is early.
TEST_F(clock_step, forward_and_back_makes_nothing_early_after_a_crash) {
  start();
  EXPECT_EQ(put("first", 3000), "INSERTED 1");
  clock_.step(hour);
  EXPECT_EQ(reserve(long_time), "first");
  EXPECT_EQ(c_->ask("delete 1"), "DELETED");
  clock_.step(-hour);
  EXPECT_EQ(put("second", 1800), "INSERTED 2");
  server_->kill();
  start();
  EXPECT_EQ(reserve(0), "TIMED_OUT");
  EXPECT_EQ(c_->ask("peek-delayed"), "FOUND 2 6");
}

}  // namespace
}  // namespace verge::crash
