// SPDX-License-Identifier: Apache-2.0

// What the hybrid engine promises beyond what every engine does: memory in proportion to live
// timers, order to the nanosecond across all its parts, no lock for stop and for later resets.

#include <engine/hybrid.h>
#include <gtest/gtest.h>
#include <support/hybrid_access.h>
#include <support/lone_engine.h>
#include <support/scale.h>
#include <verge/time.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace verge::test {
namespace {

using detail::hybrid_access;
using detail::timer_node;

class hybrid_engine : public testing::Test, public lone_engine {
 protected:
  hybrid_engine() : lone_engine(verge::engine::hybrid) {}

  detail::timer_counts counts() {
    const auto a = engine().counts(0);
    const auto b = engine().counts(1);
    return {.live = a.live + b.live, .deleted = a.deleted + b.deleted};
  }

  /// Runs what is due, on both processors.
  unsigned check() {
    unsigned ran = 0;
    for (unsigned n = 1; n != 0;) {
      n = 0;
      for (unsigned p = 0; p < 2; ++p) {
        const auto next = engine().next_when(p);
        while (next != 0 && engine().next_when(p) != 0 && engine().next_when(p) <= now_) {
          n += engine().check_timers(p, now_, true).ran;
        }
      }
      ran += n;
    }
    return ran;
  }
  void check_at(std::int64_t when) {
    now_ = when;
    check();
  }
  /// Checks that `fired` counts the n-th firing when it is due, and not a nanosecond earlier.
  void fires_at(std::int64_t due, const int& fired, int n) {
    check_at(due - 1);
    EXPECT_EQ(fired, n - 1);
    check_at(due);
    EXPECT_EQ(fired, n);
  }

  void wake_net_poller(std::int64_t when) noexcept override {
    const std::lock_guard held(woken_lock_);
    woken_for_.push_back(when);
  }

  std::mutex woken_lock_;
  std::vector<std::int64_t> woken_for_;
};

TEST_F(hybrid_engine, wakes_the_poller_only_for_an_earliest_timer) {
  timer_node& a = start(10 * second, [] {});
  timer_node& b = start(20 * second, [] {});
  EXPECT_EQ(woken_for_, (std::vector{now_ + 10 * second}));
  detail::reset_timer_after(&b, 30 * second);
  detail::reset_timer_after(&b, 15 * second);
  detail::stop_timer(&a);
  EXPECT_EQ(woken_for_.size(), 1U) << "neither for a later reset, nor for a stop";
  detail::reset_timer_after(&b, 5 * second);
  EXPECT_EQ(woken_for_.size(), 2U);
  EXPECT_EQ(woken_for_.back(), now_ + 5 * second);
  detail::destroy_timer(a);
  detail::destroy_timer(b);
}

TEST_F(hybrid_engine, needs_no_new_entry_for_a_time_that_the_old_one_covers) {
  timer_node& t = start(10 * second, [] {});
  for (int i = 0; i < 1000; ++i) {
    detail::reset_timer_after(&t, (60 - i % 49) * second);
  }
  EXPECT_EQ(counts().live, 1U);
  EXPECT_EQ(counts().deleted, 0U);
  detail::reset_timer_after(&t, 5 * second);
  EXPECT_EQ(counts().deleted, 1U);
  EXPECT_EQ(engine().verify(), "");
  detail::destroy_timer(t);
}

TEST_F(hybrid_engine, needs_no_new_entry_for_a_ticker_that_is_reset_to_its_period) {
  constexpr auto skip = static_cast<std::uint8_t>(missed_ticks::skip);
  timer_node& t = *detail::start_ticker(timers(), 10 * second, skip);
  auto ticks = detail::channel_of(&t);
  for (int i = 0; i < 1000; ++i) {
    now_ += second;
    EXPECT_TRUE(detail::reset_ticker(&t, 10 * second));
  }
  EXPECT_EQ(counts().live, 1U);
  EXPECT_EQ(counts().deleted, 0U);
  EXPECT_EQ(check(), 0U) << "its entry was reached long ago, and is moved";
  now_ += 10 * second;
  EXPECT_EQ(check(), 1U);
  EXPECT_TRUE(ticks.try_recv());
  now_ += 10 * second;
  EXPECT_EQ(check(), 1U) << "it ticks on";
  EXPECT_TRUE(detail::reset_ticker(&t, 7 * second));
  EXPECT_FALSE(ticks.try_recv()) << "a tick from before the reset";
  now_ += 7 * second;
  EXPECT_EQ(check(), 1U);
  now_ += 7 * second;
  EXPECT_EQ(check(), 1U) << "with its new period";
  EXPECT_EQ(engine().verify(), "");
  detail::destroy_timer(t);
}

TEST_F(hybrid_engine, repeats_what_is_reset_to_the_shortest_period) {
  int fired = 0;
  const std::int64_t begin = now_;
  timer_node& t = start(
      10, [&] { ++fired; }, 1);
  EXPECT_TRUE(timers().reset(t, begin + 20, 1));
  fires_at(begin + 20, fired, 1);
  fires_at(begin + 21, fired, 2);
  fires_at(begin + 22, fired, 3);
  detail::destroy_timer(t);
}

/// Times before the beginning of the clock are that.
TEST_F(hybrid_engine, fires_what_is_reset_to_the_first_nanosecond) {
  int fired = 0;
  timer_node& t = start(second, [&] { ++fired; });
  EXPECT_TRUE(detail::stop_timer(&t));
  EXPECT_FALSE(timers().reset(t, 1, 0));
  EXPECT_EQ(check(), 1U);
  EXPECT_EQ(fired, 1);
  detail::destroy_timer(t);
}

/// A thread that has read which engine there is arms a timer while the runtime ends: nothing but
/// its handle takes it off.
TEST_F(hybrid_engine, takes_off_what_was_armed_after_the_end_had_begun_and_is_detached) {
  auto payload = std::make_shared<int>(0);
  const std::weak_ptr<int> kept = payload;
  timer_node& t = start(second, [payload = std::move(payload)] {});
  timers().close();
  engine().drain();
  EXPECT_FALSE(engine().reset(t, now_ + second, 0));
  detail::detach_timer(&t);
  EXPECT_TRUE(kept.expired());
  EXPECT_EQ(counts().live, 0U);
}
TEST_F(hybrid_engine, takes_off_what_sends_and_was_armed_after_the_end_had_begun_and_is_detached) {
  timer_node& t = *detail::start_channel_timer(timers(), second, 0, {});
  timers().close();
  engine().drain();
  EXPECT_FALSE(engine().reset(t, now_ + second, 0));
  EXPECT_EQ(counts().live, 1U);
  detail::detach_timer(&t);
  EXPECT_EQ(counts().live, 0U);
}

TEST_F(hybrid_engine, counts_no_firing_for_an_entry_whose_timer_was_left_disarmed) {
  int fired = 0;
  timer_node& t = start(100, [&] { ++fired; });  // among those that are due soon
  EXPECT_TRUE(engine().stop(t));
  hybrid_access::leave_disarmed(t);
  check_at(now_ + 100);
  EXPECT_EQ(fired, 0);
  EXPECT_EQ(engine().totals().started, 1U) << "one, that was stopped";
  detail::destroy_timer(t);
}

/// The thread that is entering it takes over what it finds: a time, and nothing else.
TEST_F(hybrid_engine, gives_a_timer_that_another_thread_is_entering_its_time_only) {
  namespace word = detail::hybrid_word;
  timer_node& t = start(second, [] {});
  auto& its = hybrid_access::word(t);
  its |= word::entering;
  EXPECT_TRUE(engine().reset(t, now_ + 2 * second, 0));
  EXPECT_EQ(its, word::of(now_ + 2 * second, 0) | word::entering);
  its &= ~word::entering;
  EXPECT_EQ(check(), 0U);
  detail::destroy_timer(t);
}

TEST_F(hybrid_engine, reuses_the_entry_that_a_stopped_timer_left_behind) {
  timer_node* t = &start(10 * second, [] {});
  for (int i = 0; i < 1000; ++i) {
    detail::destroy_timer(*t);
    now_ += ms;
    t = &start(10 * second, [] {});
  }
  EXPECT_EQ(counts().live, 1U);
  EXPECT_EQ(counts().deleted, 0U) << "a thousand deadlines, one entry";
  EXPECT_TRUE(detail::stop_timer(t));
  EXPECT_EQ(counts().deleted, 1U);
  EXPECT_FALSE(detail::reset_timer_after(t, 20 * second));
  EXPECT_EQ(counts().deleted, 0U);
  EXPECT_EQ(woken_for_.size(), 1U) << "no wake-up for what an entry covers";
  detail::stop_timer(t);
  EXPECT_FALSE(detail::reset_timer_after(t, 5 * second)) << "earlier than the entry";
  EXPECT_EQ(counts().deleted, 1U);
  EXPECT_EQ(engine().verify(), "");
  detail::destroy_timer(*t);
}

/// A timer's entries are distinguished by 14 bits. Here a timer has 40,000 of them at once.
TEST_F(hybrid_engine, fires_once_though_its_tokens_have_wrapped_around) {
  std::vector<timer_node*> others;  // enough that nothing is swept
  for (int i = 0; i < 100'000; ++i) others.push_back(&start(2000 * second, [] {}));
  int fired = 0;
  timer_node& t = start(1000 * second, [&] { ++fired; });
  // A ticker gets a new entry whenever it is reset; then it must fire once.
  for (int i = 1; i <= 40'000; ++i) detail::reset_ticker(&t, 1000 * second - i * 17 * ms);
  detail::reset_timer_after(&t, 320 * second);
  ASSERT_GE(counts().deleted, 40'000U);
  const std::int64_t due = now_ + 320 * second;
  fires_at(due, fired, 1);
  detail::reset_timer_after(&t, 100 * second);
  detail::stop_timer(&t);
  check_at(due + 10 * second);
  EXPECT_FALSE(detail::reset_timer_after(&t, 200 * second));
  fires_at(due + 210 * second, fired, 2);
  check_at(due + 1000 * second);
  EXPECT_EQ(fired, 2);
  EXPECT_EQ(engine().verify(), "");
  detail::destroy_timer(t);
  for (timer_node* o : others) detail::destroy_timer(*o);
}

/// Whichever of its 16,384 tokens an entry has, it is moved when its timer was put off, and its
/// timer fires in time.
TEST_F(hybrid_engine, moves_an_entry_with_any_token) {
  int fired = 0;
  timer_node& t = start(
      1000 * second, [&] { ++fired; }, 1000 * second);
  for (int i = 1; i <= 16'500; ++i) {
    detail::reset_ticker(&t, 20 * ms);       // a new entry, with the next token
    detail::reset_timer_after(&t, 40 * ms);  // put off: the same entry
    ASSERT_EQ(fired, i - 1);
    check_at(now_ + 20 * ms);  // it comes up
    ASSERT_EQ(fired, i - 1) << "early";
    check_at(now_ + 20 * ms - 1);
    ASSERT_EQ(fired, i - 1) << "early";
    check_at(now_ + 1);
    ASSERT_EQ(fired, i) << "with its entry number " << i;
  }
  detail::destroy_timer(t);
}

/// The hint of an entry is 17 ms coarse. A reset to a time before the entry, and not by so much,
/// needs a new one.
TEST_F(hybrid_engine, fires_in_time_after_a_reset_to_a_little_earlier) {
  constexpr std::int64_t unit = std::int64_t{1} << detail::hybrid_tag::unit_bits;
  for (const std::int64_t earlier :
       {std::int64_t{1}, unit / 16, unit / 2, unit - 1, unit, unit + 1}) {
    for (const std::int64_t off :
         {std::int64_t{0}, std::int64_t{1}, unit / 16, unit / 2, unit - 1}) {
      const std::int64_t key = (now_ / unit + 10) * unit + off;
      int fired = 0;
      timer_node& t = start(key - now_, [&] { ++fired; });
      detail::reset_timer_at(&t, key - earlier, 0);
      SCOPED_TRACE(testing::Message() << "the entry is " << off << " after a round time, the reset "
                                      << earlier << " before it");
      fires_at(key - earlier, fired, 1);
      detail::destroy_timer(t);
    }
  }
}

/// A timer has an 18-bit hint of its entry's key: a time and one 73 minutes later have the same
/// hint. Whatever it is reset to, it must not reuse an entry that is later than that.
TEST_F(hybrid_engine, fires_in_time_though_the_hint_has_wrapped_around) {
  constexpr std::int64_t unit = std::int64_t{1} << detail::hybrid_tag::unit_bits;
  constexpr std::int64_t turn = unit << detail::hybrid_tag::hint_bits;
  std::mt19937_64 random(1);
  const auto up_to = [&](int n) { return static_cast<std::int64_t>(random() % (n + 1U)); };
  // Close to a whole number of turns from now, as a rule: a few units or nanoseconds off.
  const auto some_time = [&] {
    const std::int64_t off = (up_to(4) - 2) * unit + up_to(4) - 2;
    return std::max<std::int64_t>(up_to(3) * turn + (up_to(3) == 0 ? up_to(300) * unit : off), 0);
  };
  int fired = 0;
  int expected = 0;
  std::int64_t due = 0;  // 0: it is not armed
  const auto starts = [&](std::int64_t delay) {
    due = now_ + delay;
    return delay;
  };
  timer_node* t = &start(starts(turn), [&] { ++fired; });
  for (int i = 0; i < scale(50'000, 10'000); ++i) {
    switch (random() % 6) {
      case 0:
        EXPECT_EQ(detail::stop_timer(t), due != 0);
        due = 0;
        break;
      case 1:
        detail::destroy_timer(*t);
        t = &start(starts(some_time()), [&] { ++fired; });
        break;
      case 2:
        now_ = due == 0 ? now_ + some_time() : due - static_cast<std::int64_t>(random() % 2);
        break;
      case 3:
        now_ += some_time() / 8;
        break;
      default: {
        const bool was_armed = due != 0;
        EXPECT_EQ(detail::reset_timer_after(t, starts(some_time())), was_armed);
      }
    }
    check();
    if (due != 0 && due <= now_) {
      ++expected;
      due = 0;
    }
    ASSERT_EQ(fired, expected) << "in step " << i;
    ASSERT_EQ(engine().verify(), "") << "in step " << i;
  }
  EXPECT_GT(fired, 500);
  detail::destroy_timer(*t);
}

TEST_F(hybrid_engine, makes_one_entry_for_many_deadlines_that_go_up_and_down) {
  std::vector<timer_node*> others;
  for (int i = 0; i < 10'000; ++i) others.push_back(&start(2000 * second, [] {}));
  int fired = 0;
  timer_node& t = start(1000 * second, [&] { ++fired; });
  detail::reset_timer_after(&t, 900 * second);
  ASSERT_EQ(counts().deleted, 1U);
  for (int i = 0; i < 600; ++i) {
    EXPECT_TRUE(detail::reset_timer_after(&t, (i * 7 % 600 + 300) * second));
  }
  EXPECT_EQ(counts().deleted, 1U);
  detail::reset_timer_after(&t, 500 * second);
  const std::int64_t due = now_ + 500 * second;
  for (now_ += 10 * second; now_ < due; now_ += 10 * second) check();
  fires_at(due, fired, 1);
  EXPECT_EQ(engine().verify(), "");
  detail::destroy_timer(t);
  for (timer_node* o : others) detail::destroy_timer(*o);
}

TEST_F(hybrid_engine, keeps_its_memory_in_proportion_to_live_timers) {
  std::mt19937_64 random(1);
  const auto delay = [&] { return second + static_cast<std::int64_t>(random() % (60 * second)); };
  std::vector<timer_node*> all;
  for (int i = 0; i < 10'000; ++i) all.push_back(&start(delay(), [] {}));
  std::size_t after_the_first = 0;
  for (int i = 0; i < scale(3'000'000, 300'000); ++i) {
    timer_node*& t = all[random() % all.size()];
    detail::destroy_timer(*t);
    t = &start(delay(), [] {});
    if (i % 128 == 0) {
      const auto c = counts();
      ASSERT_EQ(c.live, all.size());
      ASSERT_LE(c.deleted, c.live + 2048);
    }
    if (i == 100'000) after_the_first = engine().bytes() + timers().memory().nodes_total * 64;
  }
  EXPECT_LE(engine().bytes() + timers().memory().nodes_total * 64,
            after_the_first + after_the_first / 8);
  EXPECT_EQ(engine().verify(), "");
  for (timer_node* t : all) detail::destroy_timer(*t);
}

TEST_F(hybrid_engine, sweeps_before_a_sleep_if_more_than_half_are_stopped) {
  std::vector<timer_node*> all;
  for (int i = 0; i < 30; ++i) all.push_back(&start(second, [] {}));
  auto stop_until = [&, stopped = std::size_t{0}](std::size_t n) mutable {
    for (; stopped < n; ++stopped) detail::stop_timer(all[stopped]);
  };
  stop_until(15);
  EXPECT_FALSE(engine().tidy_before_sleep(2));
  EXPECT_EQ(counts().deleted, 15U);
  stop_until(20);
  EXPECT_TRUE(engine().tidy_before_sleep(2));
  EXPECT_EQ(counts().deleted, 0U);
  EXPECT_EQ(counts().live, 10U);
  for (timer_node* t : all) detail::destroy_timer(*t);
}

/// A thread that is about to sleep has no time for more.
TEST_F(hybrid_engine, sweeps_no_more_than_4096_entries_before_a_sleep) {
  for (const int entries : {4096, 4097}) {
    std::vector<timer_node*> all;
    for (int i = 0; i < entries; ++i) all.push_back(&start(3600 * second, [] {}));
    for (int i = 0; i < 2100; ++i) detail::stop_timer(all[static_cast<std::size_t>(i)]);
    ASSERT_EQ(counts().deleted, 2100U);
    EXPECT_EQ(engine().tidy_before_sleep(2), entries == 4096);
    for (timer_node* t : all) detail::destroy_timer(*t);
    now_ += 3600 * second;
    check();
    ASSERT_EQ(counts().deleted, 0U);
  }
}

/// No thread wakes for those that were stopped, however many slots of the wheel they are in.
TEST_F(hybrid_engine, looks_ahead_past_stopped_timers_before_a_short_sleep) {
  std::vector<timer_node*> all;
  for (int i = 0; i < 40; ++i) all.push_back(&start(ms + i * 70'000, [] {}));
  const std::int64_t last = now_ + ms + 39 * 70'000;
  for (int i = 0; i < 39; ++i) EXPECT_TRUE(detail::stop_timer(all[i]));
  engine().look_ahead(1, now_ + 4 * ms);
  EXPECT_LT(engine().next_when(0), last) << "those of another processor";
  // Each look does a bounded amount of work.
  for (int n = 0; n < 2; ++n) engine().look_ahead(0, now_ + 4 * ms);
  EXPECT_EQ(engine().next_when(0), last);
  EXPECT_EQ(counts().deleted, 0U);
  EXPECT_EQ(engine().verify(), "");
  check_at(last - 1);
  EXPECT_EQ(counts().live, 1U);
  check_at(last);
  EXPECT_EQ(counts().live, 0U);
  for (timer_node* t : all) detail::destroy_timer(*t);
}

TEST_F(hybrid_engine, looks_ahead_only_if_no_thread_has_the_lock) {
  timer_node& first = start(ms, [] {});
  timer_node& second = start(2 * ms, [] {});
  EXPECT_TRUE(detail::stop_timer(&first));
  {
    const std::lock_guard preempted(hybrid_access::lock(engine(), 0));
    engine().look_ahead(0, now_ + 4 * ms);  // a wait would never end
    EXPECT_EQ(engine().next_when(0), now_ + ms);
  }
  engine().look_ahead(0, now_ + 4 * ms);
  EXPECT_EQ(engine().next_when(0), now_ + 2 * ms);
  detail::destroy_timer(first);
  detail::destroy_timer(second);
}

TEST_F(hybrid_engine, looks_ahead_in_a_bounded_amount_of_work) {
  std::vector<timer_node*> all;
  for (int i = 0; i < 200; ++i) all.push_back(&start(ms + i, [] {}));
  ASSERT_EQ(engine().next_exactly(0), now_ + ms);
  for (timer_node* t : all) EXPECT_TRUE(detail::stop_timer(t));
  engine().look_ahead(0, now_ + 4 * ms);
  EXPECT_EQ(counts().deleted, 200U - 32U);
  EXPECT_EQ(engine().next_when(0), now_ + ms + 32);
  for (timer_node* t : all) detail::destroy_timer(*t);
}

/// Only the sum is known: each has its share of that, rounded down to the next.
TEST_F(hybrid_engine, counts_live_timers_by_the_share_of_each_processor) {
  this_processor = 0;
  timer_node& stopped = start(second, [] {});
  this_processor = 1;
  timer_node& live = start(second, [] {});
  this_processor = 0;
  detail::stop_timer(&stopped);
  EXPECT_EQ(engine().counts(0).live, 0U);
  EXPECT_EQ(engine().counts(0).deleted, 1U);
  EXPECT_EQ(engine().counts(1).live, 1U);
  EXPECT_EQ(engine().counts(1).deleted, 0U);
  detail::destroy_timer(stopped);
  detail::destroy_timer(live);
}

TEST_F(hybrid_engine, sweeps_what_is_stopped_by_a_thread_that_starts_nothing) {
  std::vector<timer_node*> all;
  for (int i = 0; i < 100'000; ++i) all.push_back(&start(second + i * 1000, [] {}));
  std::thread([&] {
    this_processor = 1;
    for (timer_node* t : all) {
      detail::stop_timer(t);
      const auto c = counts();
      ASSERT_LE(c.deleted, c.live + 2048);
    }
  }).join();
  EXPECT_EQ(counts().live, 0U);
  for (timer_node* t : all) detail::destroy_timer(*t);
}

/// With a fixed interval of 256 stops a look at 64 processors, with as many threads, would fetch
/// 192 lines: three for every four stops.
TEST(hybrid_looks, fetch_no_more_lines_per_stop_however_many_processors_there_are) {
  using detail::hybrid;
  for (unsigned n = 1; n <= 256; ++n) {
    const auto lines = static_cast<double>(hybrid::lines_per_look(n, n));
    const auto stops = static_cast<double>(hybrid::stops_per_look(n, n));
    EXPECT_LE(lines / stops, 0.05) << n << " processors";
    EXPECT_LE(lines / stops, 1.01 * 3 / 64) << n << " processors";
  }
  EXPECT_EQ(hybrid::lines_per_look(64, 64), 192u);
  EXPECT_EQ(hybrid::stops_per_look(64, 64), 4096u);
  EXPECT_EQ(hybrid::stops_per_look(4, 4), 256u);
  EXPECT_LE(hybrid::stops_per_look(256, 256) * 8, 128u << 10) << "bytes of entries for each thread";
}

TEST_F(hybrid_engine, checks_for_stale_entries_less_often_on_many_processors) {
  constexpr unsigned processors = 64;
  engine().grow(processors);
  const std::uint64_t interval =
      detail::hybrid::stops_per_look(detail::thread_slots_used() + 1, processors);
  // Nearly all of them are stopped before it checks, so that any earlier check would begin to
  // sweep.
  std::vector<timer_node*> all;
  for (std::uint64_t i = 0; i < interval + 200; ++i) all.push_back(&start(second, [] {}));
  std::size_t stopped = 0;
  const auto stop_until = [&](std::size_t n) {
    for (; stopped < n; ++stopped) detail::stop_timer(all[stopped]);
  };
  stop_until(interval - 64);
  EXPECT_EQ(counts().deleted, interval - 64) << "it has not checked yet";
  stop_until(all.size());
  EXPECT_LT(counts().deleted, 2000U) << "it has, and swept";
  for (timer_node* t : all) detail::destroy_timer(*t);
}

/// Threads beyond those that have a place of their own count in one that they share.
TEST_F(hybrid_engine, counts_timers_of_more_threads_than_have_a_number) {
  constexpr int threads = static_cast<int>(detail::thread_slot_count) + 4;
  constexpr std::size_t each = 50;
  constexpr std::size_t busy = 4000;
  std::barrier all(threads);
  std::mutex mutex;
  std::vector<timer_node*> left;
  std::atomic<int> without{0};
  std::vector<std::thread> running;
  running.reserve(threads);
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&] {
      const bool shares = detail::take_thread_slot() >= detail::thread_slot_count;
      all.arrive_and_wait();                      // all numbers are taken
      if (!shares) return all.arrive_and_wait();  // it keeps its number until then
      ++without;
      // Enough stops for it to look after what they leave behind.
      for (std::size_t n = 0; n < busy; ++n) {
        timer_node& t = start(second, [] {});
        detail::stop_timer(&t);
        detail::destroy_timer(t);
      }
      // As often as possible at the same time.
      timer_node& again = start(second, [] {});
      for (std::size_t n = 0; n < 10 * busy; ++n) {
        detail::stop_timer(&again);
        detail::reset_timer_after(&again, second);
      }
      detail::destroy_timer(again);
      for (std::size_t n = 0; n < each; ++n) {
        timer_node& t = start(second, [] {});
        const std::lock_guard held(mutex);
        left.push_back(&t);
      }
      all.arrive_and_wait();
    });
  }
  for (auto& t : running) t.join();
  EXPECT_GE(without, 4);
  EXPECT_EQ(engine().counts(0).live + engine().counts(1).live, left.size());
  EXPECT_LE(counts().deleted, left.size() + 3000) << "stopped timers do not pile up";
  EXPECT_EQ(engine().verify(), "");
  for (timer_node* t : left) {
    EXPECT_TRUE(detail::stop_timer(t));
    detail::destroy_timer(*t);
  }
  EXPECT_EQ(counts().live, 0U);
}

/// As many threads as have a number of their own, which keep it: the others have none.
class all_numbers_taken {
 public:
  all_numbers_taken() {
    for (unsigned i = 0; i < detail::thread_slot_count; ++i) {
      threads_.emplace_back([this] {
        detail::take_thread_slot();
        steps_.arrive_and_wait();
        steps_.arrive_and_wait();
      });
    }
    steps_.arrive_and_wait();
  }
  ~all_numbers_taken() {
    steps_.arrive_and_wait();
    for (auto& t : threads_) t.join();
  }
  all_numbers_taken(const all_numbers_taken&) = delete;
  all_numbers_taken& operator=(const all_numbers_taken&) = delete;

 private:
  std::barrier<> steps_{detail::thread_slot_count + 1};
  std::vector<std::thread> threads_;
};

/// Also just before and just after it has looked whether to sweep.
TEST_F(hybrid_engine, counts_each_timer_of_a_thread_without_a_number) {
  const all_numbers_taken others;
  constexpr std::uint64_t all =
      detail::hybrid::stops_per_look(detail::thread_slot_count, 2) + std::uint64_t{10};
  std::thread([&] {
    ASSERT_GE(detail::take_thread_slot(), detail::thread_slot_count);
    std::vector<timer_node*> timers;
    for (std::uint64_t n = 1; n <= all; ++n) timers.push_back(&start(second, [] {}));
    ASSERT_EQ(counts().live, all);
    for (std::uint64_t stopped = 1; stopped <= all; ++stopped) {
      EXPECT_TRUE(detail::stop_timer(timers[stopped - 1]));
      if (stopped > 10 && stopped < all - 20) continue;
      ASSERT_EQ(counts().live, all - stopped);
      const detail::timer_totals totals = engine().totals();
      ASSERT_EQ(totals.started, all);
      ASSERT_EQ(totals.stopped, stopped);
    }
    for (timer_node* t : timers) detail::destroy_timer(*t);
  }).join();
}

/// Also where time is simulated, and nothing else looks at timers that were destroyed.
TEST_F(hybrid_engine, destroys_what_it_finds_stopped_when_it_is_asked_for_the_first_time) {
  const auto payload = std::make_shared<int>(0);
  for (const bool ahead : {false, true}) {
    for (int i = 0; i < 10; ++i) {
      timer_node& t = start((i + 1) * ms, [payload] {});
      EXPECT_TRUE(detail::stop_timer(&t));
      timers().release(t);
    }
    EXPECT_EQ(payload.use_count(), 11) << "their entries keep them";
    timer_node& last = start(second, [] {});
    if (ahead) {
      engine().look_ahead(0, now_ + second);
    } else {
      EXPECT_EQ(engine().next_exactly(0), now_ + second);
    }
    EXPECT_EQ(payload.use_count(), 1);
    detail::destroy_timer(last);
  }
}

/// Also where the memory of another timer is used again.
TEST_F(hybrid_engine, makes_nodes_that_do_nothing_yet) {
  for (int i = 0; i < 3; ++i) {
    const timer_node& t = timers().make();
    EXPECT_EQ(t.does.load(), nullptr);
    EXPECT_EQ(t.run, nullptr);
    EXPECT_EQ(t.next, nullptr);
    EXPECT_EQ(t.refs, 1U);
    EXPECT_EQ(t.runs, 0U);
    timers().free(const_cast<timer_node&>(t));
    timer_node& used = start(ms, [] {});
    check_at(now_ + ms);
    detail::destroy_timer(used);
  }
}

class telling_engine : public hybrid_engine {
 public:
  void timer_fired(std::int64_t when, std::int64_t now) noexcept override {
    hybrid_engine::timer_fired(when, now);
    told_.push_back(when);
  }

 protected:
  std::vector<std::int64_t> told_;
};

TEST_F(telling_engine, tells_its_host_of_each_timer_that_fires) {
  const std::int64_t begin = now_;
  std::vector<timer_node*> timers;
  for (int i = 1; i <= 5; ++i) timers.push_back(&start(i * second, [] {}));
  detail::stop_timer(timers[2]);
  check_at(begin + 4 * second);
  EXPECT_EQ(told_,
            (std::vector<std::int64_t>{begin + second, begin + 2 * second, begin + 4 * second}));
  for (timer_node* t : timers) detail::destroy_timer(*t);
}

/// Its host may not exist any more.
class drained_engine : public hybrid_engine {
 protected:
  unsigned home_processor() noexcept override {
    ++asked_;
    return hybrid_engine::home_processor();
  }
  int asked_ = 0;
};

TEST_F(drained_engine, asks_its_host_for_nothing_when_a_timer_is_stopped) {
  timer_node& t = start(second, [] {});
  engine().drain();
  for (int i = 0; i < 2000; ++i) {
    engine().reset(t, now_ + second, 0);
    const int before = asked_;
    EXPECT_TRUE(engine().stop(t));
    ASSERT_EQ(asked_, before);
  }
  detail::destroy_timer(t);
}

/// Each entry that a reset leaves is counted twice, one after the other.
TEST_F(hybrid_engine, counts_no_stop_while_timers_are_reset) {
  std::atomic<bool> over{false};
  std::thread resets([&] {
    timer_node& t = start(1000 * second, [] {});
    for (int i = 0; i < scale(100'000, 20'000); ++i) {
      detail::reset_timer_after(&t, (i % 2 == 0 ? 500 : 1000) * second);
    }
    over = true;
    detail::destroy_timer(t);
  });
  std::uint64_t stopped = 0;
  while (!over) stopped = std::max(stopped, engine().totals().stopped);
  resets.join();
  EXPECT_LE(stopped, 1U) << "that at the end";
}

TEST_F(hybrid_engine, does_a_bounded_amount_of_work_at_a_time) {
  constexpr int many = 100'000;
  int fired = 0;
  std::vector<timer_node*> all;
  for (int i = 0; i < many; ++i) all.push_back(&start(second + i, [&] { ++fired; }));
  now_ += 10 * second;
  unsigned looks = 0;
  while (fired < many) {
    const int before = fired;
    engine().check_timers(0, now_, true);
    ASSERT_LE(fired - before, 128);
    ++looks;
    ASSERT_LE(looks, 10'000U);
  }
  EXPECT_GE(looks, unsigned{many / 128});
  for (timer_node* t : all) detail::destroy_timer(*t);
}

/// They are put into smaller slots, in several steps, between which it lets others in.
TEST_F(hybrid_engine, empties_a_slot_of_many_chunks_in_one_look) {
  constexpr unsigned slot_bits = 28;
  const std::int64_t slot = ((now_ >> slot_bits) + 3) << slot_bits;
  std::vector<timer_node*> all;
  for (int i = 0; i < 600; ++i) all.push_back(&start(slot - now_ + ms + i * 100'000, [] {}));
  timer_node& put_off = start(slot - now_, [] {});
  detail::reset_timer_after(&put_off, slot - now_ + second);
  all.push_back(&put_off);
  ASSERT_EQ(engine().next_when(0), slot);
  now_ = slot;
  EXPECT_EQ(engine().check_timers(0, slot, true).ran, 0U);
  EXPECT_GT(engine().next_when(0), slot);
  for (timer_node* t : all) detail::destroy_timer(*t);
}

TEST_F(hybrid_engine, moves_all_timers_of_a_processor) {
  int fired = 0;
  std::vector<timer_node*> all;
  for (int i = 0; i < 20'000; ++i) {
    const auto delay = std::int64_t{1} << (i % 50);
    all.push_back(&start(delay + i, [&] { ++fired; }));
  }
  now_ += 1000;
  engine().move_timers(0, 1);
  EXPECT_EQ(engine().counts(0).live, 0U);
  EXPECT_EQ(engine().counts(1).live, 20'000U);
  EXPECT_EQ(engine().verify(), "");
  while (engine().next_exactly(1) != 0) {
    now_ = std::max(now_, engine().next_exactly(1));
    check();
  }
  EXPECT_EQ(fired, 20'000);
  for (timer_node* t : all) detail::destroy_timer(*t);
}

TEST_F(hybrid_engine, waits_for_no_lock_while_that_of_another_processor_is_free) {
  int fired = 0;
  const auto count = [&] { ++fired; };
  timer_node& reset = start(10 * second, count);
  timer_node* started = nullptr;
  {
    const std::lock_guard preempted(hybrid_access::lock(engine(), 0));
    started = &start(second, count);                       // a wait would never end
    detail::reset_timer_at(&reset, now_ + 2 * second, 0);  // earlier: needs a new entry
    EXPECT_TRUE(detail::stop_timer(started));
    detail::reset_timer_at(started, now_ + second / 2, 0);
  }
  EXPECT_EQ(engine().counts(0).live + engine().counts(1).live, 2U);
  EXPECT_EQ(engine().next_when(1), now_ + second / 2);
  EXPECT_EQ(engine().verify(), "");
  fires_at(now_ + second / 2, fired, 1);
  fires_at(now_ + second + second / 2, fired, 2);
  detail::destroy_timer(*started);
  detail::destroy_timer(reset);
}

/// One thread has a slot of many chunks to move, and another starts timers meanwhile, in the same
/// wheel: it is let in between two pieces, and `next` is right for it.
TEST_F(hybrid_engine, lets_a_start_in_while_a_large_slot_is_moved) {
  const int many = scale(400'000, 100'000);
  std::atomic<int> fired{0};
  std::vector<timer_node*> all;
  for (int i = 0; i < many; ++i) all.push_back(&start(20 * second + i, [&] { ++fired; }));
  const std::int64_t slot = now_ + 20 * second;
  now_ = slot - 1;
  std::atomic<bool> moved{false};
  std::thread mover([&] {
    while (engine().next_when(0) != 0 && engine().next_when(0) <= slot) {
      engine().check_timers(0, slot, true);
    }
    moved = true;
  });
  std::vector<timer_node*> more;
  while (!moved || more.size() < 100) {
    more.push_back(&start(second, [&] { ++fired; }));
    const std::int64_t own = engine().next_when(0);
    const std::int64_t other = engine().next_when(1);
    const std::int64_t due = now_ + second;
    ASSERT_TRUE((own != 0 && own <= due) || (other != 0 && other <= due));
    if (more.size() == 100'000) break;
  }
  mover.join();
  EXPECT_EQ(engine().verify(), "");
  check_at(slot + 2 * second);
  EXPECT_EQ(fired, many + static_cast<int>(more.size()));
  for (timer_node* t : all) detail::destroy_timer(*t);
  for (timer_node* t : more) detail::destroy_timer(*t);
}

/// All operations of handles, on both processors, against a sorted map.
class hybrid_model : public hybrid_engine {
 protected:
  struct timer {
    timer_node* node;
    std::int64_t when;  ///< 0: not armed
  };

  std::int64_t delay() {
    return static_cast<std::int64_t>(random_() & ((std::uint64_t{1} << random_() % 44) - 1)) + 1;
  }
  void fired(std::size_t i) {
    ASSERT_NE(all_[i].when, 0) << "timer " << i << " fires and is not armed";
    ASSERT_LE(all_[i].when, now_) << "timer " << i << " fires early";
    // One processor's timers in order: those that were due before it there have fired.
    ASSERT_GE(all_[i].when, last_[processor_]) << "timer " << i << " fires out of order";
    last_[processor_] = all_[i].when;
    all_[i].when = 0;
    --armed_;
  }
  void start_one() {
    const std::int64_t d = delay();
    const std::size_t i = all_.size();
    all_.push_back({nullptr, now_ + d});
    ++armed_;
    all_[i].node = &start(d, [this, i] { fired(i); });
  }
  void step() {
    this_processor = static_cast<unsigned>(random_() % 2);
    const auto what = random_() % 100;
    timer& t = all_.empty() ? none_ : all_[random_() % all_.size()];
    if (what < 30 || all_.empty()) {
      if (all_.size() < 5000) start_one();
    } else if (what < 50) {
      ASSERT_EQ(detail::stop_timer(t.node), t.when != 0);
      armed_ -= t.when != 0;
      t.when = 0;
    } else if (what < 90) {
      const std::int64_t d = delay();
      ASSERT_EQ(detail::reset_timer_after(t.node, d), t.when != 0);
      armed_ += t.when == 0;
      t.when = now_ + d;
    } else if (what < 91) {
      engine().move_timers(0, 1);
    } else {
      now_ += delay() >> random_() % 20;
      run_due();
    }
  }
  void run_due() {
    for (processor_ = 0; processor_ < 2; ++processor_) {
      last_[processor_] = 0;
      for (std::int64_t next = 0; (next = engine().next_when(processor_)) != 0 && next <= now_;) {
        engine().check_timers(processor_, now_, true);
      }
    }
    for (std::size_t i = 0; i < all_.size(); ++i) {
      ASSERT_TRUE(all_[i].when == 0 || all_[i].when > now_) << "timer " << i << " has not fired";
    }
    ASSERT_EQ(engine().verify(), "");
    ASSERT_EQ(counts().live, armed_);
  }

  std::mt19937_64 random_{1};
  std::vector<timer> all_;
  timer none_{};
  std::uint64_t armed_ = 0;
  unsigned processor_ = 0;
  std::int64_t last_[2] = {0, 0};
};

TEST_F(hybrid_model, does_what_a_sorted_map_does) {
  for (std::uint64_t seed = 1; seed <= scale<std::uint64_t>(10, 2); ++seed) {
    SCOPED_TRACE(seed);
    random_.seed(seed);
    for (int i = 0; i < 20'000; ++i) {
      step();
      if (HasFatalFailure()) return;
    }
    for (const timer& t : all_) detail::destroy_timer(*t.node);
    all_.clear();
    armed_ = 0;
  }
  this_processor = 0;
}

/// A host on which a thread that is to wake the sleeper loses its core first.
class preempted_waker : public testing::Test, public lone_engine {
 protected:
  explicit preempted_waker() : lone_engine(verge::engine::hybrid) {}

  void wake_net_poller(std::int64_t when) noexcept override { woken_for_.push_back(when); }
  bool sleeps_past(std::int64_t when) const noexcept override { return when < sleeps_until_; }

  std::int64_t sleeps_until_ = 0;
  std::vector<std::int64_t> woken_for_;
};

/// As long as the sleeper sleeps past a new entry, its thread wakes it, though another came first
/// and its thread was to do so.
TEST_F(preempted_waker, is_replaced_by_the_next_thread_that_makes_an_entry) {
  timer_node& first = start(second, [] {});
  woken_for_.clear();
  timer_node& second_one = start(2 * second, [] {});
  EXPECT_TRUE(woken_for_.empty()) << "none sleeps";
  sleeps_until_ = now_ + 3600 * second;  // for the first there was no wake-up
  timer_node& third = start(3 * second, [] {});
  EXPECT_EQ(woken_for_.size(), 1U);
  sleeps_until_ = now_ + second;
  timer_node& fourth = start(4 * second, [] {});
  EXPECT_EQ(woken_for_.size(), 1U) << "it wakes in time";
  for (timer_node* t : {&first, &second_one, &third, &fourth}) detail::destroy_timer(*t);
}

}  // namespace
}  // namespace verge::test
