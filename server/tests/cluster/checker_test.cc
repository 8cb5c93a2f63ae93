// SPDX-License-Identifier: Apache-2.0

// The checker finds what it is for, and nothing else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checker.h"

namespace {

using namespace verge::cluster_test;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

operation put(std::int64_t begin, std::int64_t delay = 0) {
  return {.what = act::put,
          .outcome = result::done,
          .begin = begin,
          .end = begin + 2,
          .id = 7,
          .key = "k",
          .lease = "",
          .delay = delay,
          .ttr = 100,
          .body = "b"};
}
operation hand_out(std::int64_t begin, std::string lease, bool at_the_end = false) {
  return {.what = act::hand_out,
          .outcome = result::done,
          .begin = begin,
          .end = begin + 2,
          .id = 7,
          .key = "k",
          .lease = std::move(lease),
          .delay = 0,
          .ttr = 0,
          .body = "b",
          .at_the_end = at_the_end};
}
operation on(act what, std::int64_t begin, std::string lease, result r = result::done) {
  return {.what = what,
          .outcome = r,
          .begin = begin,
          .end = begin + 2,
          .id = 7,
          .key = "k",
          .lease = std::move(lease),
          .delay = 0,
          .ttr = 0,
          .body = ""};
}

TEST(checker, has_nothing_against_a_history_that_is_right) {
  EXPECT_THAT(check({put(0), hand_out(5, "a"), on(act::ack, 10, "a")}), IsEmpty());
  EXPECT_THAT(check({put(0), hand_out(5, "a"), hand_out(110, "b"), on(act::ack, 115, "b")}),
              IsEmpty());
  EXPECT_THAT(check({put(0), hand_out(5, "a", true)}), IsEmpty());
  EXPECT_THAT(check({put(0), hand_out(5, "a"), on(act::release, 10, "a"), hand_out(11, "b"),
                     on(act::ack, 20, "b")}),
              IsEmpty());
}
TEST(checker, finds_a_task_that_was_lost) {
  EXPECT_THAT(check({put(0)}), ElementsAre(StartsWith("lost")));
  EXPECT_THAT(check({put(0), hand_out(5, "a")}), ElementsAre(StartsWith("lost")));
  EXPECT_THAT(check({put(0), hand_out(5, "a"), on(act::ack, 9, "a", result::unknown)}), IsEmpty());
}
TEST(checker, compares_with_what_the_database_has) {
  EXPECT_THAT(check({put(0), hand_out(5, "a")}, {7}), IsEmpty());
  EXPECT_THAT(check({put(0), hand_out(5, "a")}, {8}), ElementsAre(StartsWith("lost")));
  const std::vector<operation> removed{put(0), hand_out(5, "a"), on(act::ack, 10, "a")};
  EXPECT_THAT(check(removed, {}), IsEmpty());
  EXPECT_THAT(check(removed, {7}), ElementsAre(StartsWith("there")));
  const std::vector<operation> perhaps{put(0), on(act::cancel, 10, "", result::unknown)};
  EXPECT_THAT(check(perhaps, {}), IsEmpty());
  EXPECT_THAT(check(perhaps, {7}), IsEmpty());
}
TEST(checker, finds_a_task_that_is_handed_out_after_its_removal) {
  EXPECT_THAT(check({put(0), hand_out(5, "a"), on(act::ack, 10, "a"), hand_out(200, "b")}),
              ElementsAre(StartsWith("again")));
  EXPECT_THAT(check({put(0), on(act::cancel, 4, ""), hand_out(7, "b")}),
              ElementsAre(StartsWith("again")));
  EXPECT_THAT(check({put(0), on(act::cancel, 4, ""), hand_out(5, "b")}), IsEmpty())
      << "they overlap";
}
TEST(checker, finds_two_leases_at_once) {
  EXPECT_THAT(check({put(0), hand_out(5, "a"), hand_out(50, "b"), on(act::ack, 200, "b")}),
              ElementsAre(StartsWith("two")));
  EXPECT_THAT(check({put(0), hand_out(5, "a"), on(act::touch, 90, "a"), hand_out(150, "b"),
                     on(act::ack, 160, "b")}),
              ElementsAre(StartsWith("two")));
}
TEST(checker, finds_two_leases_though_one_took_long_to_be_handed_out) {
  operation slow = hand_out(5, "a");
  slow.end = 60;
  EXPECT_THAT(check({put(0), slow, hand_out(20, "b"), on(act::ack, 30, "b")}),
              ElementsAre(StartsWith("two")))
      << "before it, the other was valid; after it, the task was removed";
  EXPECT_THAT(
      check({put(0), slow, hand_out(20, "b"), on(act::release, 30, "b"), on(act::ack, 70, "a")}),
      IsEmpty())
      << "the second was released and handed out as the first";
  EXPECT_THAT(check({put(0), slow, hand_out(110, "b"), on(act::ack, 120, "b")}), IsEmpty());
}
TEST(checker, finds_a_stale_lease_that_is_accepted) {
  EXPECT_THAT(check({put(0), hand_out(5, "a"), hand_out(110, "b"), on(act::ack, 120, "a")}),
              ElementsAre(StartsWith("stale")));
  EXPECT_THAT(check({put(0), hand_out(5, "a"), hand_out(110, "b"),
                     on(act::ack, 120, "a", result::refused), on(act::ack, 130, "b")}),
              IsEmpty());
}
TEST(checker, finds_a_task_that_is_early) {
  EXPECT_THAT(check({put(0, 50), hand_out(40, "a"), on(act::ack, 45, "a")}),
              ElementsAre(StartsWith("early")));
  operation later = on(act::reschedule, 10, "");
  later.delay = 100;
  EXPECT_THAT(check({put(0, 50), later, hand_out(60, "a"), on(act::ack, 65, "a")}),
              ElementsAre(StartsWith("early")));
}
TEST(checker, finds_a_key_that_was_not_found) {
  EXPECT_THAT(check({put(0), on(act::cancel, 5, "", result::not_found), hand_out(9, "a", true)}),
              ElementsAre(StartsWith("not found")));
}
TEST(checker, finds_an_id_that_was_given_twice_and_a_body_that_is_another) {
  operation other = put(20);
  other.key = "other";
  EXPECT_THAT(check({put(0), other, hand_out(30, "a", true)}),
              testing::Contains(StartsWith("id 7 was given twice")));
  operation wrong = hand_out(5, "a", true);
  wrong.body = "c";
  EXPECT_THAT(check({put(0), wrong}), ElementsAre(StartsWith("changed")));
}

}  // namespace
