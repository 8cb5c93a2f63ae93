// SPDX-License-Identifier: Apache-2.0

// hybrid_timers alone, on one thread: what another one does at the worst moment is done by the test
// just before a compare-and-swap that it chooses. The table of races at the head of
// hybrid_timers.h, each with its one outcome; all their schedules are the business of
// hybrid_explorer_test.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include <queue/hybrid_timers.h>

namespace verge::detail {
namespace {

/// What another thread does meanwhile, once: before so many swaps and no earlier.
struct other_thread {
  std::function<void()> does;
  int swaps_before = 0;

  void may_act() {
    if (does && swaps_before-- == 0) std::exchange(does, nullptr)();
  }
};
other_thread other;

struct contended_word {
  std::atomic<std::uint64_t> value{0};

  std::uint64_t load(std::memory_order o) const { return value.load(o); }
  void store(std::uint64_t v, std::memory_order o) { value.store(v, o); }
  bool compare_exchange_strong(std::uint64_t& from, std::uint64_t to, std::memory_order yes,
                               std::memory_order no) {
    other.may_act();
    return value.compare_exchange_strong(from, to, yes, no);
  }
};

struct test_node {
  contended_word word;
  std::atomic<std::uint32_t> tag{0};
  std::int64_t period = 0;
  std::uint32_t id = 0;
  int references = 0;  ///< for being armed, and of firings
  bool precise = false;
};

/// It is not taken twice, and what must be called without it is.
struct test_lock {
  void lock() { EXPECT_FALSE(std::exchange(held, true)) << "a thread would wait for itself"; }
  void unlock() { held = false; }
  bool held = false;
};

struct test_policy {
  template <class T>
  using atomic = std::atomic<T>;
  using lock = test_lock;
  using node = test_node;
  using timers = hybrid_timers<test_policy>;
  struct directory {
    std::vector<node>* all;
    static std::uint32_t id_of(const node& t) { return t.id; }
    node& at(std::uint32_t id) const { return all->at(id); }
    void prefetch(std::uint32_t) const {}
  };
  struct chunks {
    void* allocate() { return std::malloc(timer_wheel<chunks>::chunk_bytes); }
    void free(void* p) { std::free(p); }
  };
  static auto& word(node& t) { return t.word; }
  static auto& tag(node& t) { return t.tag; }
  static std::int64_t& period(node& t) { return t.period; }
  static bool precise(node& t) { return t.precise; }
  static void acquire(node& t) { ++t.references; }
  static void release(node& t) { --t.references; }
  static void release_locked(timers&, node& t) { --t.references; }
  static void yield() { other.may_act(); }
  static void wake_net_poller(timers& ts, std::int64_t when) {
    EXPECT_FALSE(ts.lock.held);
    woken_for.push_back(when);
  }
  static bool sleeps_past(const timers&, std::int64_t when) { return when < sleeper; }

  inline static std::vector<std::int64_t> woken_for;
  inline static std::int64_t sleeper = 0;  ///< until when a thread sleeps
  inline static std::size_t many_entries = 0;
};

using timers = test_policy::timers;
using change = timers::change;
using times = std::vector<std::int64_t>;

constexpr std::int64_t s = 1'000'000'000;
/// In the middle of a slot of the lowest level.
constexpr std::int64_t at = (std::int64_t{55'000'000} << 16) + 40'000;

/// Its entry is in the wheel's heap, or in a slot that is moved before it comes up.
enum class entry_in : std::uint8_t { heap, slot };

class hybrid_timer : public testing::TestWithParam<entry_in> {
 protected:
  hybrid_timer() {
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) nodes_[i].id = i;
    other = {};
    test_policy::woken_for.clear();
    test_policy::sleeper = 0;
    test_policy::many_entries = 4096;
  }

  void start(std::int64_t when, std::int64_t period = 0) { start(t_, when, period); }
  void start(test_node& t, std::int64_t when, std::int64_t period = 0) {
    ++t.references;
    ts_.start(t, when, period);
  }
  /// The times of what fires.
  times run(std::int64_t now, std::size_t most = 8) {
    struct {
      test_node* timer;
      std::int64_t when;
    } out[8];
    unsigned steps = 1000;
    times fired;
    const std::size_t n = ts_.collect(now, out, most, steps);
    for (std::size_t i = 0; i < n; ++i) {
      --out[i].timer->references;
      fired.push_back(out[i].when);
    }
    return fired;
  }
  static void before_swap(int n, std::function<void()> does) { other = {std::move(does), n}; }
  [[nodiscard]] std::uint64_t word() const { return t_.word.value; }
  [[nodiscard]] std::uint32_t token() const { return hybrid_tag::token(t_.tag); }
  void stop() { EXPECT_TRUE(timers::stop(t_)); }
  change put_off_to(std::int64_t when) { return timers::reset_in_place(t_, when, 0); }
  /// One that is due at that time, and whose entry comes up at `at`.
  void start_and_put_off_to(std::int64_t when) {
    start(at);
    EXPECT_EQ(put_off_to(when), change::was_armed);
  }
  /// It is over with the timer: no other reference, no entry.
  void expect_disarmed() {
    EXPECT_FALSE(other.does) << "the race did not take place";
    EXPECT_EQ(hybrid_word::due(word()), 0);
    EXPECT_EQ(t_.references, 0);
    EXPECT_EQ(run(at + 1000 * s), times{});
    EXPECT_EQ(ts_.entries, 0U);
    EXPECT_EQ(ts_.next, 0);
  }
  void expect_due(std::int64_t when) {
    EXPECT_FALSE(other.does) << "the race did not take place";
    EXPECT_EQ(t_.references, 1);
    EXPECT_EQ(run(when - 1), times{});
    EXPECT_LE(ts_.next, when) << "a thread would sleep past it";
    EXPECT_EQ(run(when), times{when});
    expect_disarmed();
  }

  std::vector<test_node> nodes_{4};
  test_node& t_ = nodes_[1];
  timers ts_{{&nodes_}, {}, GetParam() == entry_in::heap ? at - 10'000 : s};
};

// ---- It fires, and another thread is there first ----

TEST_P(hybrid_timer, that_is_stopped_just_before_it_fires_does_not) {
  start(at);
  before_swap(0, [&] { stop(); });
  EXPECT_EQ(run(at), times{});
  EXPECT_EQ(word(), 0U) << "its entry was dropped";
  EXPECT_EQ(ts_.fired, 0U);
  expect_disarmed();
}

TEST_P(hybrid_timer, that_is_put_off_just_before_it_fires_fires_later) {
  start(at);
  before_swap(0, [&] { EXPECT_EQ(put_off_to(at + s), change::was_armed); });
  EXPECT_EQ(run(at), times{});
  expect_due(at + s);
  EXPECT_EQ(ts_.fired, 1U);
}

TEST_P(hybrid_timer, that_is_started_again_as_its_entry_is_dropped_goes_on_with_it) {
  start(at);
  stop();
  before_swap(0, [&] { EXPECT_EQ(put_off_to(at + s), change::was_idle); });
  EXPECT_EQ(run(at), times{});
  expect_due(at + s);
}

TEST_P(hybrid_timer, whose_entry_is_dropped_gives_back_what_it_has_kept) {
  start(at);
  EXPECT_TRUE(timers::stop_keeping(t_));
  EXPECT_EQ(t_.references, 1);
  EXPECT_EQ(run(at), times{});
  expect_disarmed();
}

// ---- Its entry comes up too early, and is moved ----

TEST_P(hybrid_timer, that_is_stopped_just_before_its_entry_is_moved_has_none) {
  start_and_put_off_to(at + 10 * s);
  before_swap(0, [&] { stop(); });
  EXPECT_EQ(run(at), times{});
  expect_disarmed();
}

TEST_P(hybrid_timer, that_is_stopped_while_its_entry_is_moved_has_none) {
  start_and_put_off_to(at + 10 * s);
  before_swap(1, [&] { stop(); });
  EXPECT_EQ(run(at), times{});
  EXPECT_EQ(word(), 0U);
  EXPECT_EQ(ts_.entries, 0U);
  EXPECT_FALSE(ts_.comes_earlier());
  expect_disarmed();
}

TEST_P(hybrid_timer, that_is_stopped_and_started_while_its_entry_is_moved_is_due_then) {
  start_and_put_off_to(at + 10 * s);
  before_swap(1, [&] {
    stop();
    EXPECT_EQ(put_off_to(at + 20 * s), change::was_idle);
  });
  EXPECT_EQ(run(at), times{});
  expect_due(at + 20 * s);
}

TEST_P(hybrid_timer, that_is_reset_while_its_entry_is_moved_says_if_that_is_earlier) {
  for (const std::int64_t to : {5, 10, 20}) {
    SCOPED_TRACE(to);
    start_and_put_off_to(at + 10 * s);
    before_swap(1, [&] { EXPECT_EQ(put_off_to(at + to * s), change::was_armed); });
    EXPECT_EQ(run(at), times{});
    EXPECT_EQ(ts_.comes_earlier(), to < 10);
    EXPECT_FALSE(ts_.comes_earlier()) << "said once";
    expect_due(at + to * s);
  }
}

/// The entry comes up between the look at its tag and the swap: it is late for the time now.
TEST_P(hybrid_timer, whose_entry_is_moved_while_it_is_reset_gets_a_new_one) {
  start_and_put_off_to(at + 60 * s);
  before_swap(0, [&] { EXPECT_EQ(run(at), times{}); });
  EXPECT_TRUE(ts_.reset(t_, at + 30 * s, 0));
  expect_due(at + 30 * s);
}

TEST_P(hybrid_timer, whose_entry_is_moved_while_it_is_put_off_keeps_it) {
  start_and_put_off_to(at + 60 * s);
  before_swap(0, [&] { EXPECT_EQ(run(at), times{}); });
  EXPECT_TRUE(ts_.reset(t_, at + 90 * s, 0));
  EXPECT_EQ(ts_.entries, 1U);
  EXPECT_TRUE(ts_.reset(t_, at + 89 * s, 0)) << "earlier, and its entry is early enough";
  EXPECT_EQ(ts_.entries, 1U);
  expect_due(at + 89 * s);
}

TEST_P(hybrid_timer, that_is_stopped_before_it_gets_a_new_entry_gets_none) {
  start_and_put_off_to(at + 60 * s);
  before_swap(0, [&] {
    EXPECT_EQ(run(at), times{});
    before_swap(1, [&] { stop(); });  // before the swap of the one that makes the entry
  });
  EXPECT_TRUE(ts_.reset(t_, at + 30 * s, 0));
  EXPECT_EQ(ts_.entries, 1U) << "the old one";
  expect_disarmed();
}

// ---- It is reset to an earlier time, which needs an entry ----

TEST_P(hybrid_timer, that_is_stopped_just_before_its_reset_was_idle) {
  start(at + 60 * s);
  before_swap(0, [&] { stop(); });
  EXPECT_FALSE(ts_.reset(t_, at, 0));
  expect_due(at);
}

TEST_P(hybrid_timer, that_is_stopped_in_the_middle_of_its_reset_stays_so) {
  start(at + 60 * s);
  before_swap(1, [&] { stop(); });
  EXPECT_TRUE(ts_.reset(t_, at, 0));
  expect_disarmed();
}

TEST_P(hybrid_timer, that_is_reset_in_the_middle_of_its_reset_is_due_at_the_later_ones_time) {
  for (const std::int64_t to : {-5, 5}) {
    start(at + 60 * s);
    before_swap(1, [&] { EXPECT_EQ(put_off_to(at + to * s), change::was_armed); });
    EXPECT_TRUE(ts_.reset(t_, at, 0));
    expect_due(at + to * s);
  }
}

TEST_P(hybrid_timer, that_another_is_entering_is_left_to_that_with_its_time_alone) {
  start(at + 60 * s);
  t_.word.value |= hybrid_word::entering;
  EXPECT_TRUE(ts_.finish_reset(change::needs_entry, t_, at, 0));
  EXPECT_EQ(ts_.entries, 1U) << "the other makes the entry";
  EXPECT_EQ(hybrid_word::due(word()), at);
  EXPECT_NE(word() & hybrid_word::entering, 0U);
  EXPECT_EQ(t_.references, 1);
}

TEST_P(hybrid_timer, that_another_is_entering_and_is_stopped_while_it_is_put_off_was_idle) {
  start(at + 60 * s);
  t_.word.value |= hybrid_word::entering;
  before_swap(0, [&] { stop(); });
  EXPECT_EQ(put_off_to(at), change::was_idle);
  EXPECT_FALSE(other.does) << "the race did not take place";
  EXPECT_EQ(hybrid_word::due(word()), at);
  EXPECT_NE(word() & hybrid_word::entering, 0U);
}

TEST_P(hybrid_timer, that_another_is_entering_becomes_periodic_when_that_has_left) {
  start(at + 60 * s);
  t_.word.value |= hybrid_word::entering;
  bool waited = false;
  before_swap(0, [&] {  // it yields
    waited = true;
    t_.word.value &= ~hybrid_word::entering;
  });
  EXPECT_TRUE(ts_.reset(t_, at, s));
  EXPECT_TRUE(waited);
  EXPECT_EQ(run(at), times{at});
  EXPECT_EQ(run(at + s), times{at + s});
}

// ---- A stopped one ----

TEST_P(hybrid_timer, that_is_stopped_while_it_is_put_off_has_its_reference_again) {
  start(at);
  before_swap(0, [&] { stop(); });
  EXPECT_EQ(put_off_to(at + s), change::was_idle);
  expect_due(at + s);
}

TEST_P(hybrid_timer, whose_entry_is_swept_while_it_is_reset_needs_another) {
  start(at);
  stop();
  before_swap(0, [&] {
    while (!ts_.sweep(100)) {
    }
    EXPECT_EQ(ts_.entries, 0U);
  });
  EXPECT_FALSE(ts_.reset(t_, at + s, 0));
  expect_due(at + s);
}

TEST_P(hybrid_timer, that_has_kept_its_reference_takes_no_other_for_a_new_entry) {
  start(at + 60 * s);
  EXPECT_TRUE(timers::stop_keeping(t_));
  EXPECT_FALSE(ts_.reset(t_, at, 0));
  expect_due(at);
}

/// As after a reset whose entry was moved meanwhile.
TEST_P(hybrid_timer, gets_no_new_entry_if_it_is_stopped_or_another_is_entering_it) {
  start(at);
  t_.word.value |= hybrid_word::entering;
  EXPECT_FALSE(ts_.finish_reset(change::was_idle_needs_entry, t_, at, 0)) << "what it was";
  EXPECT_EQ(ts_.entries, 1U);
  t_.word.value &= ~hybrid_word::entering;
  EXPECT_TRUE(timers::stop_keeping(t_));
  EXPECT_TRUE(ts_.finish_reset(change::was_armed_needs_entry, t_, at, 0));
  EXPECT_EQ(ts_.entries, 1U);
  EXPECT_TRUE(timers::give_up(t_));
  --t_.references;
  expect_disarmed();
}

TEST_P(hybrid_timer, that_was_started_again_gives_nothing_up) {
  start(at);
  EXPECT_FALSE(timers::give_up(t_)) << "it is armed";
  EXPECT_TRUE(timers::stop_keeping(t_));
  before_swap(0, [&] { EXPECT_EQ(put_off_to(at + s), change::was_idle); });
  EXPECT_FALSE(timers::give_up(t_));
  expect_due(at + s);
  start(at + 2000 * s);
  EXPECT_TRUE(timers::stop_keeping(t_));
  EXPECT_TRUE(timers::give_up(t_));
  EXPECT_FALSE(timers::give_up(t_)) << "it has none now";
  EXPECT_TRUE(timers::start_again(t_, at + 2001 * s)) << "its entry is there yet";
}

TEST_P(hybrid_timer, whose_end_is_disturbed_is_unusual) {
  using enum timers::ended;
  EXPECT_EQ(timers::end_one_shot(t_), unusual) << "it was never started";
  start(at);
  before_swap(0, [&] { stop(); });
  EXPECT_EQ(timers::end_one_shot(t_), unusual);
  EXPECT_EQ(timers::end_one_shot(t_), unusual) << "it is stopped, and has no reference";
  ++t_.references;
  EXPECT_TRUE(timers::start_again(t_, at + s));
  EXPECT_EQ(timers::end_one_shot(t_), was_armed);
  EXPECT_TRUE(timers::start_again(t_, at + s));
  EXPECT_TRUE(timers::stop_keeping(t_));
  EXPECT_EQ(timers::end_one_shot(t_), was_stopped);
  EXPECT_TRUE(timers::start_again(t_, at + s));
  t_.word.value |= hybrid_word::entering;
  EXPECT_EQ(timers::end_one_shot(t_), unusual);
  t_.word.value ^= hybrid_word::entering | hybrid_word::periodic;
  EXPECT_EQ(timers::end_one_shot(t_), unusual);
}

// ---- A periodic one ----

TEST_P(hybrid_timer, that_is_periodic_and_stopped_while_it_fires_does_not) {
  start(at, s);
  before_swap(1, [&] { stop(); });
  EXPECT_EQ(run(at), times{});
  expect_disarmed();
}

TEST_P(hybrid_timer, that_is_periodic_and_reset_while_it_fires_fires_then_and_once) {
  start(at, s);
  before_swap(1, [&] { EXPECT_EQ(put_off_to(at + 5 * s), change::was_armed); });
  EXPECT_EQ(run(at), times{});
  expect_due(at + 5 * s);
}

TEST_P(hybrid_timer, that_is_periodic_and_fires_while_it_is_reset_is_due_at_the_new_time) {
  start(at, s);
  before_swap(0, [&] { EXPECT_EQ(run(at), times{at}); });
  EXPECT_EQ(timers::reset_in_place_alone(t_, at + 3 * s, s), change::was_armed);
  EXPECT_EQ(run(at + 3 * s - 1), times{});
  EXPECT_EQ(run(at + 3 * s), times{at + 3 * s});
  EXPECT_EQ(run(at + 4 * s), times{at + 4 * s});
  EXPECT_EQ(t_.references, 1);
}

/// Its entry comes up meanwhile, and goes to where the timer was due.
TEST_P(hybrid_timer, that_is_periodic_and_moved_while_it_is_reset_to_earlier_needs_an_entry) {
  start(at, s);
  EXPECT_EQ(timers::reset_in_place_alone(t_, at + 60 * s, s), change::was_armed);
  before_swap(0, [&] { EXPECT_EQ(run(at), times{}); });
  EXPECT_TRUE(ts_.reset_alone(t_, at + 30 * s, s));
  EXPECT_EQ(run(at + 30 * s), times{at + 30 * s});
  EXPECT_EQ(run(at + 31 * s), times{at + 31 * s});
}

TEST_P(hybrid_timer, that_is_periodic_needs_an_entry_for_another_period_or_an_earlier_time) {
  start(at, s);
  EXPECT_EQ(timers::reset_in_place_alone(t_, at + s, 2 * s), change::needs_entry);
  EXPECT_EQ(timers::reset_in_place_alone(t_, at - s, s), change::needs_entry);
  EXPECT_EQ(timers::reset_in_place_alone(t_, at, s), change::was_armed);
  stop();
  EXPECT_EQ(timers::reset_in_place_alone(t_, at, s), change::needs_entry) << "it is stopped";
}

// ---- The end of all ----

TEST_P(hybrid_timer, is_counted_at_the_end_if_it_is_armed) {
  start(at);
  start(nodes_[2], at);
  EXPECT_TRUE(timers::stop(nodes_[2]));
  start(nodes_[3], at);
  EXPECT_TRUE(timers::stop_keeping(nodes_[3]));
  EXPECT_EQ(ts_.drain(), 1U);
  for (const test_node& t : nodes_) {
    EXPECT_EQ(t.references, 0);
    EXPECT_EQ(t.word.value, 0U);
  }
  expect_disarmed();
}

TEST_P(hybrid_timer, that_is_stopped_at_the_end_is_not_counted) {
  for (const bool keeps : {false, true}) {
    start(at);
    before_swap(0, [&] { EXPECT_TRUE(keeps ? timers::stop_keeping(t_) : timers::stop(t_)); });
    EXPECT_EQ(ts_.drain(), 0U);
    EXPECT_EQ(word(), 0U);
    expect_disarmed();
  }
}

TEST_P(hybrid_timer, that_is_put_off_at_the_end_is_counted_once) {
  start(at);
  before_swap(0, [&] { EXPECT_EQ(put_off_to(at + s), change::was_armed); });
  EXPECT_EQ(ts_.drain(), 1U);
  expect_disarmed();
}

TEST_P(hybrid_timer, has_nothing_to_take_off_if_it_was_left_disarmed) {
  start(at);
  t_.references = 0;
  t_.word.value = 0;
  EXPECT_EQ(ts_.drain(), 0U);
  expect_disarmed();
  start(at);
  t_.word.value |= hybrid_word::entering;
  EXPECT_EQ(ts_.drain(), 0U) << "the one that enters it sees to it";
  EXPECT_EQ(t_.references, 1);
}

// ---- What the wheel asks ----

TEST_P(hybrid_timer, has_a_stale_entry_unless_that_is_its_own_and_it_is_armed) {
  EXPECT_TRUE(ts_.stale(1, 0)) << "never started";
  start(at);
  EXPECT_FALSE(ts_.stale(1, token()));
  EXPECT_TRUE(ts_.stale(1, token() + 1)) << "of another life";
  EXPECT_TRUE(timers::stop_keeping(t_));
  before_swap(0, [&] { EXPECT_EQ(put_off_to(at), change::was_idle); });
  EXPECT_FALSE(ts_.stale(1, token())) << "it was started again";
  EXPECT_TRUE(timers::stop_keeping(t_));
  EXPECT_TRUE(ts_.stale(1, token()));
  EXPECT_EQ(word(), 0U);
  EXPECT_EQ(t_.references, 0);
}

TEST_P(hybrid_timer, says_which_key_its_entry_should_have) {
  EXPECT_EQ(ts_.when(1, 0), 0) << "never started";
  start(at);
  EXPECT_EQ(ts_.when(1, token()), at);
  EXPECT_EQ(ts_.when(1, token() + 1), 0) << "of another life";
  EXPECT_EQ(put_off_to(at + 10 * s), change::was_armed);
  EXPECT_EQ(ts_.when(1, token()), at + 10 * s);
  EXPECT_TRUE(hybrid_tag::is_for(t_.tag, at + 10 * s)) << "the hint matches it";
  EXPECT_EQ(put_off_to(at + 20 * s), change::was_armed);
  before_swap(0, [&] { EXPECT_EQ(put_off_to(at + 30 * s), change::was_armed); });
  EXPECT_EQ(ts_.when(1, token()), at + 30 * s);
  t_.word.value |= hybrid_word::entering;
  EXPECT_EQ(ts_.when(1, token()), 0) << "another one enters it, and makes an entry";
  t_.word.value &= ~hybrid_word::entering;
  EXPECT_TRUE(timers::stop_keeping(t_));
  before_swap(0, [&] { EXPECT_EQ(put_off_to(at + 30 * s), change::was_idle); });
  EXPECT_EQ(ts_.when(1, token()), at + 30 * s) << "it was started again";
  EXPECT_TRUE(timers::stop_keeping(t_));
  EXPECT_EQ(ts_.when(1, token()), 0);
  EXPECT_EQ(word(), 0U);
  EXPECT_EQ(t_.references, 0);
}

// ---- Deadlines that go up and down, among many ----

TEST_P(hybrid_timer, that_was_too_late_has_an_early_entry_among_many_unless_it_is_periodic) {
  for (const std::int64_t period : {std::int64_t{0}, s}) {
    for (const std::size_t many : {2, 3}) {
      SCOPED_TRACE(testing::Message() << "period " << period << ", many are " << many);
      test_policy::many_entries = many;
      const bool early = many == 2 && period == 0;
      timers ts{{&nodes_}, {}, s};
      ts.start(nodes_[2], at + 900 * s, 0);
      ts.start(nodes_[3], at + 60 * s, 0);
      EXPECT_EQ(ts.next, at + 60 * s) << "it was not too late";
      EXPECT_TRUE(ts.reset(nodes_[3], at + 30 * s, period));
      EXPECT_EQ(ts.next < at + 30 * s, early);
      ts.drain();
      // It is started again, in a node that has an entry which is too late.
      ts.start(nodes_[2], at + 900 * s, 0);
      ts.start(nodes_[3], at + 60 * s, 0);
      EXPECT_TRUE(timers::stop(nodes_[3]));
      EXPECT_FALSE(timers::start_again(nodes_[3], at + 30 * s));
      ts.start(nodes_[3], at + 30 * s, period);
      EXPECT_EQ(ts.next < at + 30 * s, early);
      // Its entry was moved while it was reset.
      EXPECT_TRUE(timers::stop(nodes_[3]));
      ts.start(nodes_[3], at, period);
      EXPECT_EQ(timers::reset_in_place_alone(nodes_[3], at + 60 * s, period), change::was_armed);
      ts.finish_reset(change::was_armed_needs_entry, nodes_[3], at + 60 * s, period);
      EXPECT_EQ(hybrid_tag::is_for(nodes_[3].tag, at + 60 * s), period != 0);
    }
  }
}

// ---- Precise ones, sleepers, and the last times ----

TEST_P(hybrid_timer, that_is_precise_comes_up_early_and_keeps_a_thread_awake_until_it_is_due) {
  ts_.early = 1000;
  t_.precise = true;
  start(at);
  EXPECT_EQ(ts_.next, at - 1000);
  EXPECT_EQ(run(at - 1000), times{});
  EXPECT_EQ(ts_.next, at);
  EXPECT_EQ(ts_.awake_until, static_cast<std::uint64_t>(at));
  nodes_[2].precise = true;
  start(nodes_[2], at - 1);
  EXPECT_EQ(run(at - 999), times{});
  EXPECT_EQ(ts_.awake_until, static_cast<std::uint64_t>(at)) << "it is the later one";
  EXPECT_EQ(run(at), (times{at - 1, at}));
}

TEST_P(hybrid_timer, that_is_precise_and_was_put_off_keeps_no_thread_awake) {
  ts_.early = 1000;
  t_.precise = true;
  start_and_put_off_to(at + 10 * s);
  EXPECT_EQ(run(at), times{});
  EXPECT_EQ(ts_.next, at + 10 * s - 1000) << "that much ahead again";
  EXPECT_EQ(ts_.awake_until, 0U);
  EXPECT_EQ(run(at + 10 * s - 1000), times{});
  EXPECT_EQ(ts_.awake_until, static_cast<std::uint64_t>(at + 10 * s));
}

TEST_P(hybrid_timer, that_is_not_precise_keeps_no_thread_awake) {
  ts_.early = 1000;
  start_and_put_off_to(at + 500);
  EXPECT_EQ(ts_.next, at);
  EXPECT_EQ(run(at), times{});
  EXPECT_EQ(ts_.awake_until, 0U);
}

TEST_P(hybrid_timer, wakes_a_sleeper_if_it_is_first_or_if_that_sleeps_past_it) {
  start(at);
  EXPECT_EQ(test_policy::woken_for, times{at});
  start(nodes_[2], at);
  start(nodes_[0], at + s);
  EXPECT_EQ(test_policy::woken_for.size(), 1U) << "neither is first";
  test_policy::sleeper = at + 3 * s;
  start(nodes_[3], at + 2 * s);
  EXPECT_EQ(test_policy::woken_for, (times{at, at + 2 * s}));
}

TEST_P(hybrid_timer, of_the_last_time_never_fires) {
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(ts_.next_exactly(), 0) << "there is none";
  start(never);
  EXPECT_EQ(run(never), times{});
  EXPECT_EQ(ts_.next_exactly(), never);
  start(nodes_[2], hybrid_word::latest - 1);
  EXPECT_EQ(ts_.next_exactly(), hybrid_word::latest - 1);
  EXPECT_EQ(run(never), times{hybrid_word::latest - 1});
}

TEST_P(hybrid_timer, that_is_due_later_than_can_be_said_is_due_at_the_last_time) {
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  const auto expect_latest = [&] {
    EXPECT_EQ(hybrid_word::due(word()), hybrid_word::latest);
    EXPECT_EQ(word() & hybrid_word::entering, 0U);
    EXPECT_EQ(ts_.next_exactly(), never);
    EXPECT_EQ(t_.references, 1);
  };
  for (const std::int64_t late : {hybrid_word::latest + 1, hybrid_word::latest + at, never}) {
    SCOPED_TRACE(late);
    start(late);
    expect_latest();
    EXPECT_TRUE(timers::stop_keeping(t_));
    EXPECT_TRUE(timers::start_again(t_, late));
    expect_latest();
    EXPECT_TRUE(ts_.finish_reset(change::needs_entry, t_, late, 0));
    expect_latest();
    EXPECT_EQ(ts_.drain(), 1U);
    start(at);
    EXPECT_EQ(put_off_to(late), change::was_armed);
    expect_latest();
    EXPECT_EQ(ts_.drain(), 1U);
    start(late, s);
    expect_latest();
    EXPECT_EQ(timers::reset_in_place_alone(t_, late, s), change::was_armed);
    expect_latest();
    EXPECT_EQ(ts_.drain(), 1U);
    // The next time of a period, too.
    start(at, late);
    EXPECT_EQ(run(at), times{at});
    expect_latest();
    EXPECT_EQ(ts_.drain(), 1U);
    EXPECT_EQ(t_.references, 0);
  }
}

TEST_P(hybrid_timer, says_exactly_when_it_is_due_though_its_entry_is_early) {
  start_and_put_off_to(at + 10 * s);
  start(nodes_[2], at + 5 * s);
  start(nodes_[3], at + 1);
  EXPECT_TRUE(timers::stop(nodes_[3]));
  EXPECT_EQ(ts_.next_exactly(), at + 5 * s);
  EXPECT_TRUE(timers::stop(nodes_[2]));
  EXPECT_EQ(ts_.next_exactly(), at + 10 * s);
  EXPECT_EQ(ts_.entries, 1U);
  EXPECT_EQ(ts_.next, at + 10 * s);
}

TEST_P(hybrid_timer, comes_first_after_a_look_ahead_past_those_that_were_stopped_or_put_off) {
  start(nodes_[2], at);
  start(nodes_[3], at + 1);
  start(at + 2000);
  EXPECT_TRUE(timers::stop(nodes_[2]));
  EXPECT_EQ(timers::reset_in_place(nodes_[3], at + 3 * s, 0), change::was_armed);
  unsigned steps = 100;
  ts_.look_ahead(at + 1'000'000, steps);
  EXPECT_EQ(ts_.next, at + 2000);
  EXPECT_EQ(ts_.entries, 2U);
  EXPECT_NE(steps, 0U);
  ts_.look_ahead(at + 1'000'000, steps);
  EXPECT_EQ(ts_.entries, 2U) << "it is still to fire";
  EXPECT_EQ(run(at + 1999), times{});
  EXPECT_EQ(run(at + 2000), times{at + 2000});
  EXPECT_EQ(run(at + 3 * s), times{at + 3 * s});
}

TEST_P(hybrid_timer, is_not_lost_if_a_look_ahead_ends_before_it) {
  start(nodes_[2], at);
  start(at + s);
  EXPECT_TRUE(timers::stop(nodes_[2]));
  unsigned steps = 100;
  ts_.look_ahead(at + 1'000'000, steps);
  EXPECT_EQ(ts_.entries, 1U);
  EXPECT_GT(ts_.next, at + 1'000'000);
  EXPECT_LE(ts_.next, at + s);
  // Of what is started then, though the wheel has been looked at beyond it.
  start(nodes_[3], at + 500'000);
  EXPECT_EQ(ts_.next, at + 500'000);
  EXPECT_EQ(run(at + 500'000 - 1), times{});
  EXPECT_EQ(run(at + 500'000), times{at + 500'000});
  EXPECT_EQ(run(at + s), times{at + s});
}

TEST_P(hybrid_timer, may_not_come_first_after_a_look_ahead_whose_steps_run_out) {
  for (std::uint32_t i : {0, 2, 3}) start(nodes_[i], at + i);
  start(at + 1000);
  ts_.next_exactly();  // all are in the heap
  for (std::uint32_t i : {0, 2, 3}) EXPECT_TRUE(timers::stop(nodes_[i]));
  unsigned steps = 2;
  ts_.look_ahead(at + 1'000'000, steps);
  EXPECT_EQ(steps, 0U);
  EXPECT_EQ(ts_.next, at + 3);
  EXPECT_EQ(ts_.entries, 2U);
  ts_.look_ahead(at + 1'000'000, steps);
  EXPECT_EQ(ts_.entries, 2U) << "no step, no change";
  EXPECT_EQ(run(at + 1000), times{at + 1000});
}

TEST_P(hybrid_timer, waits_its_turn_if_no_more_may_fire) {
  start(at + 1);
  start(nodes_[2], at);
  EXPECT_EQ(run(at + 2, 1), times{at});
  EXPECT_EQ(ts_.next, at + 1);
  EXPECT_EQ(ts_.entries, 1U);
  EXPECT_EQ(run(at + 2, 0), times{});
  EXPECT_EQ(run(at + 2, 1), times{at + 1});
  EXPECT_EQ(ts_.fired, 2U);
}

INSTANTIATE_TEST_SUITE_P(with_its_entry, hybrid_timer,
                         testing::Values(entry_in::heap, entry_in::slot), [](const auto& where) {
                           return where.param == entry_in::heap ? "in_the_heap" : "in_a_slot";
                         });

}  // namespace
}  // namespace verge::detail
