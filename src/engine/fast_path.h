// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <clock/arithmetic.h>
#include <clock/fast_clock.h>
#include <engine/clockwork.h>
#include <engine/hybrid.h>
#include <memory/slab_pool.h>
#include <memory/thread_slot.h>

/// The fast path, from top to bottom: what start, stop, reset and end of a one-shot timer with a
/// function come down to in a runtime that has the default engine, uses the machine's clock, and
/// has not ended.
///
///   start   read the clock; take a node from the thread's cache; arm it with the entry that the
///           node's last timer has left in a wheel; count it
///   stop    mark the timer's word as stopped; count it. The timer keeps the reference for being
///           armed, and a reset finds it there
///   reset   read the clock; put the new time into the word
///   end     mark the word as stopped; count it; put the node back into the thread's cache
///
/// None of them takes a lock or allocates, and each writes two cache lines at most besides the
/// thread's own: the timer's, and in stop and end nothing else. They are inline and call nothing: a
/// million timers are spread over memory, and while a processor waits for the line of one it can go
/// on to the next only if there are no more than some 150 instructions in between.
///
/// Each takes one look at clockwork::quick(), which stands for three questions: whether the runtime
/// has ended, whether this process has started it, and whether it has the default engine. If it is
/// not the usual case, they say how far they have come, and the caller continues from there: no
/// step is tried twice.
///
/// Nothing here has to be cleared up after (clear_up_after): the default engine leaves no payload
/// behind.
#if defined(VERGE_COUNTS_TRANSFERS)
extern "C" void verge_will_change(const void* line);  // bench/coherence
#endif

namespace verge::detail {

struct fast_path {
  using tally = hybrid::tally;
  using timers = hybrid::timers;

  // ---- start

  struct started {
    timer_node* timer{nullptr};  ///< null: nothing is done
    hybrid* engine{nullptr};     ///< null: the timer is armed; else finish_start() has to do that
    std::int64_t when{0};
  };
  /// `fill` gives the node its behaviour and payload, before another thread can see it.
  template <class Fill>
  static started start(clockwork& of, std::int64_t delay, std::int64_t slack,
                       Fill&& fill) noexcept {
    hybrid* const engine = of.quick();
    const std::int64_t when = deadline(of, delay, slack);
    const std::uint32_t slot = thread_slot();
    if (engine == nullptr || when == 0) [[unlikely]]
      return {};
    void* const memory = of.nodes().allocate_from_cache(slot);
    if (memory == nullptr) [[unlikely]]
      return {};
    timer_node* const t = hybrid::construct_node(memory);
    fill(*t);
    t->refs.store(2, std::memory_order_relaxed);  // the handle's, and the one for being armed
    VERGE_PROBE2(start, t, when);
    if (!timers::start_again(hybrid::as_node(*t), when)) [[unlikely]]
      return {.timer = t, .engine = engine, .when = when};
    engine->count(slot, tally::one_armed);
    return {.timer = t};
  }
  /// The node has no entry that is early enough: makes one. Throws std::bad_alloc, and the node is
  /// freed then.
  static timer_node* finish_start(clockwork& of, const started& so_far) {
    try {
      so_far.engine->start_with_entry(*so_far.timer, so_far.when, 0);
    } catch (...) {
      of.free(*so_far.timer);
      throw;
    }
    return so_far.timer;
  }

  /// The line of a timer that is about to be read and then changed. If another core has it, one
  /// transfer is enough: without this it would be fetched to be read, and then once more to be
  /// changed. A hint; processors that do not know it do nothing.
  static void fetch_to_change(const timer_node& t) noexcept {
#if defined(VERGE_COUNTS_TRANSFERS)
    verge_will_change(&t);
#elif defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(reinterpret_cast<const char&>(t)));
#else
    __builtin_prefetch(&t, 1);
#endif
  }

  // ---- stop

  /// True if the timer was armed: it will not fire. The engine's own function, which is inline.
  static bool stop(hybrid& engine, timer_node& t) noexcept {
    const bool was_armed = engine.stop_keeping(t);
    VERGE_PROBE2(stop, &t, was_armed);
    return was_armed;
  }

  // ---- reset

  /// The time `delay` from now; 0 if that is not a matter of a few instructions.
  static std::int64_t deadline(const clockwork& of, std::int64_t delay,
                               std::int64_t slack) noexcept {
    if (delay <= clockwork::soon || slack != 0 || !of.quick_deadlines_) [[unlikely]]
      return 0;
    const std::int64_t now = fast_clock::now_or_zero();
    return now == 0 ? 0 : saturating_add(now, delay);
  }
  /// True if the timer was armed. Throws std::bad_alloc if it needs a new entry.
  static bool reset(hybrid& engine, timer_node& t, std::int64_t when) {
    const bool was_armed = engine.hybrid::reset(t, when, 0);
    VERGE_PROBE3(reset, &t, when, was_armed);
    return was_armed;
  }

  // ---- end

  enum class ended : std::uint8_t {
    nothing,   ///< nothing is done: it has fired, is periodic, or not in the usual case at all
    disarmed,  ///< the reference for being armed is the caller's now, beside the handle's
    all,       ///< the node is freed
  };
  static ended end(timer_node& t) noexcept {
    const std::uint32_t slot = thread_slot();
    if (slot >= thread_slot_count || t.does.load(std::memory_order_relaxed)->destroy != nullptr)
        [[unlikely]] {
      return ended::nothing;
    }
    clockwork& of = clockwork::of(t);
    hybrid* const engine = of.quick();
    if (engine == nullptr) [[unlikely]]
      return ended::nothing;
    const timers::ended was = timers::end_one_shot(hybrid::as_node(t));
    if (was == timers::ended::unusual) [[unlikely]]
      return ended::nothing;
    if (was == timers::ended::was_armed) {
      VERGE_PROBE2(stop, &t, 1);
      const std::uint64_t sum = engine->count(slot, -tally::one_armed - tally::one_left);
      if (tally::until_look(sum) == 0) [[unlikely]]
        engine->tidy(slot);
    }
    // Two references are the handle's and the one for being armed: both are the caller's. Once the
    // node is free, the pool may be destroyed: that it is counted as free is the last step.
    const bool alone = t.refs.load(std::memory_order_acquire) == 2;
    return alone && of.nodes().free_to_cache(&hybrid::as_node(t), slot) ? ended::all
                                                                        : ended::disarmed;
  }
};

}  // namespace verge::detail
