// SPDX-License-Identifier: Apache-2.0
// hybrid_world: the hybrid engine's timers under the explorer: the operations of a few threads on a
// few timers, and all checks.
//
// It is 100 o'clock; an hour is the resolution of an entry's hint, so that all cases of hint and
// key occur. There are always the timers of two processors.
//
// No operation is made on a freed timer. (Its word and its tag may be read: that is their purpose.)
// When all threads have finished:
//   wheels         are in order, and report the first entry
//   references     are one for the handle and one for being armed, or for having been
//   answers        what stop and reset returned and what fired is linearizable (history.h)
//   oversleeping   a poller that went to sleep was woken, or nothing is due before it wakes
//   relying        the same as soon as a start has returned that made an entry, wherever other
//                  threads are: none of them may ever run again
//   drain          run on as a scheduler would, sleeping from one time to the next, every armed
//                  timer fires, once, at its time; unnecessary wake-ups end
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <explorer/drain.h>
#include <explorer/explorer.h>
#include <explorer/explorer_policy.h>
#include <explorer/history.h>
#include <queue/hybrid_timers.h>

namespace verge::test {

using detail::hybrid_mutant;

inline constexpr std::int64_t hour = std::int64_t{1} << detail::hybrid_tag::unit_bits;

/// In nanoseconds; sixteenths of an hour are exact.
constexpr std::int64_t at_hour(double h) { return static_cast<std::int64_t>(h * hour); }
inline std::string to_text_of(double h) {
  std::string text = std::to_string(h);
  text.erase(text.find_last_not_of("0") + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

/// For figures that are written under a lock and that no operation reads.
template <class T>
class quiet_atomic {
 public:
  quiet_atomic(T v = T{}) : value_(v) {}
  T load(std::memory_order) const { return value_; }
  void store(T v, std::memory_order) { value_ = v; }

 private:
  T value_;
};

/// explored_atomic treats a 32-bit one as such a figure; the tag is not one.
class explored_tag {
 public:
  std::uint32_t load(std::memory_order o) const {
    return static_cast<std::uint32_t>(value_.load(o));
  }
  void store(std::uint32_t v, std::memory_order o) { value_.store(v, o); }
  void reset(std::uint32_t v) { value_.reset(v); }
  [[nodiscard]] std::uint64_t peek() const { return value_.peek(); }

 private:
  explored_atomic<std::uint64_t> value_;
};

struct hybrid_node {
  explored_atomic<std::uint64_t> word;
  explored_tag tag;
  std::int64_t period = 0;
  std::uint32_t id = 0;
  int references = 1;
  bool freed = false;
  bool dropped = false;
  bool precise = false;
  arming at_start;
  std::vector<event> events;
  std::vector<event> drained;
};

/// `Many`: from how many entries on these are made early, as among many. 0: always.
template <hybrid_mutant Mutation, std::size_t Many>
struct hybrid_policy {
  static constexpr hybrid_mutant mutation = Mutation;
  static constexpr std::size_t many_entries = Many;
  template <class T>
  using atomic =
      std::conditional_t<std::is_same_v<T, std::int64_t>, explored_atomic<T>, quiet_atomic<T>>;
  using lock = explored_lock;
  using node = hybrid_node;
  using timers = detail::hybrid_timers<hybrid_policy>;

  struct directory {
    std::vector<node>* all;
    static std::uint32_t id_of(const node& t) { return t.id; }
    node& at(std::uint32_t id) const { return (*all)[id]; }
    void prefetch(std::uint32_t) const {}
  };
  struct chunks {
    void* allocate() { return std::malloc(detail::timer_wheel<chunks>::chunk_bytes); }
    void free(void* p) { std::free(p); }
  };
  static auto& word(node& t) { return t.word; }
  static auto& tag(node& t) { return t.tag; }
  static std::int64_t& period(node& t) {
    watcher::now->used(&t);
    return t.period;
  }
  static bool precise(node& t) { return t.precise; }
  static void yield() {
    if (auto* e = explorer::active()) e->yield();
  }
  static void acquire(node& t) { watcher::now->acquired(&t); }
  static void release(node& t) { watcher::now->released(&t); }
  static void release_locked(timers&, node& t) { watcher::now->released(&t); }
  static void wake_net_poller(timers& ts, std::int64_t when) { watcher::now->woken(&ts, when); }
  static bool sleeps_past(const timers&, std::int64_t when) {
    return watcher::now->sleeps_past(when);
  }
};

enum class hybrid_action {
  stop,
  stop_keeping,
  reset,
  reset_alone,
  drop,
  detach,
  start,
  check,
  sweep,
  move,
  look,
  sleep,
  end
};

struct hybrid_op {
  hybrid_action what;
  std::size_t target = 0;  ///< which timer; for those on wheels: which
  double when = 0;         ///< in hours
  std::int64_t period = 0;
  std::size_t own = 0;  ///< the processor that reset runs on
};

/// How timer i is at the start: started at `key`, then reset to `when` if that is not zero.
struct hybrid_setup {
  double key = 0;  ///< 0: never started
  double when = 0;
  std::int64_t period = 0;
  bool stopped = false;
  bool kept = false;  ///< and has kept its reference
  std::size_t on = 0;
  bool freed = false;    ///< and its handle was destroyed: the node can be reused
  bool precise = false;  ///< its entry comes up 20 hours before it is due
  bool blank = false;    ///< freed, and its memory was given back: it reads as zeros
  bool wraps = false;    ///< its token is the last before they begin anew
};

struct hybrid_scenario {
  std::vector<hybrid_setup> timers;
  std::vector<std::vector<hybrid_op>> threads;
  unsigned steps = 1000;  ///< of the wheel in one check: a check that runs out of them is repeated
};

inline std::string to_text(const hybrid_scenario& s) {
  static constexpr const char* names[] = {"stop",   "stop_keeping", "reset", "reset_alone", "drop",
                                          "detach", "start",        "check", "sweep",       "move",
                                          "look",   "sleep",        "end"};
  std::string text;
  for (const auto& t : s.timers) {
    text += to_text_of(t.key);
    if (t.when != 0) text += ">" + to_text_of(t.when);
    if (t.period != 0) text += "/" + std::to_string(t.period);
    if (t.stopped) text += t.kept ? "X" : "x";
    if (t.freed) text += "-";
    if (t.blank) text += "0";
    if (t.wraps) text += "w";
    if (t.precise) text += "!";
    if (t.on != 0) text += "^" + std::to_string(t.on);
    text += ",";
  }
  for (const auto& thread : s.threads) {
    text += &thread == &s.threads.front() ? " " : "|";
    for (const auto& o : thread) {
      if (&o != &thread.front()) text += ";";
      text += names[static_cast<int>(o.what)];
      if (o.target != 0) text += std::to_string(o.target);
      if (o.when != 0) text += "@" + to_text_of(o.when);
      if (o.period != 0) text += "/" + std::to_string(o.period);
      if (o.own != 0) text += "^" + std::to_string(o.own);
    }
  }
  return text;
}

template <hybrid_mutant Mutation = hybrid_mutant::none, std::size_t Many = 0>
class hybrid_world final : public program, public watcher {
 public:
  using policy = hybrid_policy<Mutation, Many>;
  using timers = detail::hybrid_timers<policy>;
  static constexpr std::int64_t now = 100 * hour;

  hybrid_world(explorer& e, const hybrid_scenario& s) : explorer_(e), scenario_(s) { tells = true; }

  // ---- program ----

  [[nodiscard]] std::size_t threads() const override { return scenario_.threads.size(); }

  void prepare() override {
    watcher::now = this;
    for (auto& w : wheels_) {
      w.emplace(typename policy::directory{&nodes_}, typename policy::chunks{}, 50 * hour);
      w->early.store(20 * hour, std::memory_order_relaxed);
    }
    nodes_.resize(scenario_.timers.size());
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      hybrid_node& t = nodes_[i];
      start_over(t);
      const hybrid_setup& how = scenario_.timers[i];
      t.id = static_cast<std::uint32_t>(i);
      t.precise = how.precise;
      if (how.wraps) t.tag.reset(detail::hybrid_tag::of(~0U, 0));
      if (how.key == 0) continue;
      ++t.references;
      wheels_[how.on]->start(t, at_hour(how.key), how.period * hour);
      if (how.when != 0) wheels_[how.on]->reset(t, at_hour(how.when), how.period * hour);
      if (how.stopped) how.kept ? timers::stop_keeping(t) : timers::stop(t);
      if (how.freed) {
        t.dropped = true;
        released(&t);
      }
      if (how.blank) {
        t.word.reset(0);
        t.tag.reset(0);
      }
      t.at_start = armed(t);
    }
    poll_until_.reset(0);
    asleep_ = woken_ = false;
    held_.fill(0);
  }

  void run(std::size_t i) override {
    for (const hybrid_op& o : scenario_.threads[i]) {
      begin_[i] = 0;
      perform(o);
    }
  }

  void inspect() override {
    if (states != nullptr) states->insert(fingerprint());
  }

  /// Where to note what each state looks like, in which checks can tell states apart; or null.
  std::set<std::uint64_t>* states = nullptr;

  void finish() override {
    if (states != nullptr) states->insert(fingerprint());
    for (std::size_t p = 0; p < 2; ++p) check_wheel(p);
    for (hybrid_node& t : nodes_) check_timer(t);
    check_sleeper();
    drain();
  }

  // ---- watcher ----

  void touched(const void* atomic) override {
    touch(part_of(atomic));
    std::size_t& begin = begin_[explorer_.current()];
    if (begin != 0) return;
    begin = explorer_.step();
    explorer_.touches({.reads = the_order});
  }
  void locked(const void* lock) override {
    held_[explorer_.current()] |= part_of(lock);
    touch(part_of(lock));
  }
  void unlocked(const void* lock) override { held_[explorer_.current()] &= ~part_of(lock); }
  void used(const void* p) override { touch(part_of(p)); }
  void acquired(void* p) override {
    auto& t = *static_cast<hybrid_node*>(p);
    touch(part_of(&t));
    if (t.freed) explorer_.fail("references", name(t) + " is acquired after it was freed");
    ++t.references;
  }
  void released(void* p) override {
    auto& t = *static_cast<hybrid_node*>(p);
    touch(part_of(&t));
    if (t.references == 0) explorer_.fail("references", name(t) + " is released once too often");
    if (--t.references != 0) return;
    if (!t.dropped) explorer_.fail("references", name(t) + " is freed and its handle is there");
    if (armed(t).pending) explorer_.fail("references", name(t) + " is freed and armed");
    t.freed = true;
  }
  void woken(void*, std::int64_t when) override {
    if (explorer::active() == nullptr || !has_sleeper()) return;
    const std::int64_t until = poll_until_.load();
    if (until != 0 && when < until) woken_ = true;
    touch(the_sleeper);
  }
  bool sleeps_past(std::int64_t when) override {
    return explorer::active() != nullptr && has_sleeper() && poll_until_.load() > when;
  }
  std::string name_of(const void* p) override {
    for (const hybrid_node& t : nodes_) {
      if (p == &t.word) return name(t) + "'s word";
      if (p == &t.tag) return name(t) + "'s tag";
    }
    for (std::size_t i = 0; i < 2; ++i) {
      if (p == &wheels_[i]->lock) return "wheel " + std::to_string(i);
      if (p == &wheels_[i]->next) return "wheel " + std::to_string(i) + "'s next";
    }
    return "poll_until";
  }

 private:
  // ---- what a step touches: a timer, a wheel, all with what is noted of them ----

  static constexpr std::uint64_t the_sleeper = std::uint64_t{1} << 60;
  static constexpr std::uint64_t the_order = std::uint64_t{1} << 61;

  std::uint64_t part_of(const void* p) const {
    const auto* at = static_cast<const std::byte*>(p);
    const auto is_in = [&](const void* whole, std::size_t bytes) {
      const auto* first = static_cast<const std::byte*>(whole);
      return at >= first && at < first + bytes;
    };
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (is_in(&nodes_[i], sizeof nodes_[i])) return std::uint64_t{1} << i;
    }
    for (std::size_t i = 0; i < wheels_.size(); ++i) {
      if (is_in(&*wheels_[i], sizeof(timers))) return std::uint64_t{1} << (50 + i);
    }
    return the_sleeper;
  }
  /// With everything whose lock the thread has.
  void touch(std::uint64_t parts) {
    if (explorer::active() == nullptr) return;
    explorer_.touches({.writes = parts | held_[explorer_.current()]});
  }

  /// A number for all that checks read.
  std::uint64_t fingerprint() {
    std::uint64_t sum = 14695981039346656037U;
    const auto add = [&](auto v) { sum = (sum ^ static_cast<std::uint64_t>(v)) * 1099511628211U; };
    std::vector<const event*> all;
    for (const hybrid_node& t : nodes_) {
      add(t.word.peek());
      add(t.tag.peek());
      for (const std::int64_t v : {t.period, std::int64_t{t.references}}) add(v);
      for (const bool v : {t.freed, t.dropped}) add(v);
      for (const event& e : t.events) {
        add(e.what);
        add(e.answer);
        for (const std::int64_t v : {e.with.when, e.with.period}) add(v);
        all.push_back(&e);
      }
    }
    // Which ended before another, or before an operation that runs, began.
    for (const event* e : all) {
      for (const event* other : all) add(e->end < other->begin);
      for (std::size_t i = 0; i < threads(); ++i) add(e->end < begin_[i]);
    }
    for (const auto& w : wheels_) {
      add(w->lock.taken());
      add(w->next.peek());
      if (!w->lock.taken()) add(w->wheel().first());
    }
    add(poll_until_.peek());
    for (const bool v : {asleep_, woken_}) add(v);
    return sum;
  }

  /// As new, but with the memory that its events had: there are millions of schedules.
  static void start_over(hybrid_node& t) {
    auto events = std::move(t.events);
    auto drained = std::move(t.drained);
    events.clear();
    drained.clear();
    t = {};
    t.events = std::move(events);
    t.drained = std::move(drained);
  }

  void perform(const hybrid_op& o) {
    timers& w = *wheels_[o.target < 2 ? o.target : 0];
    hybrid_node& t = nodes_[o.target < nodes_.size() ? o.target : 0];
    switch (o.what) {
      case hybrid_action::stop: {
        const bool answer = timers::stop(t);
        return record(t, event::stop, {}, answer);
      }
      case hybrid_action::stop_keeping: {
        const bool answer = timers::stop_keeping(t);
        return record(t, event::stop, {}, answer);
      }
      case hybrid_action::reset: {
        const arming with{true, at_hour(o.when), o.period * hour, 0};
        const bool answer = wheels_[o.own]->reset(t, with.when, with.period);
        return record(t, event::mod, with, answer);
      }
      case hybrid_action::
          reset_alone: {  // where no other thread of the scenario stops or resets it
        const arming with{true, at_hour(o.when), o.period * hour, 0};
        const bool answer = wheels_[o.own]->reset_alone(t, with.when, with.period);
        return record(t, event::mod, with, answer);
      }
      case hybrid_action::drop: {  // as a handle is destroyed: fast or slow path
        const auto at_once = timers::end_one_shot(t);
        bool answer = at_once == timers::ended::was_armed;
        if (at_once != timers::ended::unusual) {
          released(&t);
        } else {
          answer = timers::stop(t);
          if (!answer && timers::give_up(t)) released(&t);
        }
        record(t, event::stop, {}, answer);
        touch(part_of(&t));
        t.dropped = true;
        return released(&t);
      }
      case hybrid_action::detach: {
        if (timers::give_up(t)) released(&t);
        touch(part_of(&t));
        t.dropped = true;
        return released(&t);
      }
      case hybrid_action::start: {  // of a new timer in the same node
        const arming with{true, at_hour(o.when), o.period * hour, 0};
        touch(part_of(&t) | the_sleeper);
        t.freed = t.dropped = false;
        t.references = 2;
        if (with.period != 0 || !timers::start_again(t, with.when)) {
          wheels_[o.own]->start(t, with.when, with.period);
          touch(the_sleeper);
          if (asleep_ && !woken_ && with.when < poll_until_.peek()) {
            explorer_.fail("relying", name(t) + " is due at " + std::to_string(with.when) +
                                          " and the poller sleeps until " +
                                          std::to_string(poll_until_.peek()));
          }
        }
        return record(t, event::mod, with, false);
      }
      case hybrid_action::check:
        return check(w, now, false);
      case hybrid_action::sweep: {
        std::lock_guard held(w.lock);
        while (!w.sweep(1)) {
        }
        return;
      }
      case hybrid_action::move: {
        std::scoped_lock first(wheels_[0]->lock);
        std::scoped_lock second(wheels_[1]->lock);
        w.give(*wheels_[1 - o.target], 1000);
        return;
      }
      case hybrid_action::look: {
        bool earlier = false;
        {
          std::lock_guard held(w.lock);
          w.next_exactly();
          earlier = w.comes_earlier();
        }
        if (earlier) woken(&w, w.next.load());
        return;
      }
      case hybrid_action::sleep:
        return sleep(w);
      case hybrid_action::end: {  // of the runtime, which has only timer 0: equivalent to a stop
        std::size_t n = 0;
        {
          std::lock_guard held(w.lock);
          n = w.drain();
        }
        if (n != 0) record(nodes_[0], event::stop, {}, true);
        return;
      }
    }
  }

  void check(timers& w, std::int64_t at, bool draining) {
    struct {
      hybrid_node* timer;
      std::int64_t when;
    } batch[8];
    unsigned steps = draining ? 1000 : scenario_.steps;
    std::size_t n = 0;
    bool earlier = false;
    // As run_due() in the engine: the lock is let go when the steps have run out.
    do {
      if (steps == 0) steps = scenario_.steps;
      std::lock_guard held(w.lock);
      n = w.collect(at, batch, 8, steps);
      earlier = w.comes_earlier() || earlier;
    } while (n == 0 && steps == 0);
    if (earlier) woken(&w, w.next.load());
    for (std::size_t i = 0; i < n; ++i) {
      hybrid_node& t = *batch[i].timer;
      touch(part_of(&t));
      if (t.freed) explorer_.fail("references", name(t) + " fires after it was freed");
      if (batch[i].when > at) explorer_.fail("early", name(t) + " fires before its time");
      if (i != 0 && batch[i].when < batch[i - 1].when && !is_reset_elsewhere(t)) {
        explorer_.fail("order", name(t) + " fires after a timer that was due later");
      }
      event e;
      e.what = event::fire;
      e.with = {true, at, 0, 0};
      if (draining) {
        t.drained.push_back(e);
        if (t.drained.size() == 2) timers::stop(t);
      } else {
        record(t, event::fire, e.with, false);
        explorer_.point({.is_told = true});  // it takes its time
        touch(part_of(&t));
        if (t.freed) explorer_.fail("references", name(t) + " is freed while it fires");
      }
      released(&t);
    }
  }

  /// A time that another thread is about to set may come too late for the order.
  [[nodiscard]] bool is_reset_elsewhere(const hybrid_node& t) const {
    for (std::size_t i = 0; i < scenario_.threads.size(); ++i) {
      for (const hybrid_op& o : scenario_.threads[i]) {
        const bool resets = o.what == hybrid_action::reset || o.what == hybrid_action::reset_alone;
        if (resets && o.target == t.id && i != explorer_.current()) return true;
      }
    }
    return false;
  }

  void sleep(timers& w) {
    poll_until_.store(INT64_MAX);
    const std::int64_t until = w.next.load();
    poll_until_.store(until == 0 ? INT64_MAX : until);
    touch(the_sleeper);
    asleep_ = true;
  }

  void record(hybrid_node& t, event::kind what, arming with, bool answer) {
    event e;
    e.what = what;
    e.begin = begin_[explorer_.current()];
    e.end = explorer_.step();
    // Which operations had ended when another one began must not change.
    if (explorer::active() != nullptr) explorer_.touches({.writes = the_order});
    e.with = with;
    e.answer = answer;
    t.events.push_back(e);
  }

  void check_wheel(std::size_t p) {
    const timers& w = *wheels_[p];
    const std::string which = "wheel " + std::to_string(p) + ": ";
    if (w.lock.taken()) explorer_.fail("lock", which + "is still locked");
    if (const auto wrong = w.wheel().describe_violation(); !wrong.empty()) {
      explorer_.fail("wheel", which + wrong);
    }
    if (w.next.peek() != w.wheel().first()) {
      explorer_.fail("sleepers", which + "the first is at " + std::to_string(w.wheel().first()) +
                                     " and said to be at " + std::to_string(w.next.peek()));
    }
  }

  void check_timer(const hybrid_node& t) {
    if ((t.word.peek() & detail::hybrid_word::entering) != 0) {
      explorer_.fail("entering", name(t) + " is left as being entered");
    }
    const arming end = armed(t);
    const bool kept = detail::hybrid_word::keeps(t.word.peek());
    const int expected = (t.dropped ? 0 : 1) + (end.pending || kept ? 1 : 0);
    if (t.references != expected) {
      explorer_.fail("references", name(t) + " has " + std::to_string(t.references) +
                                       " references and should have " + std::to_string(expected));
    }
    if (explains(t.events, {t.at_start}, end)) return;
    std::string text = name(t) + " was " + to_text(t.at_start);
    for (const event& e : t.events) text += "; " + to_text(e);
    explorer_.fail("answers", text + "; in the end it is " + to_text(end));
  }

  void check_sleeper() {
    if (!asleep_ || woken_) return;
    for (const hybrid_node& t : nodes_) {
      const arming a = armed(t);
      if (a.pending && a.when < poll_until_.peek()) {
        explorer_.fail("oversleeping", name(t) + " is due at " + std::to_string(a.when) +
                                           " and the poller sleeps until " +
                                           std::to_string(poll_until_.peek()));
      }
    }
  }

  void drain() {
    std::vector<arming> expected;
    for (const hybrid_node& t : nodes_) expected.push_back(armed(t));
    test::drain(
        explorer_, wheels_, now, [this](auto& w, std::int64_t at) { check(*w, at, true); },
        [](const auto& w) { return w->next.peek(); });
    for (std::size_t i = 0; i < nodes_.size(); ++i) check_drained(nodes_[i], expected[i]);
  }

  void check_drained(const hybrid_node& t, const arming& expected) {
    const std::size_t times = !expected.pending ? 0 : expected.period > 0 ? 2 : 1;
    if (t.drained.size() != times) {
      explorer_.fail("drain", name(t) + " was " + to_text(expected) + " and fired " +
                                  std::to_string(t.drained.size()) + " times");
    }
    if (times != 0 && t.drained[0].with.when != std::max(expected.when, now)) {
      explorer_.fail("drain", name(t) + " was " + to_text(expected) + ": " + to_text(t.drained[0]));
    }
    if (t.word.peek() != 0 || t.references != (t.dropped ? 0 : 1)) {
      explorer_.fail("drain",
                     name(t) + " is left with references: " + std::to_string(t.references));
    }
  }

  static arming armed(const hybrid_node& t) {
    const std::uint64_t w = t.word.peek();
    return {
        detail::hybrid_word::due(w) != 0, detail::hybrid_word::due(w),
        detail::hybrid_word::due(w) != 0 && (w & detail::hybrid_word::periodic) != 0 ? t.period : 0,
        0};
  }

  [[nodiscard]] bool has_sleeper() const {
    return std::any_of(scenario_.threads.begin(), scenario_.threads.end(),
                       [](const auto& ops) { return ops.front().what == hybrid_action::sleep; });
  }
  static std::string name(const hybrid_node& t) { return "timer " + std::to_string(t.id); }

  explorer& explorer_;
  const hybrid_scenario& scenario_;
  std::vector<hybrid_node> nodes_;
  std::array<std::optional<timers>, 2> wheels_;
  std::array<std::size_t, explorer::most_threads> begin_{};
  /// The wheels whose locks each thread has.
  std::array<std::uint64_t, explorer::most_threads> held_{};
  explored_atomic<std::int64_t> poll_until_{0};
  bool asleep_ = false;
  bool woken_ = false;
};

}  // namespace verge::test
