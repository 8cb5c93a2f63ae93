// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>

#include <base/counting.h>
#include <base/turn_lock.h>
#include <engine/dead_nodes.h>
#include <engine/engine.h>
#include <memory/slab_pool.h>
#include <memory/thread_slot.h>
#include <queue/hybrid_timers.h>

/// The default engine, verge's own: exact like a heap, constant-time like a wheel, and a timer is
/// stopped or put off from any thread by one compare-and-swap.
///
/// Each processor has a timer_wheel under a short lock; hybrid_timers.h has the ground rules. This
/// file adds what is the same for all processors: where nodes and chunks live, how timers fire, and
/// when to sweep.
///
/// Sweeping. A stopped timer leaves its entry behind, in a wheel that the thread that stopped it
/// does not know. So stops are not counted per wheel: every thread counts, in a place of its own,
/// how many timers it has armed and stopped, and every wheel how many entries it has and how many
/// have fired. The difference of the sums is how many entries are out of date. After
/// stops_per_look() stops a thread looks at the sums; if there are three out of date for four that
/// are live, a pass over all wheels begins. Until it is complete every thread does a piece of it
/// for every 16 timers that it stops, in a wheel whose lock is free: four chunks of 61 entries, 15
/// entries for each timer that is stopped. So even if timers are only stopped, and in the worst
/// order, a pass is complete before more are out of date than are live: entries out of date never
/// exceed the live ones plus a constant.
///
/// A look at the sums reads a cache line of every thread and two of every wheel, which others have
/// written since the last. So the number of stops between two looks is in proportion to the number
/// of lines: however many there are, a stop pays for a twentieth of one. It is part of the
/// constant, once for every thread. If there are few of both, a worker that is about to sleep
/// sweeps everything, so that an idle processor is not woken for what is out of date.
///
/// Pauses. When the slot of a high level comes up, it may have a hundred thousand entries, and the
/// thread that finds it due moves them all. No other thread may have to wait for that, nor for a
/// thread that was preempted while it had a lock.
///  - The lock is held for four chunks at most, and between two such pieces a thread that waits is
///    let in (turn_lock.h).
///  - A thread that needs an entry, and finds the lock of its own processor's timers held, makes
///    the entry in those of another processor whose lock is free. A timer fires from whichever
///    wheel has its entry. Only the order of timers that are overdue together, which is exact
///    within one wheel, is then left to which processor looks first.
///  - It waits only if all locks are held.
namespace verge::detail {

class hybrid final : public timer_engine {
 public:
  explicit hybrid(engine_host& host) : host_(host) {}

  /// Sweeping: how many timers a thread stops between two looks at the sums, and how many cache
  /// lines of others it reads for one. 256 stops where there are no more than four of each.
  static constexpr std::uint64_t lines_per_look(std::uint32_t threads, unsigned wheels) noexcept {
    return std::uint64_t{threads} + 2 * std::uint64_t{wheels};
  }
  static constexpr std::uint64_t stops_per_look(std::uint32_t threads, unsigned wheels) noexcept {
    return std::max<std::uint64_t>(256, lines_per_look(threads, wheels) * 64 / 3);
  }

  node_layout layout() const noexcept override { return node_layout::of<node>(); }
  timer_node* construct(void* memory) noexcept override;
  void attach(const slab_pool& nodes) noexcept override { nodes_ = &nodes; }

  void start(timer_node& t, std::int64_t when, std::int64_t period) override;
  bool stop(timer_node& t) noexcept override;
  left_with stop_for_good(timer_node& t, bool& was_waiting) noexcept override;
  left_with stop_for_good(timer_node& t) noexcept {
    bool was_waiting = false;
    return hybrid::stop_for_good(t, was_waiting);
  }
  /// As stop(), for a timer with a function: it keeps a reference, so that it can be started again
  /// for less. Its owner ends it by stop_for_good() or give_up().
  bool stop_keeping(timer_node& t) noexcept;
  bool give_up(timer_node& t) noexcept override { return timers::give_up(as_node(t)); }
  bool reset(timer_node& t, std::int64_t when, std::int64_t period) override;
  /// The same, if no other thread stops or resets it meanwhile.
  bool reset_alone(timer_node& t, std::int64_t when, std::int64_t period);

  timer_check check_timers(unsigned p, std::int64_t now, bool own) noexcept override;
  std::int64_t next_when(unsigned p) const noexcept override;
  std::int64_t last_time() const noexcept override { return hybrid_word::latest - 1; }
  void come_up_early(std::int64_t ns) noexcept override;
  std::int64_t awake_until(unsigned p) const noexcept override;
  std::int64_t next_exactly(unsigned p) noexcept override;
  bool tidy_before_sleep(unsigned n) noexcept override;
  void look_ahead(unsigned p, std::int64_t until) noexcept override;
  void grow(unsigned n) override;
  void move_timers(unsigned from, unsigned to) noexcept override;
  void drain() noexcept override;

  void trim() noexcept override { chunks_.trim(); }
  bool can_trim() const noexcept override { return chunks_.can_trim(); }
  void prepare_memory() noexcept override { chunks_.prepare(); }
  void on_growth(void (*f)(void*) noexcept, void* arg) noexcept override {
    chunks_.on_growth(f, arg);
  }

  timer_counts counts(unsigned p) const noexcept override;
  std::int64_t due_of(const timer_node& t) const noexcept override {
    // Acquire: what was written before the timer was armed.
    return hybrid_word::due(static_cast<const node&>(t).word.load(std::memory_order_acquire));
  }
  bool tells_due() const noexcept override { return true; }
  bool shape(unsigned p, wheel_view& out) const noexcept override;
  bool counts_totals() const noexcept override { return true; }
  timer_totals totals() const noexcept override;
  std::size_t bytes() const noexcept override;
  [[nodiscard]] std::string verify() const override;

 private:
  friend struct fast_path;
  friend struct hybrid_access;  // tests

  struct state {
    std::atomic<std::uint64_t> word;
  };
  /// With the slab's header it fills a cache line: version, tag, word, and the timer.
  struct node : state, timer_node {};
  static_assert(sizeof(node) + slab_pool::header_bytes == 64);

  struct policy {
    template <class T>
    using atomic = std::atomic<T>;
    using lock = turn_lock;
    using node = hybrid::node;
    struct directory {
      const slab_pool* nodes;
      static std::uint32_t id_of(const node& t) noexcept { return slab_pool::index(&t); }
      node& at(std::uint32_t id) const noexcept { return *static_cast<node*>(nodes->at(id)); }
      void prefetch(std::uint32_t id) const noexcept { __builtin_prefetch(nodes->at(id)); }
    };
    struct chunks {
      slab_pool* pool;
      void* allocate() noexcept { return pool->try_allocate(); }
      void free(void* memory) noexcept { pool->free(memory); }
    };
    static std::atomic<std::uint64_t>& word(node& t) noexcept { return t.word; }
    static std::atomic<std::uint32_t>& tag(node& t) noexcept { return slab_pool::note(&t); }
    static std::int64_t& period(node& t) noexcept { return period_of(t); }
    static bool precise(const node& t) noexcept { return is_precise(t); }
    static void yield() noexcept;
    static void wake_net_poller(hybrid_timers<policy>& ts, std::int64_t when) noexcept;
    static bool sleeps_past(const hybrid_timers<policy>& ts, std::int64_t when) noexcept;
    static void acquire(node& t) noexcept { t.refs.fetch_add(1, std::memory_order_relaxed); }
    static void release(node& t) noexcept { t.refs.fetch_sub(1, std::memory_order_release); }
    static void release_locked(hybrid_timers<policy>& ts, node& t) noexcept;
  };

  struct alignas(128) timers : hybrid_timers<policy> {
    timers(hybrid& e, std::int64_t now) : hybrid_timers({e.nodes_}, {&e.chunks_}, now), engine(e) {}
    hybrid& engine;
    dead_nodes dead;
    /// The pass of sweeping that this wheel has had. Written under the lock.
    std::atomic<std::uint64_t> swept{0};
  };

  /// What one thread has counted, on a line of its own. High 32 bits: timers armed minus stopped,
  /// modulo 2^32. Low 32 bits: entries left to leave behind before the sums are looked at.
  struct alignas(64) tally {
    static constexpr std::uint64_t one_armed = std::uint64_t{1} << 32;
    static constexpr std::uint64_t one_left = 1;
    static constexpr std::uint32_t until_look(std::uint64_t both) noexcept {
      return static_cast<std::uint32_t>(both);
    }
    std::atomic<std::uint64_t> both{one_left};
    // The rest is for the figures: nothing but resets is counted on the fast path, as the low half
    // of `both` has counted everything that left an entry.
    /// By how much the low half was raised. Written after that.
    std::atomic<std::uint64_t> raised{one_left};
    /// Entries left by a reset that needed a new one. Written before that one is counted.
    std::atomic<std::uint64_t> moved{0};
    /// Resets of timers that were pending.
    std::atomic<std::uint64_t> reset{0};
  };

  std::span<const std::unique_ptr<timers>> all() const noexcept {
    return {timers_.data(), made_.load(std::memory_order_acquire)};
  }
  static timer_node* construct_node(void* memory) noexcept;
  /// What check_timers() does if a timer is due. Not inline: every turn of a task pays for what
  /// check_timers() sets up, and this needs a large frame.
  [[gnu::noinline]] timer_check run_due(timers& ts, std::int64_t now) noexcept;
  static node& as_node(timer_node& t) noexcept { return static_cast<node&>(t); }
  timers& home() noexcept { return *timers_[host_.home_processor()]; }
  timers& place_for_entry() noexcept;
  bool finish_reset(node& t, std::int64_t when, std::int64_t period, timers::change so_far);
  bool complete_reset(node& t, std::int64_t when, std::int64_t period,
                      hybrid_timers<policy>::change so_far);
  void start_with_entry(timer_node& t, std::int64_t when, std::int64_t period);
  void count_armed() noexcept;
  void count_stopped() noexcept;
  std::uint64_t count(std::uint32_t slot, std::uint64_t change) noexcept;
  void count_reset() noexcept;
  void tidy(std::uint32_t slot) noexcept { keep_tidy(tallies_[slot]); }
  void count_and_look(std::uint64_t change) noexcept;
  void keep_tidy(tally& mine) noexcept;
  bool sweep_or_begin() noexcept;
  bool sweep_piece(timers& ts, std::uint64_t pass) noexcept;
  std::int64_t live() const noexcept;
  std::int64_t entries() const noexcept;

  engine_host& host_;
  const slab_pool* nodes_{nullptr};
  slab_pool chunks_{timer_wheel<policy::chunks>::chunk_bytes};
  std::atomic<bool> drained_{false};
  std::array<std::unique_ptr<timers>, 256> timers_;
  /// How many of them there are. Publishes them.
  std::atomic<unsigned> made_{0};
  /// Which pass of sweeping is due, or under way. Only ever raised.
  std::atomic<std::uint64_t> pass_{0};
  /// What come_up_early() has said, for wheels that are yet to be made.
  std::atomic<std::int64_t> early_{0};
  /// The greatest totals that were seen: what is counted while they are computed may be missing,
  /// and must not make them smaller than they were.
  mutable std::atomic<std::uint64_t> started_seen_{0};
  mutable std::atomic<std::uint64_t> stopped_seen_{0};
  /// The last one of these is for threads that have no slot, and shared by them.
  std::array<tally, thread_slot_count + 1> tallies_;
};

// What clockwork and fast_path.h call directly.

/// The word stays as it is: zero in new memory, and what the last timer left in memory that was
/// freed. Other threads may be reading it, and whether the timer is precise (`runs`), so these are
/// only ever accessed as atomics: nothing is constructed over them.
inline timer_node* hybrid::construct_node(void* memory) noexcept {
  timer_node* const t = static_cast<node*>(memory);
  t->run = nullptr;
  t->next = nullptr;
  t->refs.store(1, std::memory_order_relaxed);
  t->runs.store(0, std::memory_order_relaxed);
  t->does.store(nullptr, std::memory_order_relaxed);
  return t;
}
inline timer_node* hybrid::construct(void* memory) noexcept { return construct_node(memory); }

inline void hybrid::start(timer_node& t, std::int64_t when, std::int64_t period) {
  // No other thread knows the timer.
  const std::uint32_t refs = t.refs.load(std::memory_order_relaxed);
  t.refs.store(refs + 1, std::memory_order_relaxed);
  if (period == 0 && timers::start_again(static_cast<node&>(t), when)) {
    count_armed();
  } else {
    start_with_entry(t, when, period);
  }
}

inline bool hybrid::stop(timer_node& t) noexcept {
  if (!timers::stop(static_cast<node&>(t))) return false;
  count_stopped();
  return true;
}

inline bool hybrid::stop_keeping(timer_node& t) noexcept {
  if (!timers::stop_keeping(static_cast<node&>(t))) return false;
  count_stopped();
  return true;
}

inline left_with hybrid::stop_for_good(timer_node& t, bool& was_waiting) noexcept {
  const timers::disarmed was = timers::disarm(static_cast<node&>(t));
  was_waiting = was != timers::disarmed::no;
  if (was_waiting) count_stopped();
  if (was == timers::disarmed::by_holder) return left_with::others;
  if (!was_waiting && !timers::give_up(static_cast<node&>(t))) return caller_or_others(t);
  // Two references are the handle's and the one for being armed: both are the caller's now.
  return t.refs.load(std::memory_order_acquire) == 2 ||
                 t.refs.fetch_sub(1, std::memory_order_acq_rel) == 2
             ? left_with::caller
             : left_with::others;
}

inline bool hybrid::reset(timer_node& t, std::int64_t when, std::int64_t period) {
  node& n = static_cast<node&>(t);
  return finish_reset(n, when, period, timers::reset_in_place(n, when, period));
}

inline bool hybrid::reset_alone(timer_node& t, std::int64_t when, std::int64_t period) {
  node& n = static_cast<node&>(t);
  return finish_reset(n, when, period, timers::reset_in_place_alone(n, when, period));
}

inline bool hybrid::finish_reset(node& t, std::int64_t when, std::int64_t period,
                                 timers::change so_far) {
  if (so_far == timers::change::was_armed) {
    count_reset();
    return true;
  }
  if (so_far != timers::change::was_idle) return complete_reset(t, when, period, so_far);
  count_armed();
  return false;
}

inline void hybrid::count_reset() noexcept {
  if constexpr (!counting) return;
  // Threads without a slot share the last place, and may miss a count of another.
  auto& mine = tallies_[thread_slot()].reset;
  mine.store(mine.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

/// Only the slot's thread writes there.
inline std::uint64_t hybrid::count(std::uint32_t slot, std::uint64_t change) noexcept {
  auto& both = tallies_[slot].both;
  const std::uint64_t sum = both.load(std::memory_order_relaxed) + change;
  both.store(sum, std::memory_order_relaxed);
  return sum;
}

inline void hybrid::count_armed() noexcept {
  const std::uint32_t slot = thread_slot();
  if (slot >= thread_slot_count) [[unlikely]]
    return count_and_look(tally::one_armed);
  count(slot, tally::one_armed);
}

inline void hybrid::count_stopped() noexcept {
  constexpr std::uint64_t change = -tally::one_armed - tally::one_left;
  const std::uint32_t slot = thread_slot();
  if (slot >= thread_slot_count) [[unlikely]]
    return count_and_look(change);
  if (tally::until_look(count(slot, change)) == 0) [[unlikely]]
    tidy(slot);
}

}  // namespace verge::detail
