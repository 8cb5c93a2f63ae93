// SPDX-License-Identifier: Apache-2.0

// What processor_heap does with pending timers whose handle is destroyed: they are left to the
// heap, which frees them when it reaches them, and keeps their memory with its processor.

#include <gtest/gtest.h>
#include <support/lone_engine.h>
#include <support/scale.h>
#include <verge/time.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <random>
#include <semaphore>
#include <set>
#include <thread>
#include <vector>

namespace verge::test {
namespace {

using detail::timer_node;

class world final : public lone_engine {
 public:
  world() : lone_engine(verge::engine::processor_heap) {}

  void pass(std::int64_t d) {
    now_ += d;
    for (unsigned p = 0; p < 2; ++p) {
      while (engine().check_timers(p, now_, true).ran != 0) {
      }
    }
  }
  /// Without a look at what is due by then.
  void pass_unseen(std::int64_t d) { now_ += d; }
  std::size_t nodes() { return timers().memory().nodes_live; }
};

/// Some timers, which are replaced one after another.
class churn {
 public:
  churn(world& w, std::size_t n, std::uint64_t seed) : world_(w), random_(seed) {
    for (std::size_t i = 0; i < n; ++i) live_.push_back(&start());
  }
  ~churn() {
    for (timer_node* t : live_) detail::destroy_timer(*t);
  }
  churn(const churn&) = delete;
  churn& operator=(const churn&) = delete;

  timer_node* replace_one() {
    timer_node*& t = live_[random_() % live_.size()];
    timer_node& fresh = start();
    detail::destroy_timer(*t);
    return t = &fresh;
  }

 private:
  timer_node& start() {
    return world_.start(second + static_cast<std::int64_t>(random_() % 60) * second, [] {});
  }

  world& world_;
  std::mt19937_64 random_;
  std::vector<timer_node*> live_;
};

TEST(processor_heap, a_timer_whose_handle_is_destroyed_does_not_fire_and_is_freed) {
  world w;
  int fired = 0;
  timer_node& one_shot = w.start(second, [&fired] { ++fired; });
  timer_node& ticker = w.start(
      2 * second, [&fired] { ++fired; }, second);
  timer_node& put_off = w.start(second, [&fired] { ++fired; });
  detail::reset_timer_after(&put_off, 3 * second);
  timer_node& brought_forward = w.start(9 * second, [&fired] { ++fired; });
  detail::reset_timer_after(&brought_forward, 2 * second);
  for (timer_node* t : {&one_shot, &ticker, &put_off, &brought_forward}) detail::destroy_timer(*t);
  EXPECT_EQ(w.engine().verify(), "");
  w.pass(10 * second);
  EXPECT_EQ(fired, 0);
  EXPECT_EQ(w.engine().counts(0).deleted, 0U);
  w.engine().drain();
  EXPECT_EQ(w.nodes(), 0U);
}

TEST(processor_heap, captures_of_a_callback_are_destroyed_with_the_handle) {
  world w;
  const auto held = std::make_shared<int>(1);
  timer_node& t = w.start(second, [held] {});
  EXPECT_EQ(held.use_count(), 2);
  detail::destroy_timer(t);
  EXPECT_EQ(held.use_count(), 1) << "though the heap still has the node";
}

TEST(processor_heap, a_ticker_can_be_destroyed_by_its_own_callback) {
  world w;
  timer_node* ticker = nullptr;
  int fired = 0;
  const auto tick = [&] {
    ++fired;
    detail::destroy_timer(*ticker);
  };
  const auto* const p = &tick;
  ticker = &w.start(
      second, [p] { (*p)(); }, second);
  w.pass(5 * second);
  w.pass(5 * second);
  EXPECT_EQ(fired, 1);
  w.engine().drain();
  EXPECT_EQ(w.nodes(), 0U);
}

TEST(processor_heap, nodes_are_in_proportion_to_live_timers) {
  world w;
  const auto live = scale<std::size_t>(20'000, 8'000);
  churn timers(w, live, 1);
  for (std::size_t i = 0; i < 10 * live; ++i) {
    timers.replace_one();
    // A third of the live ones stopped, and as many kept for reuse.
    ASSERT_LE(w.nodes(), live * 5 / 3 + 64);
  }
  EXPECT_EQ(w.engine().verify(), "");
}

TEST(processor_heap, memory_stays_with_the_processor) {
  world w;
  std::binary_semaphore turn[2] = {std::binary_semaphore(1), std::binary_semaphore(0)};
  std::set<timer_node*> used[2];
  const auto work = [&](unsigned me) {
    this_processor = me;
    turn[me].acquire();
    churn timers(w, 1000, me);
    turn[1 - me].release();
    // In turns, shorter than it takes to leave enough behind for a sweep.
    for (int round = 0; round < 200; ++round) {
      turn[me].acquire();
      for (int i = 0; i < 50; ++i) {
        timer_node* const fresh = timers.replace_one();
        if (round >= 100) used[me].insert(fresh);
      }
      turn[1 - me].release();
    }
    turn[me].acquire();
    turn[1 - me].release();
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  std::vector<timer_node*> both;
  std::set_intersection(used[0].begin(), used[0].end(), used[1].begin(), used[1].end(),
                        std::back_inserter(both));
  EXPECT_GT(used[0].size(), 500U);
  EXPECT_LT(both.size(), used[0].size() / 10);
}

TEST(processor_heap, fires_all_that_is_due_at_once_and_says_how_many) {
  world w;
  std::vector<timer_node*> timers;
  for (int i = 0; i < 5; ++i) timers.push_back(&w.start(second, [] {}));
  const std::int64_t due = w.now() + second;
  EXPECT_EQ(w.engine().check_timers(0, due - 1, true).ran, 0U);
  EXPECT_EQ(w.engine().check_timers(0, due, true).ran, 5U);
  EXPECT_EQ(w.engine().check_timers(0, due, true).ran, 0U);
  for (timer_node* t : timers) detail::destroy_timer(*t);
}

TEST(processor_heap, drops_stopped_timers_before_a_sleep_if_they_are_more_than_half) {
  world w;
  std::vector<timer_node*> timers;
  for (int i = 0; i < 20; ++i) timers.push_back(&w.start(second, [] {}));
  // The first of a heap are dropped as they are stopped.
  for (std::size_t i = 0; i < 10; ++i) detail::stop_timer(timers[19 - i]);
  EXPECT_FALSE(w.engine().tidy_before_sleep(2));
  EXPECT_EQ(w.engine().counts(0).deleted, 10U);
  detail::stop_timer(timers[9]);
  EXPECT_TRUE(w.engine().tidy_before_sleep(2));
  EXPECT_EQ(w.engine().counts(0).deleted, 0U);
  EXPECT_EQ(w.engine().counts(0).live, 9U);
  for (timer_node* t : timers) detail::destroy_timer(*t);
}

struct cannot_be_copied {
  cannot_be_copied() = default;
  cannot_be_copied(const cannot_be_copied&) { throw 7; }
  cannot_be_copied& operator=(const cannot_be_copied&) = delete;
  void operator()() const {}
};

/// By every operation that puts the heap in order: what it takes off is freed before it returns.
TEST(processor_heap, frees_a_timer_that_was_destroyed_when_it_is_taken_off) {
  const auto check = [](world& w) { w.pass(second); };
  const auto look = [](world& w) { w.engine().next_exactly(0); };
  const auto tidy = [](world& w) { w.engine().tidy_before_sleep(2); };
  const auto move = [](world& w) { w.engine().move_timers(0, 1); };
  for (const auto operation : std::initializer_list<void (*)(world&)>{check, look, tidy, move}) {
    world w;
    const auto owned = std::make_shared<int>(0);  // so that there is something to destroy
    timer_node& t = w.start(second / 2, [owned] {});
    // By a thread that leaves the heap as it is.
    ASSERT_TRUE(w.engine().stop(t));
    w.timers().release(t);
    ASSERT_EQ(w.nodes(), 1U) << "the heap has it";
    operation(w);
    EXPECT_EQ(w.nodes(), 0U);
    EXPECT_EQ(owned.use_count(), 1);
  }
}

/// Of many that were stopped, whenever they would have been due: by their own processor.
TEST(processor_heap, takes_off_what_was_stopped_when_that_is_more_than_a_quarter) {
  world w;
  const auto owned = std::make_shared<int>(0);
  std::vector<timer_node*> timers;
  for (int i = 0; i < 100; ++i) timers.push_back(&w.start(3600 * second, [owned] {}));
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(w.engine().stop(*timers.back()));
    w.timers().release(*timers.back());
    timers.pop_back();
  }
  w.engine().check_timers(0, w.now(), false);
  EXPECT_EQ(w.nodes(), 100U) << "another processor's worker has no time for that";
  w.engine().check_timers(0, w.now(), true);
  EXPECT_EQ(w.nodes(), 40U);
  EXPECT_EQ(owned.use_count(), 41);
  for (timer_node* t : timers) detail::destroy_timer(*t);
}

/// A check that clears stopped timers away fires what is due as well.
TEST(processor_heap, fires_what_is_due_also_if_it_has_not_been_told_the_time) {
  for (const int stopped : {0, 60}) {
    world w;
    std::vector<timer_node*> timers;
    timer_node& due = w.start(second, [] {});
    for (int i = 0; i < 100; ++i) timers.push_back(&w.start(3600 * second, [] {}));
    w.pass_unseen(second);
    for (int i = 0; i < stopped; ++i) ASSERT_TRUE(w.engine().stop(*timers[99 - i]));
    const detail::timer_check c = w.engine().check_timers(0, 0, true);
    EXPECT_EQ(c.ran, 1U) << stopped;
    EXPECT_EQ(c.now, w.now());
    EXPECT_EQ(w.engine().counts(0).deleted, 0U);
    timers.push_back(&due);
    for (timer_node* t : timers) detail::destroy_timer(*t);
  }
}

class woken_world final : public lone_engine {
 public:
  woken_world() : lone_engine(verge::engine::processor_heap) {}
  void wake_net_poller(std::int64_t when) noexcept override { woken_for.push_back(when - now_); }
  std::vector<std::int64_t> woken_for;
};

TEST(processor_heap, wakes_the_poller_for_each_timer_that_comes_first) {
  woken_world w;
  std::vector<timer_node*> all;
  for (const int n : {3, 2, 5, 2, 1, 4}) all.push_back(&w.start(n * second, [] {}));
  EXPECT_EQ(w.woken_for,
            (std::vector<std::int64_t>{3 * second, 2 * second, 2 * second, 1 * second}));
  for (timer_node* t : all) detail::destroy_timer(*t);
}

TEST(processor_heap, says_how_much_memory_it_has) {
  world w;
  const std::size_t before = w.engine().bytes();
  EXPECT_GT(before, 0U);
  std::vector<timer_node*> all;
  for (int i = 0; i < 1000; ++i) all.push_back(&w.start(second, [] {}));
  EXPECT_GE(w.engine().bytes(), before + 16'000);
  for (timer_node* t : all) detail::destroy_timer(*t);
}

/// So that starting and stopping timers one after the other does not pile them up.
TEST(processor_heap, takes_off_up_to_eight_that_are_stopped_and_first_with_each_start) {
  world w;
  std::vector<timer_node*> all;
  for (int i = 0; i < 20; ++i) {
    timer_node& t = w.start(second + i, [] {});
    ASSERT_TRUE(w.engine().stop(t));
    w.timers().release(t);
    all.push_back(&w.start(3600 * second, [] {}));
  }
  EXPECT_LE(w.nodes(), 21U);
  std::vector<timer_node*> first;
  for (int i = 0; i < 20; ++i) first.push_back(&w.start(second + i, [] {}));
  for (timer_node* t : first) {
    ASSERT_TRUE(w.engine().stop(*t));
    w.timers().release(*t);
  }
  EXPECT_EQ(w.nodes(), 40U);
  all.push_back(&w.start(3600 * second, [] {}));
  EXPECT_EQ(w.nodes(), 41U - 8U);
  all.push_back(&w.start(3600 * second, [] {}));
  EXPECT_EQ(w.nodes(), 42U - 16U);
  for (timer_node* t : all) detail::destroy_timer(*t);
}

/// No worker checks its timers.
TEST(processor_heap, has_no_more_that_are_stopped_than_others_though_a_thread_only_resets) {
  world w;
  std::vector<timer_node*> timers;
  for (int i = 0; i < 1000; ++i) timers.push_back(&w.start(3600 * second, [] {}));
  for (int i = 0; i < 900; ++i) {
    ASSERT_TRUE(w.engine().stop(*timers.back()));
    w.timers().release(*timers.back());
    timers.pop_back();
  }
  EXPECT_GT(w.nodes(), 900U);
  detail::reset_timer_after(timers[0], 3600 * second);
  EXPECT_LT(w.nodes(), 250U);
  for (timer_node* t : timers) detail::destroy_timer(*t);
}

TEST(a_function, whose_copy_throws_leaves_no_timer_behind) {
  world w;
  const cannot_be_copied f;
  constexpr auto skip = static_cast<std::uint8_t>(missed_ticks::skip);
  EXPECT_THROW(detail::make_func_timer(w.timers(), f), int);
  EXPECT_THROW(detail::make_function_ticker(w.timers(), second, f, skip), int);
  EXPECT_EQ(w.nodes(), 0U);
}

TEST(processor_heap, more_processors_change_nothing_for_those_that_were_there) {
  world w;
  int fired = 0;
  timer_node& t = w.start(second, [&fired] { ++fired; });
  w.engine().grow(3);
  EXPECT_EQ(w.engine().counts(0).live, 1U);
  w.pass(2 * second);
  EXPECT_EQ(fired, 1);
  detail::destroy_timer(t);
}

TEST(processor_heap, a_processor_whose_timers_are_moved_keeps_no_nodes_for_more) {
  world w;
  constexpr std::size_t live = 1000;
  churn timers(w, live, 1);
  for (std::size_t i = 0; i < 10 * live; ++i) timers.replace_one();
  EXPECT_GT(w.nodes() - live, w.engine().counts(0).deleted) << "some are kept for reuse";
  w.engine().move_timers(0, 1);
  EXPECT_EQ(w.engine().counts(1).live, live);
  EXPECT_EQ(w.nodes(), live + w.engine().counts(1).deleted);
}

}  // namespace
}  // namespace verge::test
