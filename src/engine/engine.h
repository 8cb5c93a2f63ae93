// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <base/probes.h>
#include <base/runtime_thread.h>
#include <clock/arithmetic.h>
#include <engine/operation_counts.h>
#include <node/node_store.h>
#include <verge/detail/timer_node.h>

/// What the rest of verge knows of an engine: a queue of timers, or several, with its locking.
///
/// An engine has two sides. Any thread starts, stops and resets timers. A driver - a scheduler, a
/// thread of the engine's own, or a simulation - asks when the next one is due and runs what is.
/// The scheduler drives an engine by calling check_timers() for its processors; an engine with a
/// thread of its own answers that it has nothing for them.
namespace verge::detail {

class slab_pool;

/// What an engine needs of the runtime that it serves.
class engine_host {
 public:
  /// Whether time is simulated: then no thread sleeps, the engine starts no threads, and everything
  /// is driven through check_timers(0).
  virtual bool simulated() const noexcept { return false; }
  /// The time that decides whether a timer is due.
  virtual std::int64_t now() noexcept = 0;
  /// A time that is cheaper to read, never before now(), and ahead of it by no more than 1 us.
  virtual std::int64_t cheap_now() noexcept = 0;
  /// The processor whose queue takes a timer that the calling thread starts: the one it holds, or
  /// for a thread that holds none always the same one, so that threads spread over them.
  virtual unsigned home_processor() noexcept = 0;
  /// A timer that is due at `when` is now first in its queue: a thread that sleeps until the first
  /// timer must not sleep longer than that. With no lock held.
  virtual void wake_net_poller(std::int64_t when) noexcept = 0;
  /// Whether a thread sleeps until a time after `when`, or was just told not to and has not woken
  /// yet. A thread that has made an entry asks, even if another entry comes first: the thread that
  /// made that one may have been preempted before it called wake_net_poller(). After the lock of
  /// the queue, which orders this after what that thread has published.
  virtual bool sleeps_past(std::int64_t /*when*/) const noexcept { return false; }
  /// How many timers one check should fire at most: as many as there is room for what they make
  /// ready. The next check finds the rest.
  virtual unsigned firing_room() noexcept { return 128; }
  /// A timer that was due at `when` fires at `now`: for the figures.
  virtual void timer_fired(std::int64_t when, std::int64_t now) noexcept = 0;
  /// Which one it is, for the figures by label.
  virtual void count_name(const timer_node& /*t*/) noexcept {}
  /// The same, for a trace.
  virtual void trace_fired(const timer_node& /*t*/, std::int64_t /*when*/) noexcept {}
  /// What a thread that the engine starts is called.
  virtual std::string thread_name(std::string_view role) const {
    return name_of_thread("verge", role);
  }

  /// By an engine, before a timer fires. Inlined by force: the probe tells engines apart by the
  /// function that it is in.
  [[gnu::always_inline]] void fires(const timer_node& t, std::int64_t when,
                                    std::int64_t now) noexcept {
    timer_fired(when, now);
    count_name(t);
    VERGE_PROBE4(fire, &t, when, now, t.does.load(std::memory_order_relaxed));
    if (traces()) [[unlikely]]
      trace_fired(t, when);
  }

  /// A timer that is due, disarmed or armed again, with a reference for its firing.
  struct firing {
    timer_node* timer;
    std::int64_t when;
  };
  /// Fires timers, in their order. A host that can queues what they make ready, and counts them, in
  /// one batch. With no lock held.
  virtual void fire_all(std::span<const firing> due, std::int64_t now) noexcept {
    for (const firing& f : due) {
      fires(*f.timer, f.when, now);
      fire(f, now);
    }
  }

 protected:
  ~engine_host() = default;
  /// Whether trace_fired() is to be called. A hint: one that comes late is harmless.
  void trace_firings(bool on) noexcept { traces_.store(on, std::memory_order_relaxed); }
  bool traces() const noexcept { return traces_.load(std::memory_order_relaxed); }

  /// Does what the timer does when it is due.
  static void fire(const firing& f, std::int64_t now) noexcept {
    timer_node& t = *f.timer;
    const timer_behaviour& does = *t.does.load(std::memory_order_acquire);
    if (does.take != nullptr) return does.take(t, now);
    does.fire(t, now);
    node_store::of(t).release(t);
  }

 private:
  std::atomic<bool> traces_{false};
};

/// What a check of a processor's timers found.
struct timer_check {
  std::int64_t now;   ///< the time, if it had to be read; else what the caller gave
  std::int64_t next;  ///< when the next timer is due; 0 if there is none
  unsigned ran;       ///< how many were run
};

/// An engine's figures for one processor, or for all of an engine that has one queue only.
struct timer_counts {
  std::uint64_t live{0};     ///< waiting to fire
  std::uint64_t deleted{0};  ///< stopped, and not yet taken off the queue
};

/// A wheel from outside: which slots are in use, a bit each, and how many timers are in the heap of
/// those that are due soon.
struct wheel_view {
  static constexpr int levels = 8;
  std::uint64_t used[levels]{};
  std::size_t near{0};
  std::size_t entries{0};
};

/// Which parties have references on a timer whose handle is being destroyed.
enum class left_with : std::uint8_t {
  others,  ///< the caller and others
  caller,  ///< the caller alone: all of the node is its own
  engine,  ///< the engine alone, which frees the node: the caller must not touch it any more
};

/// The period of a periodic timer: the second half of its payload (timer_node.h).
inline std::int64_t& period_of(timer_node& t) noexcept {
  return *reinterpret_cast<std::int64_t*>(t.payload + periodic_payload_bytes);
}

/// Whether a timer is precise (verge/timer_options.h): a bit of `runs`, which calls do not touch. A
/// hint that orders nothing. Any thread may change it, before it starts or resets the timer.
inline constexpr std::uint32_t precise_mark = std::uint32_t{1} << 31;
inline bool is_precise(const timer_node& t) noexcept {
  return (t.runs.load(std::memory_order_relaxed) & precise_mark) != 0;
}
inline void set_precise(timer_node& t, bool precise) noexcept {
  if (precise == is_precise(t)) return;
  if (precise) {
    t.runs.fetch_or(precise_mark, std::memory_order_relaxed);
  } else {
    t.runs.fetch_and(~precise_mark, std::memory_order_relaxed);
  }
}

class timer_engine {
 public:
  timer_engine() = default;
  timer_engine(const timer_engine&) = delete;
  timer_engine& operator=(const timer_engine&) = delete;
  virtual ~timer_engine() = default;

  /// The size of a node, which needs no destructor, and where in it the timer_node is.
  virtual node_layout layout() const noexcept = 0;
  /// Makes the engine's node in memory of that size.
  virtual timer_node* construct(void* memory) noexcept = 0;
  /// Where all its nodes will be: before the first one is made.
  virtual void attach(const slab_pool&) noexcept {}

  /// Starts a timer that has never been started. Takes a reference on it for as long as it waits.
  virtual void start(timer_node& t, std::int64_t when, std::int64_t period) = 0;
  /// True if the timer was waiting; it will not fire then.
  virtual bool stop(timer_node& t) noexcept = 0;
  /// Stops a timer with a function whose handle is being destroyed, so no other thread can stop or
  /// reset it. The engine may take the node over if no callback runs or is to run, and the payload
  /// need not be destroyed. `was_waiting` is what stop() would have returned.
  virtual left_with stop_for_good(timer_node& t, bool& was_waiting) noexcept {
    was_waiting = stop(t);
    return caller_or_others(t);
  }
  /// The owner of a timer with a function is about to drop its reference, and leaves the timer as
  /// it is. True if the timer was stopped and had another one, which is the caller's now.
  virtual bool give_up(timer_node& /*t*/) noexcept { return false; }
  /// Starts it again, or at another time. True if it was waiting.
  virtual bool reset(timer_node& t, std::int64_t when, std::int64_t period) = 0;

  /// Runs what is due of processor p's timers. `now` is 0 if the caller has not read the clock.
  /// `own` says that the calling worker holds p; a thief does not.
  virtual timer_check check_timers(unsigned p, std::int64_t now, bool own) noexcept = 0;
  /// When the first timer of processor p is due, read without a lock; 0 if it has none.
  virtual std::int64_t next_when(unsigned p) const noexcept = 0;
  /// The last time at which a timer can be due: one that is due later never is.
  virtual std::int64_t last_time() const noexcept { return never - 1; }
  /// From now on precise timers are to come up this many nanoseconds before they are due: how much
  /// earlier a thread has to aim to be awake by then. From one thread at a time.
  virtual void come_up_early(std::int64_t /*ns*/) noexcept {}
  /// Until when a thread that looks after processor p's timers should stay awake, because a precise
  /// timer has come up; a time in the past if none has. A hint, read without a lock.
  virtual std::int64_t awake_until(unsigned /*p*/) const noexcept { return 0; }
  /// When the first timer of processor p that was not stopped is due; 0 if it has none, `never` if
  /// those it has are never due. Slow: for simulated time, which must not advance to a time at
  /// which nothing happens.
  virtual std::int64_t next_exactly(unsigned p) noexcept = 0;
  /// No timer of processors [0, n) is due for long, and the caller is about to sleep until then.
  /// Removes entries of stopped timers, so that it is not woken for them. It takes microseconds,
  /// and the time to destroy payloads. True if there were any.
  virtual bool tidy_before_sleep(unsigned /*n*/) noexcept { return false; }
  /// The caller is about to sleep until next_when(p), which is before `until`. If no timer is due
  /// then, because it was stopped or put off, next_when(p) is a later time after this, as far as
  /// that can be found quickly. It may destroy payloads.
  virtual void look_ahead(unsigned /*p*/, std::int64_t /*until*/) noexcept {}
  /// Makes room for processors [0, n). From one thread at a time; others may use the engine.
  virtual void grow(unsigned n) = 0;
  /// Gives the timers of processor `from`, which is retired, to processor `to`.
  virtual void move_timers(unsigned from, unsigned to) noexcept = 0;
  /// Takes every timer off its queue without running it. No thread checks timers any more; others
  /// may start, stop and reset them meanwhile, and drain as well, and what they start stays.
  virtual void drain() noexcept = 0;
  /// Destroys the payloads of timers that only a queue still referred to
  /// (node_store::leave_dead()). Operations on timers do not, because their callers may hold a
  /// lock.
  virtual void bury_dead() noexcept {}

  /// Gives memory back that has not been in use since the last call (slab_pool::trim()). From one
  /// thread at a time; others may use the engine.
  virtual void trim() noexcept {}
  virtual bool can_trim() const noexcept { return false; }
  /// Has memory ready that will be needed soon, if there was a call for it (slab_pool::prepare()).
  /// From the thread that calls trim().
  virtual void prepare_memory() noexcept {}
  /// Calls f(arg) for that, and when can_trim() becomes true. Before the engine is used.
  virtual void on_growth(void (* /*f*/)(void*) noexcept, void* /*arg*/) noexcept {}

  virtual timer_counts counts(unsigned p) const noexcept = 0;
  /// When a timer is due, read without a lock; 0 if it is not armed, or the engine cannot tell. Of
  /// any node of the engine's, also a free one.
  virtual std::int64_t due_of(const timer_node& /*t*/) const noexcept { return 0; }
  virtual bool tells_due() const noexcept { return false; }
  /// For an engine that does not: calls f(arg, timer, when) for each timer that is pending, under
  /// the lock of its queue. For reports: slow.
  virtual void for_each_pending(void (* /*f*/)(void* arg, const timer_node& t, std::int64_t when),
                                void* /*arg*/) const {}
  /// What the queue of processor p looks like. False if it is not a wheel.
  virtual bool shape(unsigned /*p*/, wheel_view& /*out*/) const noexcept { return false; }
  /// What start, stop and reset have done, if the engine counts it: counts_totals() says so.
  virtual bool counts_totals() const noexcept { return false; }
  virtual timer_totals totals() const noexcept { return {}; }
  virtual std::size_t bytes() const noexcept = 0;

  /// What is wrong with the queues - order, links, counters, what is published for sleepers - in
  /// words; empty if nothing is. No other thread may use the engine meanwhile. For tests.
  [[nodiscard]] virtual std::string verify() const = 0;

 protected:
  /// How check_timers() begins: whether a timer that is due at `next` is due now. Reads the clock
  /// only if it may be; `now` is 0 if the caller has not.
  static bool is_due(engine_host& host, std::int64_t next, std::int64_t& now) noexcept {
    if (next == 0) return false;
    // The cheap time is never behind: what is not due by that is not due.
    if (now == 0 && host.cheap_now() < next) return false;
    if (now == 0) now = host.now();
    return now >= next;
  }
  /// Whether the caller has the only reference.
  static left_with caller_or_others(const timer_node& t) noexcept {
    return t.refs.load(std::memory_order_acquire) == 1 ? left_with::caller : left_with::others;
  }
};

}  // namespace verge::detail
