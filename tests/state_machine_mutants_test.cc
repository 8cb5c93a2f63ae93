// SPDX-License-Identifier: Apache-2.0

// Mutation tests: bugs that the machine must not have, injected one at a time.
//
// Each mutant (engine/ten_states/mutation.h) is the machine with one historic bug. It must be
// caught, by the check that the test names, within the scenarios that the machine itself passes;
// and the machine passes the very scenario that the mutant failed. Two that are slow and not wrong
// are caught by counting.
#include <explorer/explored.h>
#include <explorer/scenarios.h>
#include <gtest/gtest.h>

#include <string>

namespace verge::test {
namespace {

/// How a mutant was caught.
struct catch_of {
  std::string in;
  int preemptions = 0;
  exploration found;
};

/// A list of scenarios, and with how many preemptions to go through it.
struct ground {
  const char* name;
  std::vector<scenario> list;
  int preemptions;
};

const std::vector<ground>& grounds() {
  static const std::vector<ground> all = {
      {"pairs", pairs(), 3},     {"callbacks", callbacks(), 3},
      {"layouts", layouts(), 2}, {"sleepers", sleepers(), 3},
      {"drops", drops(), 3},     {"two processors", two_processors(), 3},
  };
  return all;
}

/// Runs a mutant on all scenarios, list by list, until it is caught.
template <mutant M>
catch_of hunt() {
  for (const ground& g : grounds()) {
    exploration e = explore_all<explorer_policy<M>>(g.name, g.list, g.preemptions);
    if (e.failed) return {g.name, g.preemptions, std::move(e)};
  }
  return {"nowhere", 0, {}};
}

scenario named(const std::string& name) {
  for (const ground& g : grounds()) {
    for (const scenario& s : g.list) {
      if (s.name == name) return s;
    }
  }
  return {};
}

class mutants : public explored {
 protected:
  void SetUp() override {
    explored::SetUp();
    if (std::getenv("VERGE_SCHEDULE") != nullptr) GTEST_SKIP() << "these look for schedules";
  }

  template <mutant M>
  static void is_caught(const std::string& by) {
    const catch_of c = hunt<M>();
    ASSERT_TRUE(c.found.failed) << "it was not caught";
    EXPECT_EQ(c.found.failed->check, by) << c.found.report();
    std::printf("[ mutant   ] caught by '%s' in %s, after %llu schedules: %s\n",
                c.found.failed->check.c_str(), c.in.c_str(),
                static_cast<unsigned long long>(c.found.schedules), c.found.failed->detail.c_str());
    const exploration right =
        explore_all<explorer_policy<>>("the machine itself", {named(c.found.name)}, c.preemptions);
    EXPECT_EQ(right.scenarios, 1U);
    EXPECT_FALSE(right.failed) << right.report();
  }
};

TEST_F(mutants, go_21874_stop_on_a_timer_never_started_is_caught) {
  is_caught<mutant::go_21874>("bad timer");
}
TEST_F(mutants, go_35272_claiming_a_removed_timer_by_a_plain_store_is_caught) {
  is_caught<mutant::go_35272>("structure");
}
TEST_F(mutants, go_35367_waiting_while_on_no_heap_is_caught) {
  is_caught<mutant::go_35367>("structure");
}
TEST_F(mutants, go_35532_calling_f_under_the_lock_is_caught) {
  is_caught<mutant::go_35532>("deadlock");
}
TEST_F(mutants, go_37400_taking_modifying_for_misuse_is_caught) {
  is_caught<mutant::go_37400>("bad timer");
}
TEST_F(mutants, go_38860_starting_a_timer_without_waking_the_poller_is_caught) {
  is_caught<mutant::go_38860>("oversleeping");
}
TEST_F(mutants, go_43712_waiting_without_an_owner_is_caught) {
  is_caught<mutant::go_43712>("structure");
}
TEST_F(mutants, go_47329_clearing_the_earliest_time_after_the_scan_is_caught) {
  is_caught<mutant::go_47329>("sleepers");
}
TEST_F(mutants, go_47762_missing_an_entry_that_moved_behind_the_scan_is_caught) {
  is_caught<mutant::go_47762>("sleepers");
}
TEST_F(mutants, go_51654_leaving_the_earliest_time_on_an_empty_heap_is_caught) {
  is_caught<mutant::go_51654>("counters");
}
TEST_F(mutants, of_ours_reading_the_owner_after_release_is_caught) {
  is_caught<mutant::late_owner>("counters");
}
TEST_F(mutants, of_ours_dropping_the_reference_before_the_call_is_caught) {
  is_caught<mutant::early_release>("references");
}

/// One thread resets timer 0 to `when`, alone.
exploration reset_to(std::int64_t when, auto policy) {
  scenario s;
  s.timers = {{timer_state::waiting, 150}, {timer_state::waiting, 120}};
  s.threads = {{{action::reset, 0, when}}};
  s.name = "reset to " + std::to_string(when);
  return explore_all<decltype(policy)>("a time of zero", {s});
}

TEST_F(mutants, go_42424_accepting_a_time_of_zero_is_caught) {
  const exploration mutated = reset_to(0, explorer_policy<mutant::go_42424>{});
  ASSERT_TRUE(mutated.failed);
  EXPECT_EQ(mutated.failed->check, "sleepers") << mutated.report();

  const exploration refused = reset_to(0, explorer_policy<>{});
  ASSERT_TRUE(refused.failed);
  EXPECT_EQ(refused.failed->check, "bad timer") << refused.report();
  EXPECT_NE(refused.failed->detail.find("when must be positive"), std::string::npos)
      << refused.failed->detail;
  EXPECT_FALSE(reset_to(1, explorer_policy<>{}).failed);
}

// ---- Slow and not wrong: caught by counting ----

/// Counts how often a timer's state is read.
template <mutant M>
struct counting_policy {
  static constexpr mutant mutation = M;
  using timer = detail::basic_timer<counting_policy>;
  using timers = detail::basic_timers<counting_policy>;

  template <class T>
  class atomic {
   public:
    atomic(T v = T{}) : value_(v) {}
    T load(std::memory_order) const {
      if constexpr (std::is_same_v<T, timer_state>) ++looks;
      return value_;
    }
    void store(T v, std::memory_order = std::memory_order_seq_cst) { value_ = v; }
    bool compare_exchange_strong(T& expected, T v, std::memory_order, std::memory_order) {
      if (value_ != expected) {
        expected = value_;
        return false;
      }
      value_ = v;
      return true;
    }
    bool compare_exchange_weak(T& expected, T v, std::memory_order a, std::memory_order b) {
      return compare_exchange_strong(expected, v, a, b);
    }
    T fetch_add(T n, std::memory_order) { return value_ += n; }
    T fetch_sub(T n, std::memory_order) { return value_ -= n; }

   private:
    T value_;
  };
  struct no_lock {
    void lock() {}
    void unlock() {}
  };
  using lock = no_lock;
  static void yield() {}
  static void wake_net_poller(timers&, std::int64_t) {}
  static void acquire(timer&) {}
  static void release(timer&) {}
  [[noreturn]] static void bad_timer(const char*, const timer&, timer_state) { std::abort(); }

  inline static int looks = 0;
};

/// A thousand timers, of which one is reset to earlier and later, always to a time in the future;
/// after each reset the scheduler checks the timers. Returns how many timers were visited in total.
template <mutant M>
int looks_of_resets_to_and_fro(int resets) {
  using policy = counting_policy<M>;
  typename policy::timers ts;
  std::vector<typename policy::timer> timers(1000);
  for (std::size_t i = 0; i < timers.size(); ++i) {
    timers[i].when = 10'000 + static_cast<std::int64_t>(i);
    add_timer(ts, timers[i]);
  }
  policy::looks = 0;
  for (int i = 0; i < resets; ++i) {
    reset_timer(ts, timers[500], i % 2 == 0 ? 5'000 : 20'000);
    adjust_timers(ts, 100);
    run_timer(ts, 100);
  }
  return policy::looks;
}

TEST(mutant_counts, go_41699_scanning_the_heap_for_every_earlier_reset_is_caught) {
  constexpr int resets = 1000;
  const int looks = looks_of_resets_to_and_fro<mutant::none>(resets);
  const int mutated = looks_of_resets_to_and_fro<mutant::go_41699>(resets);
  std::printf("[ mutant   ] looks per reset: %.1f, and of the mutant %.1f\n",
              static_cast<double>(looks) / resets, static_cast<double>(mutated) / resets);
  EXPECT_LE(looks, 4 * resets);
  EXPECT_GE(mutated, 100 * resets);
}

/// A thousand timers, all stopped; then one more is started. Returns how many are left on the heap.
template <mutant M>
std::size_t left_after_one_add(std::size_t stopped) {
  using policy = counting_policy<M>;
  typename policy::timers ts;
  std::vector<typename policy::timer> timers(stopped + 1);
  for (auto& t : timers) t.when = 10'000;
  for (std::size_t i = 0; i < stopped; ++i) add_timer(ts, timers[i]);
  for (std::size_t i = 0; i < stopped; ++i) del_timer(timers[i]);
  add_timer(ts, timers[stopped]);
  return ts.heap.size();
}

TEST(mutant_counts, go_37779_cleaning_without_bound_is_caught) {
  EXPECT_EQ(left_after_one_add<mutant::none>(1000), 1001U - detail::clean_limit);
  EXPECT_EQ(left_after_one_add<mutant::go_37779>(1000), 1U);
}

}  // namespace
}  // namespace verge::test
