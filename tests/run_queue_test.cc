// SPDX-License-Identifier: Apache-2.0

// The local run queue: order, overflow, stealing, and that nothing is lost or run twice while
// thieves steal.

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <sched/run_queue.h>
#include <support/scale.h>

namespace verge::detail {
namespace {

/// A runnable that knows its number and how often it was taken.
struct numbered : runnable {
  int number{0};
  std::atomic<int> taken{0};
};

int number_of(const runnable* r) {
  return r == nullptr ? -1 : static_cast<const numbered*>(r)->number;
}

class run_queue_test : public testing::Test {
 protected:
  runnable& item(int i) {
    while (static_cast<int>(items_.size()) <= i) {
      items_.push_back(std::make_unique<numbered>());
      items_.back()->number = static_cast<int>(items_.size()) - 1;
    }
    return *items_[static_cast<std::size_t>(i)];
  }
  void fill(run_queue& q, int first, int n) {
    for (int i = first; i < first + n; ++i) ASSERT_TRUE(q.push(item(i)));
  }

  run_queue queue_;
  run_queue thief_;

 private:
  std::vector<std::unique_ptr<numbered>> items_;
};

TEST_F(run_queue_test, returns_its_items_in_order) {
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.take(), nullptr);
  for (int round = 0; round < 5; ++round) {  // past the end of the ring
    fill(queue_, round * 100, 100);
    EXPECT_EQ(queue_.size(), 100u);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(number_of(queue_.take()), round * 100 + i);
  }
  EXPECT_EQ(queue_.take(), nullptr);
  EXPECT_TRUE(queue_.empty());
}

TEST_F(run_queue_test, takes_256_and_no_more) {
  static_assert(run_queue::capacity == 256);
  fill(queue_, 0, 256);
  EXPECT_FALSE(queue_.push(item(256)));
  EXPECT_EQ(number_of(queue_.take()), 0);
  EXPECT_TRUE(queue_.push(item(256)));
}

TEST_F(run_queue_test, takes_of_a_list_what_there_is_room_for_in_order) {
  fill(queue_, 0, 250);
  ready_list list;
  for (int i = 250; i < 260; ++i) list.push_back(item(i));
  queue_.push_all(list);
  EXPECT_EQ(list.size(), 4u);
  EXPECT_EQ(number_of(list.front()), 256);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(number_of(queue_.take()), i);
  EXPECT_TRUE(queue_.empty());
  queue_.push_all(list);  // past the end of the ring
  EXPECT_TRUE(list.empty());
  queue_.push_all(list);
  for (int i = 256; i < 260; ++i) EXPECT_EQ(number_of(queue_.take()), i);
  EXPECT_TRUE(queue_.empty());
}

TEST_F(run_queue_test, spills_the_older_half) {
  fill(queue_, 0, 256);
  ready_list half = queue_.spill();
  EXPECT_EQ(half.size(), 128u);
  for (int i = 0; i < 128; ++i) EXPECT_EQ(number_of(half.pop_front()), i);
  for (int i = 128; i < 256; ++i) EXPECT_EQ(number_of(queue_.take()), i);
  EXPECT_TRUE(queue_.spill().empty());
}

TEST_F(run_queue_test, runs_next_what_was_put_there_last) {
  EXPECT_EQ(queue_.take_next(), nullptr);
  EXPECT_EQ(queue_.push_next(item(1)), nullptr);
  EXPECT_FALSE(queue_.empty());
  EXPECT_EQ(number_of(queue_.push_next(item(2))), 1);
  EXPECT_EQ(number_of(queue_.take_next()), 2);
  EXPECT_EQ(queue_.take_next(), nullptr);
  EXPECT_TRUE(queue_.empty());
}

TEST_F(run_queue_test, a_thief_gets_the_older_half_rounded_up) {
  for (const int n : {1, 2, 3, 4, 100, 255, 256}) {
    const int half = n - n / 2;
    fill(queue_, 0, n);
    // The youngest of them is returned to be run at once, the others are in the thief's queue.
    EXPECT_EQ(number_of(thief_.steal_half(queue_, false)), half - 1) << n;
    EXPECT_EQ(thief_.size(), static_cast<unsigned>(half - 1)) << n;
    for (int i = 0; i < half - 1; ++i) EXPECT_EQ(number_of(thief_.take()), i);
    for (int i = half; i < n; ++i) EXPECT_EQ(number_of(queue_.take()), i);
  }
  EXPECT_EQ(thief_.steal_half(queue_, true), nullptr);
}

TEST_F(run_queue_test, a_thief_takes_what_runs_next_only_if_told_to_and_only_as_the_last) {
  queue_.push_next(item(7));
  EXPECT_EQ(thief_.steal_half(queue_, false), nullptr);
  fill(queue_, 0, 1);
  EXPECT_EQ(number_of(thief_.steal_half(queue_, true)), 0);
  EXPECT_EQ(number_of(thief_.steal_half(queue_, true)), 7);
  EXPECT_TRUE(queue_.empty());
}

TEST_F(run_queue_test, a_thief_without_room_takes_nothing) {
  fill(queue_, 0, 256);
  fill(thief_, 256, 200);
  EXPECT_EQ(thief_.steal_half(queue_, false), nullptr);
  EXPECT_EQ(queue_.size(), 256u);
}

/// One owner pushes, takes and spills; thieves steal; each item is taken exactly once.
TEST(run_queue, loses_nothing_and_returns_nothing_twice_while_thieves_steal) {
  const int n = test::scale(500'000, 50'000);
  constexpr int thieves = 3;
  std::vector<numbered> items(static_cast<std::size_t>(n));
  run_queue queue;
  std::atomic<bool> over{false};
  std::atomic<int> taken{0};
  const auto run = [&](runnable* r) {
    ++static_cast<numbered*>(r)->taken;
    ++taken;
  };

  std::vector<std::thread> threads;
  for (int i = 0; i < thieves; ++i) {
    threads.emplace_back([&] {
      run_queue own;
      while (!over) {
        if (runnable* r = own.steal_half(queue, true)) run(r);
        while (runnable* r = own.take()) run(r);
      }
    });
  }
  for (int i = 0; i < n; ++i) {
    runnable* r = &items[static_cast<std::size_t>(i)];
    if (i % 3 == 0) r = queue.push_next(*r);
    while (r != nullptr && !queue.push(*r)) {
      ready_list half = queue.spill();
      while (runnable* spilled = half.pop_front()) run(spilled);
    }
    if (i % 11 == 0 && i + 8 < n) {
      ready_list batch;
      for (int k = 0; k < 8; ++k) batch.push_back(items[static_cast<std::size_t>(++i)]);
      queue.push_all(batch);
      while (runnable* no_room = batch.pop_front()) run(no_room);
    }
    if (i % 7 == 0) {
      if (runnable* next = queue.take_next()) run(next);
    }
    if (i % 5 == 0) {
      if (runnable* oldest = queue.take()) run(oldest);
    }
  }
  while (runnable* next = queue.take_next()) run(next);
  while (runnable* oldest = queue.take()) run(oldest);
  while (taken < n) std::this_thread::yield();  // held by a thief
  over = true;
  for (auto& t : threads) t.join();
  EXPECT_EQ(taken, n);
  for (const numbered& item : items) ASSERT_EQ(item.taken, 1);
}

/// The rule that no wake-up is lost requires this: a queued item is never invisible, not even while
/// it moves from the next slot into the ring.
TEST(run_queue, is_never_seen_empty_while_something_is_in_it) {
  run_queue queue;
  numbered a;
  numbered b;
  std::atomic<bool> over{false};
  std::atomic<int> seen_empty{0};
  queue.push_next(a);
  std::thread watcher([&] {
    while (!over) seen_empty += queue.empty();
  });
  for (int i = 0; i < test::scale(300'000, 30'000); ++i) {
    runnable& other = i % 2 == 0 ? b : a;
    runnable* before = queue.push_next(other);
    ASSERT_TRUE(queue.push(*before));
    ASSERT_EQ(queue.take(), before);
  }
  over = true;
  watcher.join();
  EXPECT_EQ(seen_empty, 0);
}

}  // namespace
}  // namespace verge::detail
