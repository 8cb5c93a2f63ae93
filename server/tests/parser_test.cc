// SPDX-License-Identifier: Apache-2.0

// The extensions of the protocol, as bytes; and the whole protocol in pieces of every size. What
// the original's commands mean is held to the original in differential_test.cc.

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "beanstalk/parser.h"

namespace {

using namespace verge::server;
using beanstalk::parser;

std::vector<command> parse(std::string_view bytes) {
  parser p;
  p.feed(bytes);
  std::vector<command> all;
  while (auto c = p.next()) all.push_back(std::move(*c));
  return all;
}

/// The reply, if the bytes are refused at once.
answer refusal(std::string_view bytes) {
  const auto all = parse(bytes);
  if (all.empty() || all[0].what != verb::say) return answer::done;
  return all[0].prepared.what;
}

TEST(parser, reads_a_put_with_a_key) {
  const auto all =
      parse("put-key order-7 replace 5 1800000 2500 3 attempts=4 backoff=100 dead=lost\r\nabc\r\n");
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].what, verb::put);
  const new_task& t = all[0].tasks.at(0);
  EXPECT_EQ(t.key, "order-7");
  EXPECT_EQ(t.mode, if_exists::replace);
  EXPECT_EQ(t.priority, 5U);
  EXPECT_EQ(t.delay, 1'800'000 * millisecond);
  EXPECT_EQ(t.ttr, 2500 * millisecond);
  EXPECT_EQ(t.body, "abc");
  EXPECT_EQ(t.max_attempts, 4U);
  EXPECT_EQ(t.backoff, 100 * millisecond);
  EXPECT_EQ(t.dead_letter, "lost");
}

TEST(parser, takes_a_ttr_of_zero_for_a_second) {
  EXPECT_EQ(parse("put-ms 0 0 0 0\r\n\r\n")[0].tasks[0].ttr, 1000 * millisecond);
  EXPECT_EQ(parse("put-ms 0 0 1 0\r\n\r\n")[0].tasks[0].ttr, millisecond);
  EXPECT_EQ(parse("put 0 0 0 0\r\n\r\n")[0].tasks[0].ttr, 1000 * millisecond);
}

TEST(parser, refuses_extensions_that_are_not_right) {
  for (const char* line : {"put-key",
                           "put-key k",
                           "put-key k perhaps 0 0 0 0",
                           "put-key k keep 0 0 0",
                           "put-key k keep 0 0 0 0 tries=1",
                           "put-key k keep 0 0 0 0 attempts=x",
                           "put-key k keep 0 0 0 0 attempts=4294967296",
                           "put-key k keep 0 0 0 0 dead=-x",
                           "put-ms 0 0 0",
                           "put-ms 0 4294967295001 0 0",
                           "put-batch 0",
                           "put-batch 1001",
                           "put-batch x",
                           "reserve-batch 0 0",
                           "reserve-batch 1001 0",
                           "reserve-batch 1",
                           "cancel ",
                           "cancel a b",
                           "reschedule k",
                           "reschedule k x",
                           "reschedule k 1 2"}) {
    const answer a = refusal(std::string(line) + "\r\n");
    EXPECT_TRUE(a == answer::bad_format || a == answer::unknown_command) << line;
  }
}

TEST(parser, refuses_commands_that_are_not_right) {
  for (const char* line : {"put",
                           "put 0 0 0",
                           "put 0 0 0 x",
                           "put 0 0 0 1 2",
                           "use ",
                           "use -x",
                           "watch a b",
                           "ignore ",
                           "peek ",
                           "peek x",
                           "peek 1 2",
                           "peek-ready x",
                           "delete",
                           "delete -1",
                           "release 1 2",
                           "release 1 2 3 4",
                           "bury 1",
                           "bury 1 2 3",
                           "kick ",
                           "kick x",
                           "kick-job x",
                           "touch 1 2",
                           "stats-job x",
                           "stats-tube -x",
                           "statsx",
                           "list-tubesx",
                           "pause-tube",
                           "pause-tube a",
                           "pause-tube -a 1",
                           "pause-tube a x",
                           "pause-tube a 1 2",
                           "reserve-with-timeout -1",
                           "reserve-job x",
                           "reservex",
                           "drain maybe"}) {
    const answer a = refusal(std::string(line) + "\r\n");
    EXPECT_TRUE(a == answer::bad_format || a == answer::unknown_command) << line;
  }
}

TEST(parser, takes_lines_up_to_the_longest_and_no_longer) {
  const std::string longest(beanstalk::longest_line - 2, 'x');
  EXPECT_EQ(refusal(longest + "\r\n"), answer::unknown_command);
  // As the original: its first part is dropped, and what is left is up to the next end of a line.
  EXPECT_EQ(refusal(longest + "x\r\n\r\n"), answer::bad_format);
}

TEST(parser, reads_a_batch_of_puts) {
  const auto all =
      parse("put-batch 2\r\n1 0 1000 1\r\na\r\n2 5 1000 2 attempts=3\r\nbb\r\nuse x\r\n");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].what, verb::put_many);
  ASSERT_EQ(all[0].tasks.size(), 2U);
  EXPECT_EQ(all[0].tasks[0].body, "a");
  EXPECT_EQ(all[0].tasks[0].priority, 1U);
  EXPECT_EQ(all[0].tasks[1].priority, 2U);
  EXPECT_EQ(all[0].tasks[1].delay, 5 * millisecond);
  EXPECT_EQ(all[0].tasks[1].body, "bb");
  EXPECT_EQ(all[0].tasks[1].max_attempts, 3U);
  EXPECT_EQ(all[1].what, verb::use);
}

TEST(parser, drops_the_body_of_a_put_that_is_too_big) {
  parser p(10);
  p.feed("put 0 0 0 11\r\nelevenbytes\r\nuse x\r\n");
  EXPECT_EQ(p.next()->prepared.what, answer::too_big);
  EXPECT_EQ(p.next()->what, verb::use);
}

/// However the bytes arrive, the commands are the same.
TEST(parser, does_not_depend_on_how_bytes_arrive) {
  const std::string bytes =
      "put 1 2 3 5\r\nab\r\nc\r\nput-batch 2\r\n1 0 1 0\r\n\r\n1 0 1 1\r\nx\r\nbad line\r\n" +
      std::string(400, 'y') +
      "\r\nreserve-batch 5 10\r\nput 1 2 3 2\r\nabXXuse t\r\ncancel k\r\nquit\r\n";
  const auto whole = parse(bytes);
  ASSERT_GT(whole.size(), 6U);
  for (std::size_t size = 1; size <= bytes.size(); ++size) {
    parser p;
    std::vector<command> all;
    for (std::size_t at = 0; at < bytes.size(); at += size) {
      p.feed(std::string_view(bytes).substr(at, size));
      while (auto c = p.next()) all.push_back(std::move(*c));
    }
    ASSERT_EQ(all.size(), whole.size()) << "in pieces of " << size;
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].what, whole[i].what);
      EXPECT_EQ(all[i].number, whole[i].number);
      EXPECT_EQ(all[i].text, whole[i].text);
      EXPECT_EQ(all[i].prepared.what, whole[i].prepared.what);
      ASSERT_EQ(all[i].tasks.size(), whole[i].tasks.size());
      for (std::size_t k = 0; k < all[i].tasks.size(); ++k) {
        EXPECT_EQ(all[i].tasks[k].body, whole[i].tasks[k].body);
      }
    }
    EXPECT_TRUE(p.has_quit());
  }
}

}  // namespace
