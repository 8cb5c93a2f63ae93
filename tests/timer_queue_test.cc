// SPDX-License-Identifier: Apache-2.0

// The queue of the hybrid engine alone, as verge::timer_queue: one thread, arbitrary times.

#include <gtest/gtest.h>
#include <support/scale.h>
#include <verge/queue.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using verge::test::scale;
using queue = verge::timer_queue;
using std::chrono::nanoseconds;

queue::time_point at(nanoseconds t) { return queue::time_point(t); }

TEST(timer_queue, fires_in_the_order_of_the_nanosecond) {
  queue q;
  std::vector<int> fired;
  q.start(at(3s + 2ns), [&] { fired.push_back(2); });
  q.start(at(3s + 1ns), [&] { fired.push_back(1); });
  q.start(at(3s + 3ns), [&] { fired.push_back(3); });
  q.start(at(2s), [&] { fired.push_back(0); });
  EXPECT_EQ(q.run(at(1h)), 4u);
  EXPECT_EQ(fired, (std::vector{0, 1, 2, 3}));
}

TEST(timer_queue, fires_nothing_early_and_says_when_to_come_back) {
  queue q;
  int fired = 0;
  q.start(at(10s), [&] { ++fired; });
  ASSERT_TRUE(q.next());
  EXPECT_EQ(*q.next(), at(10s)) << "not the beginning of a slot";
  EXPECT_EQ(q.run(at(10s - 1ns)), 0u);
  EXPECT_EQ(*q.next(), at(10s));
  EXPECT_EQ(q.run(at(10s)), 1u);
  EXPECT_EQ(fired, 1);
  EXPECT_FALSE(q.next());
}

TEST(timer_queue, does_not_wake_more_often_than_there_are_timers) {
  queue q;
  for (int i = 1; i <= 200; ++i) q.start(at(i * 777'777'777ns), [] {});
  int wakeups = 0;
  while (const auto next = q.next()) {
    ++wakeups;
    q.run(*next);
  }
  EXPECT_LE(wakeups, 200);
  EXPECT_TRUE(q.empty());
}

TEST(timer_queue, stops_a_timer_once) {
  queue q;
  const auto kept = std::make_shared<int>();
  const auto t = q.start(at(10s), [kept] { FAIL() << "it was stopped"; });
  EXPECT_TRUE(q.pending(t));
  EXPECT_TRUE(q.stop(t));
  EXPECT_EQ(kept.use_count(), 1) << "the callback is destroyed with the timer";
  EXPECT_FALSE(q.stop(t));
  EXPECT_FALSE(q.reset(t, at(20s)));
  EXPECT_EQ(q.run(at(1h)), 0u);
}

TEST(timer_queue, does_not_take_an_old_name_for_a_new_timer) {
  queue q;
  const auto old = q.start(at(10s), [] {});
  q.stop(old);
  const auto next = q.start(at(10s), [] {});
  EXPECT_EQ(next.index, old.index) << "memory is reused";
  EXPECT_FALSE(q.stop(old));
  EXPECT_FALSE(q.pending({}));
  EXPECT_TRUE(q.stop(next));
}

TEST(timer_queue, has_no_timer_with_a_number_that_it_never_had) {
  queue q;
  queue others;
  constexpr std::size_t many = 2'000;
  for (std::size_t i = 0; i < many; ++i) {
    const auto next = others.start(at(10s), [] {});
    EXPECT_FALSE(q.pending(next)) << i;
    EXPECT_FALSE(q.stop(next)) << i;
    EXPECT_FALSE(q.reset(next, at(20s))) << i;
    q.start(at(10s), [] {});
  }
  EXPECT_EQ(q.size(), many);
}

TEST(timer_queue, resets_to_later_and_to_earlier) {
  queue q;
  std::vector<int> fired;
  const auto a = q.start(at(10s), [&] { fired.push_back(0); });
  q.start(at(20s), [&] { fired.push_back(1); });
  EXPECT_TRUE(q.reset(a, at(30s)));
  q.run(at(25s));
  EXPECT_EQ(fired, (std::vector{1}));
  EXPECT_TRUE(q.reset(a, at(26s)));
  EXPECT_EQ(*q.next(), at(26s));
  q.run(at(26s));
  EXPECT_EQ(fired, (std::vector{1, 0}));
  q.run(at(1h));
  EXPECT_EQ(fired.size(), 2u);
}

TEST(timer_queue, calls_no_more_than_it_is_told_to) {
  queue q;
  int fired = 0;
  for (int i = 0; i < 10; ++i) q.start(at(i * 1ms), [&] { ++fired; });
  EXPECT_EQ(q.run(at(1s), 3), 3u);
  EXPECT_EQ(fired, 3);
  EXPECT_EQ(q.run(at(1s)), 7u);
}

TEST(timer_queue, lets_a_callback_use_it) {
  queue q;
  std::vector<nanoseconds> fired;
  queue::id other{};
  other = q.start(at(2s), [] { FAIL() << "the first callback stops it"; });
  q.start(at(1s), [&] {
    EXPECT_TRUE(q.stop(other));
    q.start(at(1s), [&] { fired.emplace_back(1s); });
    q.start(at(3s), [&] { fired.emplace_back(3s); });
  });
  EXPECT_EQ(q.run(at(2s)), 2u) << "what is started for now runs in the same call";
  EXPECT_EQ(q.run(at(3s)), 1u);
  EXPECT_EQ(fired, (std::vector<nanoseconds>{1s, 3s}));
}

TEST(timer_queue, continues_after_a_callback_that_throws) {
  queue q;
  int fired = 0;
  q.start(at(1s), [] { throw std::runtime_error("no"); });
  q.start(at(2s), [&] { ++fired; });
  EXPECT_THROW(q.run(at(5s)), std::runtime_error);
  EXPECT_EQ(q.run(at(5s)), 1u);
  EXPECT_EQ(fired, 1);
}

/// A callback that cannot be moved into the queue.
struct cannot_be_kept {
  bool throws = false;
  cannot_be_kept() = default;
  explicit cannot_be_kept(bool t) : throws(t) {}
  cannot_be_kept(cannot_be_kept&& other) : throws(other.throws) {  // NOLINT: it throws
    if (throws) throw std::runtime_error("cannot be moved");
  }
  cannot_be_kept& operator=(cannot_be_kept&&) = delete;
  void operator()() const {}
};

TEST(timer_queue, is_unchanged_if_a_callback_cannot_be_moved_into_it) {
  verge::basic_timer_queue<cannot_be_kept> q;
  const auto first = q.start(at(10s), cannot_be_kept());
  EXPECT_THROW(q.start(at(5s), cannot_be_kept(true)), std::runtime_error);
  const std::size_t memory = q.bytes();
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_THROW(q.start(at(5s), cannot_be_kept(true)), std::runtime_error);
    ASSERT_EQ(q.size(), 1U);
  }
  EXPECT_EQ(q.bytes(), memory) << "the places of those are used again";
  EXPECT_EQ(*q.next(), at(10s));
  EXPECT_TRUE(q.pending(first));
  EXPECT_EQ(q.describe_violation(), "");
  EXPECT_EQ(q.run(at(10s)), 1U);
}

/// A clock that counts milliseconds.
struct coarse_clock {
  using duration = std::chrono::milliseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<coarse_clock>;
  static constexpr bool is_steady = true;
};

TEST(timer_queue, of_a_coarse_clock_says_a_time_at_which_all_that_is_due_then_fires) {
  verge::basic_timer_queue<std::function<void()>, coarse_clock> q;
  int fired = 0;
  for (int i = 1; i <= 50; ++i) q.start(coarse_clock::time_point(i * 17ms), [&] { ++fired; });
  for (int i = 1; i <= 50; ++i) {
    ASSERT_TRUE(q.next());
    ASSERT_EQ(*q.next(), coarse_clock::time_point(i * 17ms));
    EXPECT_EQ(q.run(coarse_clock::time_point(i * 17ms - 1ms)), 0U);
    EXPECT_EQ(q.run(*q.next()), 1U);
  }
  EXPECT_EQ(fired, 50);
}

TEST(timer_queue, takes_times_from_one_end_of_the_clock_to_the_other) {
  queue q;
  int fired = 0;
  q.start(queue::time_point::min(), [&] { ++fired; });
  q.start(at(-5s), [&] { ++fired; });
  q.start(at(0s), [&] { ++fired; });
  q.start(at(24h * 365 * 30), [&] { ++fired; });
  q.start(queue::time_point::max(), [&] { ADD_FAILURE() << "never is never"; });
  EXPECT_EQ(q.run(at(0s)), 3u);
  EXPECT_EQ(*q.next(), at(24h * 365 * 30));
  EXPECT_EQ(q.run(at(24h * 365 * 30)), 1u);
  EXPECT_FALSE(q.next());
  EXPECT_EQ(q.run(queue::time_point::max()), 0u);
  EXPECT_EQ(q.size(), 1u);
}

/// Found by fuzzing: a timer that never fires was said to be first, and there was no next.
TEST(timer_queue, does_not_call_a_timer_first_that_never_fires) {
  verge::timer_queue q;
  const auto never = q.start(verge::timer_queue::time_point::max(), [] {});
  EXPECT_FALSE(never.first);
  EXPECT_FALSE(q.start(verge::timer_queue::time_point::max(), [] {}).first);
  EXPECT_FALSE(q.next());
  EXPECT_TRUE(q.start(verge::timer_queue::time_point(std::chrono::hours(1)), [] {}).first);
  EXPECT_TRUE(q.next());
}

TEST(timer_queue, is_used_with_a_custom_callback_type_and_clock) {
  struct count {
    int* n;
    void operator()() const { ++*n; }
  };
  int n = 0;
  verge::basic_timer_queue<count, std::chrono::system_clock> q;
  q.start(std::chrono::system_clock::time_point(5s), {&n});
  EXPECT_EQ(q.run(std::chrono::system_clock::time_point(5s)), 1u);
  EXPECT_EQ(n, 1);
}

/// The same done to the queue and to a sorted map; whatever fires must be what the map says.
class model {
 public:
  explicit model(std::uint64_t seed) : random_(seed) {}

  void step() {
    const auto what = random_() % 100;
    if (what < 45) {
      start();
    } else if (what < 65) {
      stop();
    } else if (what < 90) {
      reset();
    } else {
      run();
    }
  }

  void finish() {
    while (!due_.empty()) {
      now_ = std::max(now_, due_.begin()->first.first);
      ASSERT_LE(*q_.next(), at(now_));
      run_now();
    }
    EXPECT_EQ(q_.size(), 0u);
    EXPECT_EQ(q_.describe_violation(), "");
  }

  void check() const {
    ASSERT_EQ(q_.size(), due_.size());
    ASSERT_EQ(q_.describe_violation(), "");
    ASSERT_LE(q_.stale(), q_.size() + 1024);
    if (!due_.empty()) {
      ASSERT_TRUE(q_.next());
      ASSERT_LE(*q_.next(), at(std::max(due_.begin()->first.first, now_)));
    }
  }

 private:
  struct timer {
    queue::id id;
    std::pair<nanoseconds, std::uint64_t> key;
  };

  /// Delays of every size: each power of two alike.
  nanoseconds some_time() {
    const auto bits = random_() % 44;
    return now_ + nanoseconds(random_() & ((std::uint64_t{1} << bits) - 1)) - nanoseconds(100);
  }

  void start() {
    const std::uint64_t number = next_++;
    const auto when = some_time();
    const auto id = q_.start(at(when), [this, number] { fired_.push_back(number); });
    due_[{when, number}] = number;
    timers_[number] = {id, {when, number}};
  }
  std::map<std::uint64_t, timer>::iterator any() {
    if (timers_.empty()) return timers_.end();
    auto it = timers_.lower_bound(random_() % next_);
    return it == timers_.end() ? timers_.begin() : it;
  }
  void stop() {
    const auto it = any();
    if (it == timers_.end()) return;
    EXPECT_TRUE(q_.stop(it->second.id));
    EXPECT_FALSE(q_.stop(it->second.id));
    due_.erase(it->second.key);
    timers_.erase(it);
  }
  void reset() {
    const auto it = any();
    if (it == timers_.end()) return;
    const auto when = some_time();
    EXPECT_TRUE(q_.reset(it->second.id, at(when)));
    due_.erase(it->second.key);
    it->second.key = {when, it->first};
    due_[it->second.key] = it->first;
  }
  void run() {
    const auto bits = random_() % 40;
    now_ += nanoseconds(random_() & ((std::uint64_t{1} << bits) - 1));
    run_now();
  }
  void run_now() {
    fired_.clear();
    q_.run(at(now_));
    for (const std::uint64_t number : fired_) {
      // Equal times may come in any order.
      ASSERT_FALSE(due_.empty());
      const auto it = due_.find({due_.begin()->first.first, number});
      ASSERT_NE(it, due_.end()) << number << " fired out of order, or not at its time";
      ASSERT_LE(it->first.first, now_);
      due_.erase(it);
      timers_.erase(number);
    }
    ASSERT_TRUE(due_.empty() || due_.begin()->first.first > now_) << "something due has not fired";
  }

  std::mt19937_64 random_;
  queue q_;
  nanoseconds now_{1h};
  std::uint64_t next_ = 0;
  std::map<std::uint64_t, timer> timers_;
  std::map<std::pair<nanoseconds, std::uint64_t>, std::uint64_t> due_;
  std::vector<std::uint64_t> fired_;
};

TEST(timer_queue, does_what_a_sorted_map_does) {
  for (std::uint64_t seed = 1; seed <= scale<std::uint64_t>(20, 4); ++seed) {
    SCOPED_TRACE(seed);
    model m(seed);
    for (int i = 0; i < 20'000; ++i) {
      m.step();
      if (i % 256 == 0) m.check();
      if (testing::Test::HasFatalFailure()) return;
    }
    m.finish();
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(timer_queue, keeps_its_memory_in_proportion_to_the_timers_that_wait) {
  queue q;
  std::mt19937_64 random(7);
  std::vector<queue::id> ids;
  nanoseconds now = 1h;
  const auto later = [&] { return at(now + 1s + nanoseconds(random() % 60'000'000'000)); };
  for (int i = 0; i < 10'000; ++i) ids.push_back(q.start(later(), [] {}));
  std::size_t after_the_first = 0;
  for (int i = 0; i < scale(3'000'000, 300'000); ++i) {
    auto& one = ids[random() % ids.size()];
    ASSERT_TRUE(q.stop(one));
    one = q.start(later(), [] {});
    ASSERT_LE(q.stale(), q.size() + 1024);
    if (i == 100'000) after_the_first = q.bytes();
  }
  EXPECT_LE(q.bytes(), after_the_first + after_the_first / 8);
}

TEST(timer_queue, reuses_the_entry_of_a_stopped_timer) {
  queue q;
  const auto now = at(1h);
  int called = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto t = q.start(now + 10s + std::chrono::seconds(i % 7), [&] { ++called; });
    EXPECT_EQ(q.stale(), 0U);
    EXPECT_TRUE(q.stop(t));
    EXPECT_EQ(q.stale(), 1U);
  }
  // Earlier than the existing entry: it needs another.
  q.start(now + 5s, [&] { ++called; });
  EXPECT_EQ(q.stale(), 1U);
  EXPECT_EQ(q.run(now + 5s - 1ns), 0U);
  EXPECT_EQ(q.run(now + 5s), 1U);
  EXPECT_EQ(q.run(now + 60s), 0U);
  EXPECT_EQ(called, 1);
  EXPECT_EQ(q.stale(), 0U);
  EXPECT_EQ(q.describe_violation(), "");
}

TEST(timer_queue, forgets_what_was_stopped_without_being_run) {
  queue q;
  std::vector<queue::id> ids;
  for (int i = 0; i < 100'000; ++i) ids.push_back(q.start(at(1h + i * 1us), [] {}));
  for (const auto id : ids) {
    q.stop(id);
    ASSERT_LE(q.stale(), q.size() + 1024);
  }
}

TEST(timer_queue, sweeps_while_it_empties_slots) {
  queue q;
  std::mt19937_64 random(3);
  std::vector<queue::id> ids;
  std::size_t fired = 0;
  std::size_t stopped = 0;
  std::size_t started = 0;
  nanoseconds now = 1h;
  for (int round = 0; round < scale(400, 100); ++round) {
    for (int i = 0; i < 2000; ++i) {
      ids.push_back(q.start(at(now + nanoseconds(random() % 3'000'000'000)), [&] { ++fired; }));
      ++started;
    }
    for (int i = 0; i < 1500; ++i) stopped += q.stop(ids[random() % ids.size()]);
    now += 100ms;
    q.run(at(now), random() % 4000);
    ASSERT_EQ(q.describe_violation(), "");
    ASSERT_EQ(started, stopped + fired + q.size());
    if (ids.size() > 100'000) ids.erase(ids.begin(), ids.begin() + 50'000);
  }
  q.run(at(now + 10s));
  EXPECT_EQ(started, stopped + fired);
}

}  // namespace
