// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include <base/probes.h>
#include <base/trace_log.h>
#include <clock/arithmetic.h>
#include <clock/fast_clock.h>
#include <engine/engine.h>
#include <engine/hybrid.h>
#include <node/node_store.h>
#include <verge/detail/scheduling.h>
#include <verge/detail/timer_node.h>
#include <verge/timer_options.h>

/// A runtime's timers: the engine and the clock they go by, above the store of their nodes
/// (node/node_store.h). The default engine is called directly, so that it can be inlined;
/// fast_path.h has what most calls come down to.
///
/// start(), stop() and reset() may leave timers behind whose payloads have to be destroyed. That is
/// user code, which must not run under a lock of the caller's. So each of them comes twice: for
/// callers without a lock, which clears up itself, and with a clear_up_after for those that have
/// one.
namespace verge::detail {

class [[gnu::visibility("hidden")]] clockwork;

/// Destroys, at the end of its scope, the payloads that operations on timers have left. It is
/// declared before the lock under which they take place:
///
///     const clear_up_after unlocked;
///     const std::lock_guard held(lock);
///     of.stop(t, unlocked);
///
/// The caller must have a reference on the timer until the end of the scope.
class [[gnu::visibility("hidden")]] clear_up_after {
 public:
  clear_up_after() noexcept = default;
  /// Also what others have left.
  explicit clear_up_after(clockwork & of) noexcept : of_(&of) {}
  ~clear_up_after();
  clear_up_after(const clear_up_after&) = delete;
  clear_up_after& operator=(const clear_up_after&) = delete;

 protected:
  struct not_here {};
  explicit clear_up_after(not_here) noexcept : here_(false) {}

 private:
  friend class clockwork;
  mutable clockwork* of_{nullptr};
  const bool here_{true};
};

/// For operations under a lock that is released elsewhere, or where user code must not run: the
/// next operation on a timer clears up, or the next check of the timers that are due.
class [[gnu::visibility("hidden")]] clear_up_later
    : public clear_up_after{public : clear_up_later() noexcept : clear_up_after(not_here()){}};

/// A timer that is pending, as a thread sees it that has no reference on it.
struct pending_timer {
  std::int64_t due;
  const timer_behaviour* does;
};

class clockwork final : public node_store {
 public:
  clockwork(std::unique_ptr<timer_engine> e, scheduler& s, engine_host& host);

  static clockwork& of(const timer_node& t) noexcept {
    return static_cast<clockwork&>(node_store::of(t));
  }

  /// A node with one reference, the caller's, that does nothing yet. Throws std::bad_alloc, and
  /// std::logic_error once the runtime has ended.
  timer_node& make() {
    hybrid* const h = quick();
    if (h == nullptr) refuse_if_ended();
    void* const memory = allocate();
    return *(h != nullptr ? h->hybrid::construct(memory) : engine_->construct(memory));
  }

  /// From now on timers without slack of their own get some, in proportion to their delay:
  /// runtime_options::coalesce. Before the first one is started.
  void coalesce() noexcept {
    coalesces_ = true;
    quick_deadlines_ = false;
  }
  /// For deadline(): a time that is neither slack nor coalesced.
  static constexpr std::int64_t exactly = precise_slack;

  /// The time `d` nanoseconds from now, or up to `slack` after it.
  std::int64_t deadline(std::int64_t d, std::int64_t slack = 0) noexcept {
    if (coalesces_ && slack == 0) slack = coalescing_slack(d);
    // What is due at once must be due on the true clock, which is a little behind the cheap one;
    // and not before this moment, so that a scan already in progress cannot fire it: the time it
    // delivers would be from before its start. If d is a few times that little, to wait for it
    // costs more than to read the true clock.
    const std::int64_t when = d > soon ? saturating_add(cheap_now(), d)
                                       : as_time(host_.now() + std::max<std::int64_t>(d, 0));
    return slack <= 0 ? when : with_slack(when, slack);
  }
  /// The first tick of a ticker that begins now. By the cheap clock, however short the period:
  /// nothing waits for this tick in particular.
  std::int64_t first_tick(std::int64_t period) noexcept {
    return saturating_add(cheap_now(), period);
  }
  /// The first tick that is not past, of a ticker whose ticks are at start + n * period.
  std::int64_t first_tick_on_grid(std::int64_t start, std::int64_t period) noexcept {
    return next_period(start, period, now() - 1);
  }
  std::int64_t now() noexcept { return host_.now(); }
  /// The deadline of a timer that is due at `when` and delivers the time: not before this moment.
  std::int64_t deadline_at(std::int64_t when) noexcept;

  // ---- Operations. Throw std::bad_alloc, and std::logic_error once the runtime has ended.

  void start(timer_node& t, std::int64_t when, std::int64_t period) {
    start(t, when, period, clear_up_after());
  }
  bool stop(timer_node& t) noexcept { return stop(t, clear_up_after()); }
  bool reset(timer_node& t, std::int64_t when, std::int64_t period) {
    return reset(t, when, period, clear_up_after());
  }

  // The same for callers that hold a lock.
  void start(timer_node& t, std::int64_t when, std::int64_t period,
             const clear_up_after& unlocked) {
    VERGE_PROBE2(start, &t, when);
    if (hybrid* const h = quick()) return h->hybrid::start(t, when, period);
    unlocked.of_ = this;
    start_slowly(t, when, period);
  }
  [[gnu::always_inline]] bool stop(timer_node& t, const clear_up_after& unlocked) noexcept {
    hybrid* const h = quick();
    if (h == nullptr) unlocked.of_ = this;
    const bool was_waiting = h != nullptr ? h->hybrid::stop(t) : stop_slowly(t);
    VERGE_PROBE2(stop, &t, was_waiting);
    return was_waiting;
  }
  [[gnu::always_inline]] bool reset(timer_node& t, std::int64_t when, std::int64_t period,
                                    const clear_up_after& unlocked) {
    hybrid* const h = quick();
    if (h == nullptr) unlocked.of_ = this;
    const bool was_waiting =
        h != nullptr ? h->hybrid::reset(t, when, period) : reset_slowly(t, when, period);
    VERGE_PROBE3(reset, &t, when, was_waiting);
    return was_waiting;
  }
  /// If no other thread stops or resets it meanwhile.
  [[gnu::always_inline]] bool reset_alone(timer_node& t, std::int64_t when, std::int64_t period,
                                          const clear_up_after& unlocked) {
    hybrid* const h = quick();
    if (h == nullptr) unlocked.of_ = this;
    const bool was_waiting =
        h != nullptr ? h->hybrid::reset_alone(t, when, period) : reset_slowly(t, when, period);
    VERGE_PROBE3(reset, &t, when, was_waiting);
    return was_waiting;
  }
  /// Stops a timer with a function whose handle is destroyed. After this the node may be the
  /// engine's, so the caller clears up before.
  left_with stop_for_good(timer_node& t) noexcept {
    hybrid* const h = quick();
    bool was_waiting = false;
    const left_with left = h != nullptr ? h->hybrid::stop_for_good(t, was_waiting)
                                        : stop_for_good_slowly(t, was_waiting);
    VERGE_PROBE2(stop, &t, was_waiting);
    return left;
  }

  /// The engine, if it is the default one and the runtime has not ended in any way; else nullptr.
  hybrid* quick() const noexcept { return quick_.load(std::memory_order_relaxed); }

  timer_engine& its_engine() noexcept { return *engine_; }
  /// Calls f(const pending_timer&) for about `most` of the pending timers, evenly spread, without a
  /// lock. Returns for how many each stands. Some that are started or stopped meanwhile are
  /// missing.
  template <class F>
  std::size_t sample_pending(std::size_t most, std::uint32_t seed, F&& f) {
    return nodes().sample_live(most, seed, [&](const void* memory) {
      const std::uint32_t life = slab_pool::version(memory);
      const timer_node& t = timer_in(memory);
      // Armed in this life, if it has not ended by the second look: so what was written before is
      // there, and not overwritten.
      pending_timer p{.due = engine_->due_of(t), .does = nullptr};
      if (p.due == 0) return;
      p.does = t.does.load(std::memory_order_acquire);
      if (p.does != nullptr && slab_pool::version(memory) == life) f(p);
    });
  }
  /// Calls f(const pending_timer&) for all pending timers. With an engine that has to, under the
  /// lock of the queue that it looks at.
  template <class F>
  void for_each_pending(F&& f) {
    if (engine_->tells_due()) {
      sample_pending(SIZE_MAX, 0, f);
      return;
    }
    const auto call = [](void* g, const timer_node& t, std::int64_t due) {
      const pending_timer p{.due = due, .does = t.does.load(std::memory_order_acquire)};
      if (p.does != nullptr) (*static_cast<std::remove_reference_t<F>*>(g))(p);
    };
    engine_->for_each_pending(call, &f);
  }
  /// From now on operations on timers are recorded there, which takes them off the fast path; or,
  /// with nullptr, not any more. The ring outlives the clockwork's use.
  void trace_to(trace_ring* ring) noexcept;
  /// What start, stop and reset have done.
  timer_totals totals() const noexcept {
    return counts_ != nullptr ? counts_->sum() : engine_->totals();
  }

  /// The runtime ends, and no timer fires any more; but other threads may be using handles.
  void close() noexcept;
  /// Closes it, and nothing is started any more. Calls `at_end` for each node in use.
  /// Deletes the clockwork now, or with the last handle, and `keep` after it; if `hold`, not before
  /// let_go() either.
  void end(void (*at_end)(timer_node&) noexcept, std::shared_ptr<void> keep = nullptr,
           bool hold = false) noexcept;
  /// In the child of a fork: the threads do not exist, and locks may be held forever.
  void lost_in_fork() noexcept {
    mark(is_forked);
    quick_.store(nullptr, std::memory_order_relaxed);
  }
  /// The calling thread ends the program: handles destroyed with static objects leave all as it is.
  void halt() noexcept {
    halt_store();
    quick_.store(nullptr, std::memory_order_relaxed);
  }

 private:
  friend struct fast_path;
  friend class clear_up_after;

  static constexpr std::int64_t soon = 5'000;

  ~clockwork() override = default;
  void start_slowly(timer_node& t, std::int64_t when, std::int64_t period);
  bool stop_slowly(timer_node& t) noexcept {
    const bool was_waiting = engine_->stop(t);
    if (was_waiting) note_stop(t);
    return was_waiting;
  }
  left_with stop_for_good_slowly(timer_node& t, bool& was_waiting) noexcept {
    const left_with left = engine_->stop_for_good(t, was_waiting);
    if (was_waiting) note_stop(t);
    return left;
  }
  /// The node may be another thread's by now: nothing of it is read, and its start has the name.
  void note_stop(const timer_node& t) noexcept {
    if (counts_ != nullptr) counts_->stopped();
    if (trace_ring* const ring = traced_.load(std::memory_order_acquire)) [[unlikely]]
      ring->add_shared({.time = fast_clock::now(), .what = trace_event::kind::stop, .id = &t});
  }
  bool reset_slowly(timer_node& t, std::int64_t when, std::int64_t period);
  void trace(trace_event::kind what, const timer_node& t, std::int64_t when) const noexcept {
    if (trace_ring* const ring = traced_.load(std::memory_order_acquire)) [[unlikely]]
      record(*ring, what, t, when);
  }
  static void record(trace_ring& ring, trace_event::kind what, const timer_node& t,
                     std::int64_t when) noexcept;
  /// A timer was started just as the runtime ended.
  void take_off_again(timer_node& t) noexcept;
  void clear_up() noexcept {
    if (has(has_dead | has_strays)) [[unlikely]]
      clear_up_now();
  }
  void clear_up_now() noexcept;
  /// The host's cheap time, read directly if that is the fast clock.
  std::int64_t cheap_now() noexcept {
    return in_real_time_ ? fast_clock::now() : host_.cheap_now();
  }

  std::unique_ptr<timer_engine> engine_;
  /// For an engine that does not count; else null.
  const std::unique_ptr<operation_counts> counts_;
  std::atomic<hybrid*> quick_;
  std::atomic<trace_ring*> traced_{nullptr};
  engine_host& host_;
  const bool in_real_time_;
  bool coalesces_{false};
  /// Whether a deadline is the fast clock's time and a sum.
  bool quick_deadlines_;
};

inline clear_up_after::~clear_up_after() {
  if (of_ != nullptr && here_) of_->clear_up();
}

}  // namespace verge::detail
