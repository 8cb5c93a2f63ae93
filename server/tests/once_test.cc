// SPDX-License-Identifier: Apache-2.0

// Commands that come twice, in the broker: executed once, for a day, whatever crashes.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "support/lab.h"

namespace {

using namespace verge::server;
using namespace verge::server::test;
using namespace std::chrono_literals;

class a_repeated_command : public testing::Test {
 protected:
  std::string put(const std::string& key, const std::string& print) {
    command c(verb::put);
    c.tube = "t";
    c.tasks.emplace_back().ttr = 1'000'000'000;
    c.once = std::make_shared<const once_key>(once_key{.key = key, .print = print});
    lab_.run(client_, c);
    return client_->heard();
  }
  void restart() {
    lab_.restart();
    client_ = lab_.connect();
  }

  lab lab_;
  std::shared_ptr<recording_client> client_{lab_.connect()};
};

/// A kick of so many tasks that it takes several rounds.
TEST_F(a_repeated_command, is_answered_as_the_first_one_that_took_long) {
  for (int i = 0; i < 5000; ++i) lab_.say(client_, "put 0 1000 60 1\r\nx\r\n");
  command c(verb::kick, 4500);
  c.once = std::make_shared<const once_key>(once_key{.key = "k", .print = "1"});
  lab_.run(client_, c);
  EXPECT_EQ(client_->heard(), "KICKED 4500\r\n");
  restart();
  lab_.run(client_, c);
  EXPECT_EQ(client_->heard(), "KICKED 4500\r\n");
  lab_.run(client_, command(verb::kick, 4500));
  EXPECT_EQ(client_->heard(), "KICKED 500\r\n");
}

TEST_F(a_repeated_command, gets_the_first_reply_also_after_a_crash) {
  EXPECT_EQ(put("a", "1"), "INSERTED 1\r\n");
  EXPECT_EQ(put("a", "1"), "INSERTED 1\r\n");
  EXPECT_EQ(put("b", "1"), "INSERTED 2\r\n");
  restart();
  EXPECT_EQ(put("a", "1"), "INSERTED 1\r\n");
  EXPECT_EQ(put("b", "1"), "INSERTED 2\r\n");
  EXPECT_EQ(put("a", "2"), "DENIED\r\n") << "another request with the same key";
}

TEST_F(a_repeated_command, is_a_new_one_after_a_day) {
  EXPECT_EQ(put("a", "1"), "INSERTED 1\r\n");
  lab_.pass(23h);
  EXPECT_EQ(put("b", "1"), "INSERTED 2\r\n");
  EXPECT_EQ(put("a", "1"), "INSERTED 1\r\n");
  restart();
  lab_.pass(1h);
  EXPECT_NE(put("a", "1"), "INSERTED 1\r\n");
  EXPECT_EQ(put("b", "1"), "INSERTED 2\r\n");
  EXPECT_EQ(lab_.disk().recover().notes.size(), 2U) << "what has expired is not on disk either";
}

TEST_F(a_repeated_command, may_be_sent_again_if_it_was_refused) {
  lab_.run(client_, command(verb::drain, 1));
  client_->heard();
  EXPECT_EQ(put("a", "1"), "DRAINING\r\n");
  lab_.run(client_, command(verb::drain, 0));
  client_->heard();
  EXPECT_EQ(put("a", "1"), "INSERTED 1\r\n");
}

}  // namespace
