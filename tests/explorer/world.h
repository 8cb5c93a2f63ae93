// world: a scenario at work - the timers, the heaps and everything that is checked about them.
//
// After every step:
//   state change   each change of a timer's state is one that the table has for the operation
//   holder         a held timer is let go by the thread that holds it
//   structure      a timer in a state that says it is on a heap is on one, its owner's; one that
//                  says it is on none is on none
//   sleepers       next_when() of a heap is no later than any timer on it that is pending
//   references     nothing touches a timer that was freed, and none is freed whose handle is there
//   bad timer      the machine has not met what it calls impossible
// When all threads are through:
//   heap order, counters, references
//                  as they must be when nobody is in the middle of anything
//   answers        what stop and reset said and what fired has an explanation (history.h)
//   oversleeping   a poller that went to sleep was woken, or nothing is due before it wakes by
//   itself drain          run on as a scheduler would, sleeping from one next_when() to the next,
//                  every pending timer fires, once, at its time; then the heaps are empty, and
//                  nobody is woken for nothing
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <explorer/explorer.h>
#include <explorer/explorer_policy.h>
#include <explorer/history.h>
#include <explorer/scenario.h>

namespace verge::test {

using detail::timer_operation;

template <class Policy>
struct explored_timer : detail::basic_timer<Policy> {
  int references = 0;
  bool freed = false;
  bool dropped = false;
  std::size_t holder = 0;
  std::size_t fire_begin = 0;
  callback in_f = callback::nothing;
  arming at_start;
  std::vector<event> events;
  std::vector<event> drained;
};

template <class Policy>
class world final : public program, public watcher {
 public:
  using timer = explored_timer<Policy>;
  using timers = detail::basic_timers<Policy>;

  world(explorer& e, const scenario& s) : explorer_(e), scenario_(s), timers_(s.timers.size()) {
    for (timer& t : timers_) {
      t.events.reserve(16);
      t.drained.reserve(16);
    }
  }

  // ---- program ----

  [[nodiscard]] std::size_t threads() const override { return scenario_.threads.size(); }

  void prepare() override {
    watcher::now = this;
    here = this;
    draining_ = false;
    failing_memory::fails = false;
    for (timers& ts : heaps_) start_over(ts);
    for (std::size_t i = 0; i < timers_.size(); ++i) start_over(timers_[i], scenario_.timers[i], i);
    // In this order, because adding a timer cleans the head of the heap.
    const auto each = [&](auto&& bring) {
      for (std::size_t i = 0; i < timers_.size(); ++i) bring(timers_[i], scenario_.timers[i]);
    };
    each([&](timer& t, const timer_setup& how) {
      if (how.start != timer_state::removed) return;
      timers& ts = heaps_[how.heap];
      add_timer(ts, t);
      del_timer(t);
      clear_deleted_timers(ts);
    });
    each([&](timer& t, const timer_setup& how) {
      if (is_on_heap(how.start)) add_timer(heaps_[how.heap], t);
    });
    each([&](timer& t, const timer_setup& how) {
      if (how.start == timer_state::deleted) del_timer(t);
      if (how.nextwhen != 0) reset_timer(heaps_[how.heap], t, how.nextwhen);
    });
    for (timer& t : timers_) t.at_start = armed(t);
    poll_until_.reset(0);
    asleep_ = woken_ = false;
    failing_memory::fails = scenario_.no_memory;
  }

  void run(std::size_t i) override {
    for (const op& o : scenario_.threads[i]) perform(o);
  }

  void inspect() override {
    for (std::size_t i = 0; i < timers_.size(); ++i) inspect(timers_[i], i);
  }

  void finish() override {
    failing_memory::fails = false;
    for (std::size_t h = 0; h < heaps_.size(); ++h) check_heap(h);
    for (std::size_t i = 0; i < timers_.size(); ++i) check_timer(timers_[i], i);
    check_sleeper();
    drain();
  }

  // ---- watcher ----

  void touched(const void* atomic) override {
    thread& me = threads_[explorer_.current()];
    if (me.begin == 0) me.begin = explorer_.step();
    if (timer* t = timer_at(atomic); t != nullptr && t->freed) {
      explorer_.fail("references", name(*t) + " is touched after it was freed");
    }
  }

  void state_written(const void* atomic, timer_state from, timer_state to) override {
    timer& t = *timer_at(atomic);
    const std::size_t me = explorer_.current();
    if (is_held(from) && t.holder != me) {
      explorer_.fail("holder", name(t) + " is held by thread " + std::to_string(t.holder) +
                                   " and changed by thread " + std::to_string(me));
    }
    if (is_held(to)) t.holder = me;
    if (to == timer_state::running) t.fire_begin = explorer_.step();
    for (const timer_operation o : all_operations) {
      if ((threads_[me].doing & bit(o)) != 0 && may_change(o, from, to)) return;
    }
    explorer_.fail("state change", name(t) + " from " + detail::name_of(from) + " to " +
                                       detail::name_of(to) + " is not in the table");
  }

  void acquired(void* p) override { ++as_timer(p).references; }

  void released(void* p) override {
    timer& t = as_timer(p);
    if (t.references == 0) explorer_.fail("references", name(t) + " is released once too often");
    if (--t.references == 0) {
      if (!t.dropped) explorer_.fail("references", name(t) + " is freed and its handle is there");
      t.freed = true;
    }
  }

  void woken(void*, std::int64_t when) override {
    if (explorer::active() == nullptr || !has_sleeper()) return;
    const std::int64_t until = poll_until_.load();
    if (until != 0 && when < until) woken_ = true;
  }

  [[noreturn]] void bad(const char* operation, const void* p, timer_state s) override {
    const auto& t = *static_cast<const timer*>(static_cast<const detail::basic_timer<Policy>*>(p));
    explorer_.fail("bad timer",
                   std::string(operation) + " finds " + name(t) + " in " + detail::name_of(s));
  }

  std::string name_of(const void* p) override {
    if (timer* t = timer_at(p)) return name(*t) + (p == &t->state ? "'s state" : "'s owner");
    for (std::size_t h = 0; h < heaps_.size(); ++h) {
      const timers& ts = heaps_[h];
      const std::string of = "heap " + std::to_string(h);
      if (p == &ts.lock) return of;  // the lock is the first member: also the heap itself
      if (p == &ts.num_timers) return of + "'s num_timers";
      if (p == &ts.deleted_timers) return of + "'s deleted_timers";
      if (p == &ts.timer0_when) return of + "'s timer0_when";
      if (p == &ts.timer_modified_earliest) return of + "'s timer_modified_earliest";
    }
    return p == &poll_until_ ? "poll_until" : "something";
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
    // Who it was is in the number, so that a firing tells which arming it belongs to.
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
    if (again != 0 && (until == 0 || again < until)) {
      poll_until_.store(0);
    } else {
      asleep_ = true;
    }
  }

  /// next_when(), which must not be later than any timer there that nobody stops or resets.
  std::int64_t look_at(const timers& ts) {
    const std::int64_t when = next_when(ts);
    for (const timer& t : timers_) {
      if (!t.at_start.pending || !t.events.empty() || is_target(t)) continue;
      if (when == 0 || when > t.at_start.when) {
        explorer_.fail("sleepers", name(t) + " is due at " + std::to_string(t.at_start.when) +
                                       " and next_when said " + std::to_string(when));
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
      // A periodic timer would never be through.
      if (t.drained.size() == 2) del_timer(t);
      return;
    }
    e.begin = t.fire_begin;
    e.end = explorer_.step();
    t.events.push_back(e);
    explorer_.point();  // f takes its time
    if (t.freed) explorer_.fail("references", name(t) + " is freed while its f runs");
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
    if (t.freed) explorer_.fail("references", name(t) + " is freed while its f runs");
  }

  /// Says what the current thread is doing, for as long as it lives.
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
    e.with = with;
    e.answer = answer;
    t.events.push_back(e);
  }

  // ---- checks ----

  void inspect(const timer& t, std::size_t i) {
    const timer_state s = t.state.peek();
    const timers* owner = t.owner.peek();
    std::size_t found = 0;
    bool locked = false;
    for (const timers& ts : heaps_) {
      found += count(ts, t);
      locked = locked || ts.lock.taken();
    }
    // While a heap is locked its array may be in the middle of something: a timer twice in it is
    // being moved over itself, one that is there already has yet to be let go.
    if (is_on_heap(s) && !is_held(s)) {
      if (owner == nullptr) {
        explorer_.fail("structure", name(i) + " is " + detail::name_of(s) + " and has no owner");
      }
      if (found == 0 || count(*owner, t) != found || (!locked && found != 1)) {
        explorer_.fail("structure", name(i) + " is " + detail::name_of(s) + " and on " +
                                        std::to_string(found) + " heaps");
      }
    } else if (!is_held(s) && !locked && found != 0) {
      explorer_.fail("structure", name(i) + " is " + detail::name_of(s) + " and on a heap");
    }
    if (is_pending(s)) {
      const std::int64_t due = s == timer_state::waiting ? t.when : t.nextwhen;
      const std::int64_t look = first_look(*owner);
      if (look == 0 || look > due) {
        explorer_.fail("sleepers", name(i) + " is due at " + std::to_string(due) +
                                       " and its heap is to be looked at " +
                                       (look == 0 ? "never" : "at " + std::to_string(look)));
      }
    }
    if (t.freed && found != 0 && !locked) {
      explorer_.fail("references", name(i) + " is freed and on a heap");
    }
  }

  /// next_when() without steps.
  static std::int64_t first_look(const timers& ts) {
    const std::int64_t a = ts.timer0_when.peek();
    const std::int64_t b = ts.timer_modified_earliest.peek();
    return a == 0 ? b : b == 0 ? a : std::min(a, b);
  }

  static std::size_t count(const timers& ts, const timer& t) {
    return static_cast<std::size_t>(
        std::count_if(ts.heap.begin(), ts.heap.end(), [&](const auto& e) { return e.node == &t; }));
  }

  void check_heap(std::size_t h) {
    timers& ts = heaps_[h];
    const std::string of = "heap " + std::to_string(h) + ": ";
    if (ts.lock.taken()) explorer_.fail("structure", of + "still locked");
    if (!ts.heap.verify()) explorer_.fail("heap order", of + ts.heap.describe_violation());
    std::int32_t deleted = 0;
    std::int64_t earliest = INT64_MAX;
    for (const auto& e : ts.heap) {
      const auto& t = *static_cast<const timer*>(e.node);
      if (t.when != e.when) explorer_.fail("heap order", of + name(t) + " has another key");
      if (t.state.peek() == timer_state::deleted) ++deleted;
      if (t.state.peek() == timer_state::modified_earlier)
        earliest = std::min(earliest, t.nextwhen);
    }
    const auto equal = [&](const char* what, std::int64_t is, std::int64_t ought) {
      if (is != ought) {
        explorer_.fail("counters", of + what + " is " + std::to_string(is) + " and ought to be " +
                                       std::to_string(ought));
      }
    };
    equal("num_timers", ts.num_timers.peek(), static_cast<std::int64_t>(ts.heap.size()));
    equal("deleted_timers", ts.deleted_timers.peek(), deleted);
    equal("timer0_when", ts.timer0_when.peek(), ts.heap.empty() ? 0 : ts.heap.front().when);
    const std::int64_t known = ts.timer_modified_earliest.peek();
    if (ts.heap.empty()) equal("timer_modified_earliest of no timers", known, 0);
    if (earliest != INT64_MAX && (known == 0 || known > earliest)) {
      equal("timer_modified_earliest", known, earliest);
    }
  }

  void check_timer(const timer& t, std::size_t i) {
    if (is_held(t.state.peek())) {
      explorer_.fail("structure", name(i) + " is left in " + detail::name_of(t.state.peek()));
    }
    inspect(t, i);
    const int held = (is_on_heap(t.state.peek()) ? 1 : 0) + (t.dropped ? 0 : 1);
    if (t.references != held) {
      explorer_.fail("references", name(i) + " has " + std::to_string(t.references) +
                                       " references and ought to have " + std::to_string(held));
    }
    if (!explains(t.events, {t.at_start}, armed(t))) {
      std::string text = name(i) + " was " + to_text(t.at_start);
      for (const event& e : t.events) text += "; " + to_text(e);
      explorer_.fail("answers", text + "; in the end it is " + to_text(armed(t)));
    }
  }

  void check_sleeper() {
    if (!asleep_ || woken_) return;
    const std::int64_t until = poll_until_.peek();
    for (std::size_t i = 0; i < timers_.size(); ++i) {
      const arming a = armed(timers_[i]);
      if (a.pending && a.when < until) {
        explorer_.fail("oversleeping", name(i) + " is due at " + std::to_string(a.when) +
                                           " and the poller sleeps until " + std::to_string(until));
      }
    }
  }

  void drain() {
    draining_ = true;
    std::array<arming, 16> expected;
    for (std::size_t i = 0; i < timers_.size(); ++i) expected[i] = armed(timers_[i]);
    std::int64_t at = now();
    for (;;) {
      for (timers& ts : heaps_) {
        std::lock_guard guard(ts.lock);
        if (ts.heap.empty()) continue;
        adjust_timers(ts, at);
        while (run_timer(ts, at) == 0) {
        }
      }
      std::int64_t next = 0;
      for (const timers& ts : heaps_) {
        const std::int64_t when = next_when(ts);
        if (when != 0 && (next == 0 || when < next)) next = when;
      }
      if (next == 0) break;
      if (next <= at) {
        explorer_.fail("busy loop", "all that is due at " + std::to_string(at) +
                                        " has run, and something is to be done at " +
                                        std::to_string(next));
      }
      at = next;
    }
    for (std::size_t i = 0; i < timers_.size(); ++i) check_drained(timers_[i], i, expected[i]);
  }

  void check_drained(const timer& t, std::size_t i, const arming& expected) {
    const std::size_t times = !expected.pending ? 0 : expected.period > 0 ? 2 : 1;
    if (t.drained.size() != times) {
      explorer_.fail("drain", name(i) + " was " + to_text(expected) + " and fired " +
                                  std::to_string(t.drained.size()) + " times");
    }
    if (times != 0 && (t.drained[0].with.when != std::max(expected.when, now()) ||
                       t.drained[0].with.seq != expected.seq)) {
      explorer_.fail("drain", name(i) + " was " + to_text(expected) + ": " + to_text(t.drained[0]));
    }
    if (is_on_heap(t.state.peek()) || t.references != (t.dropped ? 0 : 1)) {
      explorer_.fail("drain", name(i) + " is left as " + detail::name_of(t.state.peek()) +
                                  " with references: " + std::to_string(t.references));
    }
  }

  // ---- odds and ends ----

  [[nodiscard]] std::int64_t now() const { return scenario_.now; }

  /// How the timer is armed, if nobody is in the middle of anything.
  static arming armed(const timer& t) {
    const timer_state s = t.state.peek();
    return {is_pending(s), s == timer_state::waiting ? t.when : t.nextwhen, t.period, t.seq};
  }

  void start_over(timers& ts) {
    ts.lock.reset();
    ts.heap.clear();
    if (scenario_.no_memory) ts.heap.shrink();
    ts.num_timers.reset(0);
    ts.deleted_timers.reset(0);
    ts.timer0_when.reset(0);
    ts.timer_modified_earliest.reset(0);
  }

  void start_over(timer& t, const timer_setup& how, std::size_t i) {
    t.owner.reset(nullptr);
    t.state.reset(timer_state::no_status);
    t.when = how.when;
    t.nextwhen = 0;
    t.period = how.period;
    t.f = &world::fire;
    t.seq = i + 1;
    t.references = 1;  // the handle's
    t.freed = t.dropped = false;
    t.in_f = how.f;
    t.events.clear();
    t.drained.clear();
  }

  [[nodiscard]] bool has_sleeper() const {
    return std::any_of(scenario_.threads.begin(), scenario_.threads.end(),
                       [](const auto& ops) { return ops.front().what == action::sleep; });
  }

  /// Whether some thread stops or resets it.
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
  timer* timer_at(const void* p) {
    const auto* at = static_cast<const std::byte*>(p);
    const auto* first = reinterpret_cast<const std::byte*>(timers_.data());
    if (at < first || at >= first + timers_.size() * sizeof(timer)) return nullptr;
    return &timers_[static_cast<std::size_t>(at - first) / sizeof(timer)];
  }
  static std::string name(std::size_t i) { return "timer " + std::to_string(i); }
  std::string name(const timer& t) const {
    return name(static_cast<std::size_t>(&t - timers_.data()));
  }

  inline static world* here = nullptr;
  explorer& explorer_;
  const scenario& scenario_;
  std::vector<timer> timers_;
  std::array<timers, 2> heaps_;
  std::array<thread, explorer::most_threads> threads_{};
  explored_atomic<std::int64_t> poll_until_{0};
  bool asleep_ = false;
  bool woken_ = false;
  bool draining_ = false;
};

}  // namespace verge::test
