// SPDX-License-Identifier: Apache-2.0

// due_run alone, against std::sort; and in a timer_wheel, where it must not show but in the time
// that it takes: the order, what is first, what is moved, and what happens without memory.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include <verge/detail/due_run.h>
#include <verge/detail/timer_wheel.h>

namespace verge::test {
namespace {
bool out_of_memory = false;
bool may_allocate() noexcept { return !out_of_memory; }
}  // namespace
}  // namespace verge::test

#include <support/replaced_new.h>

namespace verge::detail {
namespace {

constexpr std::int64_t start = 5'000'000'000;

using times = std::vector<std::int64_t>;

/// The times in the order in which the run returns them. Each must come with its own name.
times taken_from(due_run& run, const times& gathered) {
  times out;
  while (!run.empty()) {
    const due_run::entry e = run.front();
    EXPECT_EQ(e.when, run.first());
    EXPECT_EQ(e.when, gathered.at(e.id)) << "an entry has the name of another";
    EXPECT_EQ(e.token, e.id % 7);
    EXPECT_EQ(run.size(), gathered.size() - out.size());
    out.push_back(e.when);
    run.pop();
  }
  EXPECT_EQ(run.size(), 0U);
  EXPECT_EQ(run.first(), std::numeric_limits<std::int64_t>::max());
  return out;
}

void gather(due_run& run, const times& all) {
  for (std::uint32_t i = 0; i < all.size(); ++i) run.gather(all[i], i, i % 7);
}

/// n times in a slot of that size, both ends of it among them. `step`: they are multiples of that.
times random_times(unsigned seed, std::size_t n, unsigned bits, std::int64_t step = 1) {
  std::mt19937_64 random(seed);
  const std::uint64_t span = std::uint64_t{1} << bits;
  times all;
  for (std::size_t i = 0; i < n; ++i) {
    const auto off = static_cast<std::int64_t>(random() % span);
    all.push_back(start + off / step * step);
  }
  if (n > 0) all[n / 2] = start + static_cast<std::int64_t>(span) - 1;
  if (n > 1) all[n / 3] = start;
  return all;
}

TEST(due_run, returns_what_was_gathered_in_order) {
  due_run run;
  for (const unsigned bits : {1U, 8U, 9U, 16U, 22U, 28U, 34U, 54U}) {
    for (const std::size_t n : {0U, 1U, 2U, 31U, 64U, 255U, 256U, 257U, 1023U, 1024U}) {
      SCOPED_TRACE(testing::Message() << n << " entries of " << bits << " bits");
      times all = random_times(bits, n, bits);
      ASSERT_TRUE(run.begin(start, bits, n));
      gather(run, all);
      EXPECT_TRUE(run.empty()) << "nothing is seen of it before it is sorted";
      EXPECT_EQ(run.first(), std::numeric_limits<std::int64_t>::max());
      EXPECT_EQ(run.size(), n);
      run.sort();
      const times out = taken_from(run, all);
      std::sort(all.begin(), all.end());
      EXPECT_EQ(out, all);
    }
  }
}

TEST(due_run, is_right_if_digits_are_alike) {
  due_run run;
  for (const std::int64_t step : {std::int64_t{1} << 8, std::int64_t{1} << 16,
                                  std::int64_t{1} << 21, std::int64_t{1} << 22}) {
    times all = random_times(1, 300, 22, step);
    ASSERT_TRUE(run.begin(start, 22, all.size()));
    gather(run, all);
    run.sort();
    const times out = taken_from(run, all);
    std::sort(all.begin(), all.end());
    EXPECT_EQ(out, all) << "multiples of " << step;
  }
}

TEST(due_run, refuses_what_does_not_fit) {
  due_run run;
  EXPECT_FALSE(run.begin(start, 16, due_run::limit + 1));
  EXPECT_FALSE(run.begin(start, 55, 10)) << "a key has 54 bits of time";
  EXPECT_EQ(run.bytes(), 0U);
  EXPECT_TRUE(run.begin(start, 54, due_run::limit));
  EXPECT_GE(run.bytes(), due_run::limit * 24U);
  run.release();
  EXPECT_EQ(run.bytes(), 0U);
}

TEST(due_run, has_its_old_memory_if_there_is_no_more) {
  due_run run;
  const times all = random_times(1, 16, 16);
  ASSERT_TRUE(run.begin(start, 16, all.size()));
  test::out_of_memory = true;
  const bool more = run.begin(start, 16, 100);
  const bool as_many = run.begin(start, 16, all.size());
  test::out_of_memory = false;
  EXPECT_FALSE(more);
  ASSERT_TRUE(as_many);
  gather(run, all);
  run.sort();
  EXPECT_EQ(taken_from(run, all).size(), all.size());
}

TEST(due_run, gives_its_last_entries_back_sorted_or_not) {
  for (const bool sorted : {false, true}) {
    due_run run;
    const times all = random_times(3, 40, 16);
    ASSERT_TRUE(run.begin(start, 16, all.size()));
    gather(run, all);
    if (sorted) run.sort();
    std::vector<bool> seen(all.size());
    for (std::size_t left = all.size(); left != 0; --left) {
      ASSERT_EQ(run.size(), left);
      const due_run::entry e = run.back();
      EXPECT_EQ(e.when, all.at(e.id));
      EXPECT_FALSE(seen[e.id]);
      seen[e.id] = true;
      run.drop_back();
      if (sorted && left > 1) {
        EXPECT_EQ(run.first(), *std::min_element(all.begin(), all.end()));
      }
    }
    EXPECT_TRUE(run.empty());
    EXPECT_EQ(run.first(), std::numeric_limits<std::int64_t>::max());
  }
}

// ---- in a wheel ----

struct chunks {
  void* allocate() noexcept { return std::malloc(504); }
  void free(void* p) noexcept { std::free(p); }
};
using wheel_type = timer_wheel<chunks>;

constexpr unsigned all_steps = std::numeric_limits<unsigned>::max();

/// A wheel whose timers are due at the times that are given, by id.
struct wheel_and_times {
  wheel_type wheel;
  times due;

  std::uint32_t add(std::int64_t when) {
    const auto id = static_cast<std::uint32_t>(due.size());
    due.push_back(when);
    wheel.insert(when, id, 0);
    return id;
  }
  void add_all(const times& all) {
    for (const std::int64_t when : all) add(when);
  }
  /// Takes what is due at `now`, until so many are left.
  times take(std::int64_t now, std::size_t left = 0) {
    times out;
    unsigned steps = all_steps;
    while (wheel.size() != left && wheel.ready(now, *this, steps)) {
      const auto head = wheel.front();
      EXPECT_EQ(wheel.first(), head.when);
      wheel.pop();
      EXPECT_EQ(wheel.describe_violation(), "");
      if (due[head.id] > head.when) {
        wheel.insert(due[head.id], head.id, head.token);
      } else {
        out.push_back(head.when);
      }
    }
    return out;
  }

  // What the wheel asks.
  static void prefetch(std::uint32_t) {}
  std::int64_t when(std::uint32_t id, std::uint32_t) const { return due[id]; }
  bool stale(std::uint32_t id, std::uint32_t) const { return due[id] == 0; }
};

constexpr unsigned level_0 = 16;
constexpr unsigned level_1 = 22;
/// A slot of level 1 begins here, and the wheel starts at 0.
constexpr std::int64_t slot = std::int64_t{3} << level_1;

/// n times in that slot.
times in_slot(std::size_t n) {
  times all = random_times(9, n, level_1);
  for (std::int64_t& t : all) t += slot - start;
  return all;
}

times sorted(times all) {
  std::sort(all.begin(), all.end());
  return all;
}

TEST(overdue_slot, is_sorted_once_and_not_by_the_heap) {
  for (const std::size_t n : {31U, 32U, 500U, 1024U, 1025U, 3000U}) {
    SCOPED_TRACE(n);
    wheel_and_times w;
    const times all = in_slot(n);
    w.add_all(all);
    const std::int64_t over = slot + (std::int64_t{1} << level_1);
    unsigned steps = all_steps;
    ASSERT_TRUE(w.wheel.ready(over, w, steps));
    // It is in the memory of the run, not in slots of the lowest level.
    EXPECT_EQ(w.wheel.near_size() == n && w.wheel.used(0) == 0, n <= due_run::limit);
    EXPECT_EQ(w.take(over), sorted(all));
    EXPECT_TRUE(w.wheel.empty());
  }
}

TEST(overdue_slot, is_not_sorted_ahead_of_its_end) {
  wheel_and_times w;
  w.add_all(in_slot(500));
  unsigned steps = all_steps;
  ASSERT_TRUE(w.wheel.ready(slot + (std::int64_t{1} << level_1) - 1, w, steps));
  EXPECT_NE(w.wheel.used(0), 0U);
}

/// An earlier one, one in the middle, one that is the last, one at the same time as another.
TEST(overdue_slot, lets_timers_that_come_meanwhile_have_their_place) {
  wheel_and_times w;
  times all = sorted(in_slot(400));
  w.add_all(all);
  const std::int64_t over = slot + (std::int64_t{1} << level_1);
  times out = w.take(over, 300);
  ASSERT_EQ(out.size(), 100U);
  for (const std::int64_t late : {all[150] + 1, all[100], over - 1, all[399] + 1}) {
    w.add(late);
    all.push_back(late);
  }
  const std::int64_t earlier = all[0];
  w.add(earlier);
  out.push_back(earlier);
  const times rest = w.take(over);
  EXPECT_EQ(rest.front(), earlier) << "the earliest is first, whenever it was started";
  out.insert(out.end(), rest.begin() + 1, rest.end());
  all.push_back(earlier);
  EXPECT_EQ(sorted(out), sorted(all));
  EXPECT_TRUE(std::is_sorted(rest.begin(), rest.end()));
}

/// While it is gathered, step by step, its timers count as waiting in the slot.
TEST(overdue_slot, is_seen_while_it_is_gathered) {
  wheel_and_times w;
  const times all = in_slot(1000);
  w.add_all(all);
  const std::int64_t over = slot + (std::int64_t{1} << level_1);
  for (unsigned calls = 1;; ++calls) {
    ASSERT_LE(calls, 20U);
    unsigned steps = 1;
    const bool ready = w.wheel.ready(over, w, steps);
    ASSERT_EQ(w.wheel.describe_violation(), "");
    ASSERT_LE(w.wheel.first(), sorted(all).front()) << "a thread would sleep past the first";
    ASSERT_EQ(w.wheel.size(), all.size());
    if (ready) break;
  }
  EXPECT_EQ(w.take(over), sorted(all));
}

/// Timers that were stopped, and put off: within the slot, and past its end.
TEST(overdue_slot, keeps_no_timer_that_is_not_due) {
  wheel_and_times w;
  const times all = in_slot(600);
  w.add_all(all);
  const std::int64_t end = slot + (std::int64_t{1} << level_1);
  times expected;
  for (std::uint32_t id = 0; id < all.size(); ++id) {
    if (id % 4 == 0) w.due[id] = 0;
    if (id % 4 == 1) w.due[id] = std::max(all[id], end - 1 - id);
    if (id % 4 == 2) w.due[id] = end + id;
    if (id % 2 == 1) expected.push_back(w.due[id]);
  }
  EXPECT_EQ(w.take(end, 150), sorted(expected));
  EXPECT_EQ(w.wheel.size(), 150U) << "those that were put off past the end";
  EXPECT_GE(w.wheel.first(), end);
  EXPECT_EQ(w.take(end + 1000).size(), 150U);
}

TEST(overdue_slot, is_given_to_another_wheel_sorted_or_half_gathered) {
  const std::int64_t over = slot + (std::int64_t{1} << level_1);
  for (const unsigned steps_first : {1U, 3U, all_steps}) {
    for (const std::size_t about : {1U, 100U, 10'000U}) {
      SCOPED_TRACE(testing::Message() << steps_first << " steps, " << about << " at a time");
      wheel_and_times w;
      const times all = in_slot(700);
      w.add_all(all);
      unsigned steps = steps_first;
      w.wheel.ready(over, w, steps);
      wheel_and_times to;
      to.due = w.due;
      while (!w.wheel.empty()) {
        ASSERT_TRUE(w.wheel.give(to.wheel, about));
        ASSERT_EQ(w.wheel.describe_violation(), "");
        ASSERT_EQ(w.wheel.size() + to.wheel.size(), all.size());
      }
      EXPECT_EQ(w.wheel.first(), 0);
      EXPECT_EQ(to.take(over), sorted(all));
      // The wheel that gave them away is as good as new.
      w.add_all(all);
      EXPECT_EQ(w.take(over), sorted(all));
    }
  }
}

TEST(overdue_slot, is_shown_when_the_wheel_is_cleared) {
  for (const unsigned steps_first : {1U, all_steps}) {
    wheel_and_times w;
    w.add_all(in_slot(700));
    unsigned steps = steps_first;
    w.wheel.ready(slot + (std::int64_t{1} << level_1), w, steps);
    std::vector<bool> seen(700);
    w.wheel.clear([&](std::uint32_t id, std::uint32_t) {
      EXPECT_FALSE(seen[id]);
      seen[id] = true;
    });
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 700);
    EXPECT_TRUE(w.wheel.empty());
    EXPECT_EQ(w.wheel.near_size(), 0U);
    EXPECT_EQ(w.wheel.first(), 0);
    w.add(slot);
    EXPECT_EQ(w.take(slot), times{slot});
  }
}

/// Without memory for the run the timers take the way through levels and heap.
TEST(overdue_slot, comes_in_order_without_memory_for_the_run) {
  wheel_and_times w;
  const times all = in_slot(500);
  w.add_all(all);
  for (int i = 0; i < 600; ++i) w.add(1);  // the heap has room for as many
  EXPECT_EQ(w.take(1, 500).size(), 600U);
  const std::int64_t over = slot + (std::int64_t{1} << level_1);
  test::out_of_memory = true;
  unsigned steps = all_steps;
  const bool ready = w.wheel.ready(over, w, steps);
  test::out_of_memory = false;
  ASSERT_TRUE(ready);
  EXPECT_EQ(w.take(over), sorted(all));
}

TEST(overdue_slot, leaves_its_memory_to_the_next_and_a_sweep_returns_it) {
  wheel_and_times w;
  const times all = in_slot(500);
  w.add_all(all);
  const std::int64_t over = slot + (std::int64_t{1} << level_1);
  const std::size_t before = w.wheel.bytes();
  w.take(over, 100);
  while (!w.wheel.sweep(w, 100)) {
  }
  EXPECT_EQ(w.take(over).size(), 100U) << "a sweep keeps what is in the run";
  const std::size_t kept = w.wheel.bytes();
  while (!w.wheel.sweep(w, 100)) {
  }
  EXPECT_LE(w.wheel.bytes() + 500U * 24, kept);
  EXPECT_LT(w.wheel.bytes(), before);
}

/// The lowest level's slots, one after the other.
TEST(overdue_slot, of_the_lowest_level_is_sorted_too) {
  wheel_and_times w;
  times all;
  for (std::int64_t block = 2; block < 60; ++block) {
    for (const std::int64_t t : random_times(static_cast<unsigned>(block), 65, level_0)) {
      all.push_back(t - start + (block << level_0));
    }
  }
  w.add_all(all);
  EXPECT_EQ(w.take(std::int64_t{60} << level_0), sorted(all));
}

}  // namespace
}  // namespace verge::detail
