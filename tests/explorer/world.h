// SPDX-License-Identifier: Apache-2.0
// world: a running scenario. It performs and observes the operations; the invariants are in
// checks.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <explorer/checks.h>
#include <explorer/drain.h>
#include <explorer/explorer.h>
#include <explorer/explorer_policy.h>
#include <explorer/history.h>
#include <explorer/scenario.h>
#include <explorer/stage.h>

namespace verge::test {

using detail::timer_operation;

template <class Policy>
class world final : public program, public watcher {
 public:
  using timer = explored_timer<Policy>;
  using timers = detail::basic_timers<Policy>;

  world(explorer& e, const scenario& s) : explorer_(e), scenario_(s), stage_(e, s) { tells = true; }

  // ---- program ----

  [[nodiscard]] std::size_t threads() const override { return scenario_.threads.size(); }

  void prepare() override {
    watcher::now = this;
    here = this;
    draining_ = false;
    failing_memory::fails = false;
    stage_.set(&world::fire);
    poll_until_.reset(0);
    asleep_ = woken_ = false;
    held_.fill(0);
    failing_memory::fails = scenario_.no_memory;
  }

  void run(std::size_t i) override {
    for (const op& o : scenario_.threads[i]) perform(o);
  }

  void inspect() override {
    checks_.after_step();
    if (states != nullptr) states->insert(fingerprint());
  }

  /// Where to note what each state looks like, in which checks can tell states apart; or null.
  std::set<std::uint64_t>* states = nullptr;

  void finish() override {
    if (states != nullptr) states->insert(fingerprint());
    failing_memory::fails = false;
    checks_.at_rest();
    check_sleeper();
    drain();
  }

  // ---- watcher ----

  void touched(const void* atomic) override {
    touch(part_of(atomic));
    thread& me = threads_[explorer_.current()];
    if (me.begin == 0) {
      me.begin = explorer_.step();
      begins();
    }
    if (timer* t = stage_.timer_at(atomic); t != nullptr && t->freed) {
      explorer_.fail("references", stage_.name(*t) + " is touched after it was freed");
    }
  }

  void locked(const void* lock) override {
    held_[explorer_.current()] |= part_of(lock);
    touch(part_of(lock));
  }
  void unlocked(const void* lock) override { held_[explorer_.current()] &= ~part_of(lock); }

  void state_written(const void* atomic, timer_state from, timer_state to) override {
    timer& t = *stage_.timer_at(atomic);
    const std::size_t me = explorer_.current();
    if (is_held(from) && t.holder != me) {
      explorer_.fail("holder", stage_.name(t) + " is held by thread " + std::to_string(t.holder) +
                                   " and changed by thread " + std::to_string(me));
    }
    if (is_held(to)) t.holder = me;
    if (to == timer_state::running) {
      t.fire_begin = explorer_.step();
      begins();
    }
    for (const timer_operation o : all_operations) {
      if ((threads_[me].doing & bit(o)) != 0 && may_change(o, from, to)) return;
    }
    explorer_.fail("state change", stage_.name(t) + " from " + detail::name_of(from) + " to " +
                                       detail::name_of(to) + " is not in the table");
  }

  void acquired(void* p) override {
    touch(part_of(p));
    ++as_timer(p).references;
  }

  void released(void* p) override {
    touch(part_of(p));
    timer& t = as_timer(p);
    if (t.references == 0)
      explorer_.fail("references", stage_.name(t) + " is released once too often");
    if (--t.references == 0) {
      if (!t.dropped)
        explorer_.fail("references", stage_.name(t) + " is freed and its handle is there");
      t.freed = true;
    }
  }

  void woken(void*, std::int64_t when) override {
    if (explorer::active() == nullptr || !has_sleeper()) return;
    const std::int64_t until = poll_until_.load();
    if (until != 0 && when < until) woken_ = true;
    touch(the_sleeper);
  }

  std::string name_of(const void* p) override { return stage_.name_of(p); }

  [[noreturn]] void bad(const char* operation, const void* p, timer_state s) override {
    const auto& t = *static_cast<const timer*>(static_cast<const detail::basic_timer<Policy>*>(p));
    explorer_.fail("bad timer", std::string(operation) + " finds " + stage_.name(t) + " in " +
                                    detail::name_of(s));
  }

 private:
  struct thread {
    std::uint32_t doing = 0;
    std::size_t begin = 0;
  };

  static constexpr std::array all_operations = {
      timer_operation::add,           timer_operation::del,    timer_operation::mod,
      timer_operation::clean,         timer_operation::adjust, timer_operation::run,
      timer_operation::clear_deleted, timer_operation::move};
  static constexpr std::uint32_t bit(timer_operation o) { return 1U << static_cast<unsigned>(o); }

  // ---- what a step touches: a timer, a heap, all with what is noted of them ----

  static constexpr std::uint64_t the_sleeper = std::uint64_t{1} << 60;
  static constexpr std::uint64_t the_order = std::uint64_t{1} << 61;

  std::uint64_t part_of(const void* p) {
    if (const timer* t = stage_.timer_at(p)) return std::uint64_t{1} << (t - timers_.data());
    for (std::size_t h = 0; h < heaps_.size(); ++h) {
      const auto* at = static_cast<const std::byte*>(p);
      const auto* heap = reinterpret_cast<const std::byte*>(&heaps_[h]);
      if (at >= heap && at < heap + sizeof heaps_[h]) return std::uint64_t{1} << (50 + h);
    }
    return the_sleeper;
  }
  /// With everything whose lock the thread has.
  void touch(std::uint64_t parts) {
    if (explorer::active() == nullptr) return;
    explorer_.touches({.writes = parts | held_[explorer_.current()]});
  }
  /// Which operations had ended when another one began must not change.
  void begins() { explorer_.touches({.reads = the_order}); }
  void ends() {
    if (explorer::active() != nullptr) explorer_.touches({.writes = the_order});
  }

  /// A number for all that checks read.
  std::uint64_t fingerprint() {
    std::uint64_t sum = 14695981039346656037U;
    const auto add = [&](auto v) { sum = (sum ^ static_cast<std::uint64_t>(v)) * 1099511628211U; };
    const auto add_arming = [&](const arming& a) {
      for (const auto v : {a.when, a.period, static_cast<std::int64_t>(a.seq)}) add(v);
      add(a.pending);
    };
    std::vector<const event*> all;
    for (const timer& t : timers_) {
      for (const auto v : {t.when, t.nextwhen, t.period, static_cast<std::int64_t>(t.seq)}) add(v);
      for (const bool v : {t.freed, t.dropped}) add(v);
      add(t.state.peek());
      add(t.owner.peek() == nullptr ? 0 : part_of(t.owner.peek()));
      add(t.references);
      if (is_held(t.state.peek())) add(t.holder);
      for (const event& e : t.events) {
        add(e.what);
        add(e.answer);
        add_arming(e.with);
        all.push_back(&e);
      }
    }
    // Which ended before another, or before an operation that runs, began.
    for (const event* e : all) {
      for (const event* other : all) add(e->end < other->begin);
      for (std::size_t i = 0; i < threads(); ++i) add(e->end < threads_[i].begin);
    }
    for (const timers& ts : heaps_) {
      add(ts.lock.taken());
      for (const auto& v : {ts.timer0_when.peek(), ts.timer_modified_earliest.peek()}) add(v);
      add(ts.num_timers.peek());
      add(ts.deleted_timers.peek());
      for (const auto& entry : ts.heap) {
        add(entry.when);
        add(part_of(entry.node));
      }
    }
    add(poll_until_.peek());
    for (const bool v : {asleep_, woken_}) add(v);
    return sum;
  }

  // ---- the operations of a scenario ----

  void perform(const op& o) {
    using enum timer_operation;
    switch (o.what) {
      case action::add:
        return add_one(timers_[o.target], o);
      case action::del:
        return stop_one(timers_[o.target]);
      case action::mod:
        return mod_one(timers_[o.target], o);
      case action::reset:
        return reset_one(timers_[o.target], o);
      case action::drop:
        return drop_one(timers_[o.target]);
      case action::sleep:
        return sleep(heaps_[o.target]);
      case action::clean:
        return on_heap(o.target, bit(clean), [](timers& ts) { clean_timers(ts); });
      case action::adjust:
        return on_heap(o.target, bit(adjust), [&](timers& ts) { adjust_timers(ts, now()); });
      case action::run:
        return on_heap(o.target, bit(timer_operation::run),
                       [&](timers& ts) { run_timer(ts, now()); });
      case action::check:
        return on_heap(o.target, bit(adjust) | bit(timer_operation::run) | bit(clear_deleted),
                       [&](timers& ts) {
                         if (!ts.heap.empty()) adjust_timers(ts, now());
                         while (run_timer(ts, now()) == 0) {
                         }
                         if (should_clear_deleted(ts)) clear_deleted_timers(ts);
                       });
      case action::clear:
        return on_heap(o.target, bit(clear_deleted), [](timers& ts) { clear_deleted_timers(ts); });
      case action::move:
        return move_all(o.target);
    }
  }

  template <class F>
  void on_heap(std::size_t h, std::uint32_t doing, F&& f) {
    const as what(*this, doing);
    std::lock_guard guard(heaps_[h].lock);
    f(heaps_[h]);
  }

  void move_all(std::size_t from) {
    const as what(*this, bit(timer_operation::move));
    std::scoped_lock first(heaps_[0].lock);
    std::scoped_lock second(heaps_[1].lock);
    try {
      move_timers(heaps_[1 - from], heaps_[from]);
    } catch (const std::bad_alloc&) {
    }
  }

  void add_one(timer& t, const op& o) {
    const as what(*this, bit(timer_operation::add) | bit(timer_operation::clean));
    const arming with{true, t.when, t.period, t.seq};
    if (!attempt([&] { add_timer(heaps_[o.own], t); })) return record(t, event::refused, with);
    record(t, event::add, with);
  }

  void stop_one(timer& t) {
    const as what(*this, bit(timer_operation::del));
    const bool answer = del_timer(t);
    record(t, event::stop, {}, answer);
  }

  void mod_one(timer& t, const op& o) {
    const as what(*this, bit(timer_operation::mod) | bit(timer_operation::clean));
    // The number identifies the thread, so that a firing shows to which arming it belongs.
    const std::uint64_t seq = 100 * (explorer_.current() + 1) + static_cast<std::uint64_t>(o.when);
    const arming with{true, o.when, o.period, seq};
    bool answer = false;
    const bool done =
        attempt([&] { answer = mod_timer(heaps_[o.own], t, o.when, o.period, &world::fire, seq); });
    record(t, done ? event::mod : event::refused, with, answer);
  }

  void reset_one(timer& t, const op& o) {
    const as what(*this, bit(timer_operation::mod) | bit(timer_operation::clean));
    bool answer = false;
    const bool done = attempt([&] { answer = reset_timer(heaps_[o.own], t, o.when); });
    record(t, done ? event::reset : event::refused, {true, o.when, 0, 0}, answer);
  }

  void drop_one(timer& t) {
    stop_one(t);
    t.dropped = true;
    released(&t);
  }

  template <class F>
  bool attempt(F&& f) {
    try {
      f();
      return true;
    } catch (const std::bad_alloc&) {
      if (!scenario_.no_memory) throw;
      return false;
    }
  }

  void sleep(const timers& ts) {
    const std::int64_t until = look_at(ts);
    poll_until_.store(until == 0 ? INT64_MAX : until);
    const std::int64_t again = look_at(ts);
    touch(the_sleeper);
    if (again != 0 && (until == 0 || again < until)) {
      poll_until_.store(0);
    } else {
      asleep_ = true;
    }
  }

  /// next_when(), which must not be later than any timer there that no thread stops or resets.
  std::int64_t look_at(const timers& ts) {
    const std::int64_t when = next_when(ts);
    begins();  // it reads which events there are
    for (const timer& t : timers_) {
      if (!t.at_start.pending || !t.events.empty() || is_target(t)) continue;
      if (when == 0 || when > t.at_start.when) {
        explorer_.fail("sleepers", stage_.name(t) + " is due at " +
                                       std::to_string(t.at_start.when) + " and next_when said " +
                                       std::to_string(when));
      }
    }
    return when;
  }

  static void fire(detail::basic_timer<Policy>& t, std::uint64_t seq, std::int64_t now) noexcept {
    here->fired(static_cast<timer&>(t), seq, now);
  }

  void fired(timer& t, std::uint64_t seq, std::int64_t at) {
    event e;
    e.what = event::fire;
    e.with = {true, at, 0, seq};
    if (draining_) {
      t.drained.push_back(e);
      // A periodic timer would never finish.
      if (t.drained.size() == 2) del_timer(t);
      return;
    }
    e.begin = t.fire_begin;
    e.end = explorer_.step();
    ends();
    t.events.push_back(e);
    explorer_.point({.is_told = true});  // f takes its time
    touch(part_of(&t));
    if (t.freed) explorer_.fail("references", stage_.name(t) + " is freed while its f runs");
    switch (t.in_f) {
      case callback::nothing:
        break;
      case callback::stops_itself:
        stop_one(t);
        break;
      case callback::resets_itself:
        reset_one(t, {action::reset, 0, at + 70, 0, 0});
        break;
      case callback::starts_timer_1:
        mod_one(timers_[1], {action::mod, 1, at + 60, 0, 0});
        break;
    }
    if (t.freed) explorer_.fail("references", stage_.name(t) + " is freed while its f runs");
  }

  /// Sets the description of the current thread for its lifetime.
  class as {
   public:
    as(world& w, std::uint32_t doing) : me_(w.threads_[w.explorer_.current()]), before_(me_) {
      me_ = {doing, 0};
    }
    ~as() { me_ = before_; }

   private:
    thread& me_;
    thread before_;
  };

  void record(timer& t, event::kind what, arming with, bool answer = false) {
    event e;
    e.what = what;
    e.begin = threads_[explorer_.current()].begin;
    e.end = explorer_.step();
    ends();
    e.with = with;
    e.answer = answer;
    t.events.push_back(e);
  }

  // ---- when all threads have finished ----

  void check_sleeper() {
    if (!asleep_ || woken_) return;
    const std::int64_t until = poll_until_.peek();
    for (std::size_t i = 0; i < timers_.size(); ++i) {
      const arming a = stage_.armed(timers_[i]);
      if (a.pending && a.when < until) {
        explorer_.fail("oversleeping", stage_.name(i) + " is due at " + std::to_string(a.when) +
                                           " and the poller sleeps until " + std::to_string(until));
      }
    }
  }

  void drain() {
    draining_ = true;
    std::array<arming, 16> expected;
    for (std::size_t i = 0; i < timers_.size(); ++i) expected[i] = stage_.armed(timers_[i]);
    test::drain(
        explorer_, heaps_, now(),
        [](timers& ts, std::int64_t at) {
          std::lock_guard guard(ts.lock);
          if (ts.heap.empty()) return;
          adjust_timers(ts, at);
          while (run_timer(ts, at) == 0) {
          }
        },
        [](const timers& ts) { return next_when(ts); });
    checks_.heaps_at_rest();
    for (std::size_t i = 0; i < timers_.size(); ++i) {
      checks_.after_drain(timers_[i], i, expected[i]);
    }
  }

  // ---- helpers ----

  [[nodiscard]] std::int64_t now() const { return scenario_.now; }

  [[nodiscard]] bool has_sleeper() const {
    return std::any_of(scenario_.threads.begin(), scenario_.threads.end(),
                       [](const auto& ops) { return ops.front().what == action::sleep; });
  }

  /// Returns whether some thread stops or resets it.
  [[nodiscard]] bool is_target(const timer& t) const {
    const auto i = static_cast<std::size_t>(&t - timers_.data());
    for (const auto& ops : scenario_.threads) {
      for (const op& o : ops) {
        if (is_on_timer(o.what) && o.target == i) return true;
      }
    }
    return false;
  }

  timer& as_timer(void* p) {
    return *static_cast<timer*>(static_cast<detail::basic_timer<Policy>*>(p));
  }
  inline static world* here = nullptr;
  explorer& explorer_;
  const scenario& scenario_;
  stage<Policy> stage_;
  std::vector<timer>& timers_ = stage_.all;
  std::array<timers, 2>& heaps_ = stage_.heaps;
  checks<Policy> checks_{stage_};
  std::array<thread, explorer::most_threads> threads_{};
  /// The heaps whose locks each thread has.
  std::array<std::uint64_t, explorer::most_threads> held_{};
  explored_atomic<std::int64_t> poll_until_{0};
  bool asleep_ = false;
  bool woken_ = false;
  bool draining_ = false;
};

}  // namespace verge::test
