// SPDX-License-Identifier: Apache-2.0

// The ticks that a ticker owes: how many, and of which time.

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include <timer/owed_ticks.h>

namespace verge::detail {
namespace {

TEST(owed_ticks, are_all_that_were_due_since_the_last_one) {
  owed_ticks owed;
  owed.start(100, 10);
  EXPECT_FALSE(owed.any());
  owed.add_all_until(99);
  EXPECT_FALSE(owed.any()) << "the first is due at 100";
  owed.add_all_until(125);
  for (const std::int64_t when : {100, 110, 120}) {
    ASSERT_TRUE(owed.any());
    EXPECT_EQ(owed.next(), when);
    owed.deliver_one();
  }
  EXPECT_FALSE(owed.any());
  owed.add_all_until(129);
  EXPECT_FALSE(owed.any()) << "the next is due at 130";
  owed.add_all_until(130);
  EXPECT_TRUE(owed.any()) << "at that time, not after it";
}

TEST(owed_ticks, are_not_counted_twice) {
  owed_ticks owed;
  owed.start(100, 10);
  owed.add_all_until(110);
  owed.add_all_until(110);
  owed.deliver_one();
  owed.deliver_one();
  EXPECT_FALSE(owed.any());
}

TEST(owed_ticks, can_be_one_however_many_were_due) {
  owed_ticks owed;
  owed.start(100, 10);
  owed.owe_one();
  owed.owe_one();
  owed.deliver_one();
  EXPECT_FALSE(owed.any());
}

TEST(owed_ticks, are_forgotten_by_a_new_start) {
  owed_ticks owed;
  owed.start(100, 10);
  owed.add_all_until(200);
  owed.start(1000, 7);
  EXPECT_FALSE(owed.any());
  EXPECT_EQ(owed.next(), 1000);
  EXPECT_EQ(owed.period(), 7);
}

TEST(owed_ticks, of_a_period_without_end_stay_at_the_last_time) {
  constexpr std::int64_t last = std::numeric_limits<std::int64_t>::max();
  owed_ticks owed;
  owed.start(100, last);
  owed.add_all_until(100);
  owed.deliver_one();
  EXPECT_EQ(owed.next(), last);
}

}  // namespace
}  // namespace verge::detail
