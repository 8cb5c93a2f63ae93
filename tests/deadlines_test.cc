// SPDX-License-Identifier: Apache-2.0

// Deadlines of a descriptor, on each engine, under a clock that the test moves: when they pass, to
// the nanosecond, and which timers are armed for them.

#include <gtest/gtest.h>
#include <net/descriptor.h>
#include <support/counting_waiter.h>
#include <support/lone_engine.h>
#include <sys/eventfd.h>
#include <verge/runtime.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

namespace verge::test {
namespace {

using detail::io_descriptor;
using detail::io_direction;

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

class deadlines : public testing::TestWithParam<engine>, public lone_engine {
 protected:
  deadlines() : lone_engine(GetParam()) {
    EXPECT_FALSE(of_->attach());
    EXPECT_TRUE(check_at(now_));
  }

  std::error_code set(io_direction d, std::int64_t when, bool precise = false) {
    return of_->set_deadline(d == io_direction::read, d == io_direction::write, when, precise);
  }
  bool has_passed(io_direction d) {
    const io_descriptor::entry e = of_->enter(d, false);
    if (e == io_descriptor::entry::entered) of_->leave(d, false, true);
    return e == io_descriptor::entry::expired;
  }
  /// Fires what is due then.
  bool check_at(std::int64_t when) {
    now_ = when;
    for (unsigned ran = 1; ran != 0;) {
      ran = engine().check_timers(0, now_, true).ran;
      if (GetParam() != verge::engine::simple_wheel)
        ran += engine().check_timers(1, now_, true).ran;
    }
    return engine().verify().empty();
  }
  /// Checks that it passes then, and not a nanosecond earlier.
  void expect_to_pass(io_direction d, std::int64_t when) {
    EXPECT_TRUE(check_at(when - 1));
    EXPECT_FALSE(has_passed(d)) << "early";
    EXPECT_TRUE(check_at(when));
    EXPECT_TRUE(has_passed(d)) << "late";
  }
  std::uint64_t armed() { return engine().counts(0).live + engine().counts(1).live; }

  const std::int64_t begin_ = now_;
  const std::shared_ptr<detail::poller> poller_ =
      std::make_shared<detail::poller>(detail::poller::wait_method::automatic);
  detail::descriptor_handle handle_ = io_descriptor::make(
      ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), {}, {.scheduler = this, .poller = poller_});
  io_descriptor* const of_ = handle_.get();
};
INSTANTIATE_TEST_SUITE_P(engines, deadlines, testing::ValuesIn(engines().begin(), engines().end()),
                         [](const auto& e) { return std::string(name_of(e.param)); });

TEST_P(deadlines, pass_at_their_time_and_can_be_set_again) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(set(io_direction::read, now_ + second));
    EXPECT_FALSE(has_passed(io_direction::read)) << "it was set anew";
    expect_to_pass(io_direction::read, now_ + second);
    EXPECT_FALSE(has_passed(io_direction::write));
    EXPECT_EQ(armed(), 0U);
  }
}

TEST_P(deadlines, that_are_moved_pass_at_the_last_time_that_they_were_given) {
  for (const std::int64_t to : {3 * second, ms, second + ms, 2 * ms}) {
    const std::int64_t begin = now_;
    EXPECT_FALSE(set(io_direction::write, begin + second));
    EXPECT_FALSE(set(io_direction::write, begin + 2 * second));
    EXPECT_FALSE(set(io_direction::write, begin + to));
    if (to > second) {
      EXPECT_TRUE(check_at(begin + second));
      EXPECT_FALSE(has_passed(io_direction::write));
    }
    expect_to_pass(io_direction::write, begin + to);
    EXPECT_TRUE(check_at(begin + 5 * second));
    EXPECT_EQ(armed(), 0U);
  }
}

TEST_P(deadlines, have_passed_at_once_if_their_time_is_now_or_was) {
  EXPECT_FALSE(set(io_direction::read, now_ + ms));
  EXPECT_FALSE(has_passed(io_direction::read));
  EXPECT_FALSE(set(io_direction::read, now_));
  EXPECT_TRUE(has_passed(io_direction::read));
  EXPECT_FALSE(set(io_direction::read, never));
  EXPECT_FALSE(has_passed(io_direction::read));
  EXPECT_FALSE(set(io_direction::write, now_ - 1));
  EXPECT_TRUE(has_passed(io_direction::write));
  EXPECT_FALSE(has_passed(io_direction::read));
}

/// No timer has a reference to the descriptor after that.
TEST_P(deadlines, end_with_the_poller) {
  EXPECT_FALSE(set(io_direction::read, now_ + second));
  EXPECT_FALSE(set(io_direction::write, now_ + second / 2));
  EXPECT_EQ(armed(), 2U);
  poller_->end();
  EXPECT_EQ(armed(), 0U);
}

TEST_P(deadlines, that_are_taken_away_do_not_pass) {
  EXPECT_FALSE(set(io_direction::read, now_ + second));
  EXPECT_FALSE(set(io_direction::write, now_ + second));
  EXPECT_FALSE(set(io_direction::read, never));
  expect_to_pass(io_direction::write, begin_ + second);
  EXPECT_FALSE(has_passed(io_direction::read));
  EXPECT_FALSE(set(io_direction::write, never));
  EXPECT_TRUE(check_at(now_ + 60 * second));
  EXPECT_FALSE(has_passed(io_direction::read) || has_passed(io_direction::write));
}

TEST_P(deadlines, of_both_directions_pass_one_by_one) {
  for (const auto& [first, last] : {std::pair(io_direction::read, io_direction::write),
                                    std::pair(io_direction::write, io_direction::read)}) {
    for (const bool last_one_first : {false, true}) {
      const std::int64_t begin = now_;
      if (last_one_first) {
        EXPECT_FALSE(set(last, begin + 2 * second));
      }
      EXPECT_FALSE(set(first, begin + second));
      EXPECT_FALSE(set(last, begin + 2 * second));
      EXPECT_EQ(armed(), last_one_first ? 2U : 1U) << "the timer of the first covers the other";
      expect_to_pass(first, begin + second);
      EXPECT_FALSE(has_passed(last));
      EXPECT_EQ(armed(), 1U);
      expect_to_pass(last, begin + 2 * second);
      EXPECT_TRUE(has_passed(first));
      EXPECT_EQ(armed(), 0U);
      EXPECT_FALSE(set(first, never) || set(last, never));
    }
  }
}

/// Which ordinary timer covers a precise deadline: one that fires early enough to arm another then.
TEST_P(deadlines, that_are_precise_are_covered_by_a_timer_ten_milliseconds_earlier) {
  EXPECT_FALSE(set(io_direction::read, now_ + second));
  EXPECT_FALSE(set(io_direction::write, now_ + second + 10 * ms, true));
  EXPECT_EQ(armed(), 1U);
  EXPECT_TRUE(check_at(begin_ + second));
  EXPECT_EQ(armed(), 1U);
  EXPECT_TRUE(check_at(begin_ + second + 10 * ms));
  EXPECT_TRUE(has_passed(io_direction::write));
  EXPECT_FALSE(set(io_direction::read, now_ + second));
  EXPECT_FALSE(set(io_direction::write, now_ + second + 9 * ms, true));
  EXPECT_EQ(armed(), 2U);
}

/// Beyond the span of a wheel in steps of a second.
TEST_P(deadlines, may_be_later_than_any_timer_of_the_engine) {
  constexpr std::int64_t far = 200 * second;
  EXPECT_FALSE(set(io_direction::read, begin_ + far));
  for (std::int64_t t = second; t < far; t += second) {
    ASSERT_TRUE(check_at(begin_ + t));
    ASSERT_FALSE(has_passed(io_direction::read)) << t;
  }
  expect_to_pass(io_direction::read, begin_ + far);
}

TEST_P(deadlines, wake_the_party_that_waits_in_their_direction_and_say_why) {
  counting_waiter reads;
  counting_waiter writes;
  detail::io_waiting read_node;
  detail::io_waiting write_node;
  for (const io_direction d : {io_direction::read, io_direction::write}) {
    ASSERT_EQ(of_->enter(d, false), io_descriptor::entry::entered);
    ASSERT_EQ(
        d == io_direction::read ? of_->wait(d, read_node, reads) : of_->wait(d, write_node, writes),
        io_descriptor::waits::waiting);
  }
  EXPECT_FALSE(set(io_direction::write, now_ + second));
  EXPECT_TRUE(check_at(now_ + second));
  EXPECT_EQ(writes.woken, 1);
  EXPECT_EQ(writes.winner(), io_descriptor::by_deadline);
  EXPECT_EQ(reads.woken, 0);
  EXPECT_FALSE(set(io_direction::read, now_));
  EXPECT_EQ(reads.woken, 1);
  EXPECT_EQ(reads.winner(), io_descriptor::by_deadline);
  EXPECT_EQ(of_->wait(io_direction::read, read_node, reads), io_descriptor::waits::expired);
  for (const io_direction d : {io_direction::read, io_direction::write}) of_->leave(d, false, true);
}

TEST_P(deadlines, end_with_the_descriptor) {
  EXPECT_FALSE(set(io_direction::read, now_ + second));
  EXPECT_FALSE(set(io_direction::write, now_ + ms));
  EXPECT_EQ(armed(), 2U);
  EXPECT_FALSE(of_->close());
  EXPECT_EQ(armed(), 0U);
  EXPECT_EQ(set(io_direction::read, now_ + second), net_errc::closed);
  EXPECT_EQ(armed(), 0U);
  handle_ = {};
  if (GetParam() != verge::engine::processor_heap) {  // its heap keeps them for a while
    EXPECT_EQ(timers().memory().nodes_live, 0U);
  }
}

}  // namespace
}  // namespace verge::test
