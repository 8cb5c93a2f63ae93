// SPDX-License-Identifier: Apache-2.0

// Turns that are measured: for the histogram of their lengths and the sample of what runs, and for
// a trace, which has all of them.

#include <stdexcept>

#include <base/this_thread.h>
#include <clock/fast_clock.h>
#include <engine/clockwork.h>
#include <node/named_behaviours.h>
#include <sched/live_scheduler.h>
#include <sched/living_schedulers.h>
#include <timer/callback.h>

namespace verge::detail {

/// Runs r, and returns how long that took. `stands_for` is how many turns the sample is for.
std::int64_t live_scheduler::run_measured(worker& w, runnable& r,
                                          std::uint64_t stands_for) noexcept {
  processor& p = *w.held;
  if (p.traced.load(std::memory_order_relaxed) != nullptr) {
    // A processor that was idle before the trace began has been idle from then on.
    if (p.idle_since != 0 && p.held_since > p.idle_since) {
      trace_on(p, {.time = p.idle_since,
                   .value = p.held_since - p.idle_since,
                   .what = trace_event::kind::idle});
    }
    stands_for = 1;
  }
  p.idle_since = 0;
  const std::int64_t begin = cheap_now();
  w.ran = {.time = begin, .what = trace_event::kind::callback};
  if (r.run == &run_callback) {
    // The timer may be freed when it has run.
    const auto& t = static_cast<const timer_node&>(r);
    w.ran.label = name_of(*t.does.load(std::memory_order_relaxed));
  }
  w.notes = true;
  run_ready(r);
  w.notes = false;
  const std::int64_t took = cheap_now() - begin;
  if (w.held != nullptr) {
    w.held->turns.record(took, stands_for);
    record_turn(w);
  }
  w.ran.time = 0;
  return took;
}

/// The turn ends, or the worker is about to give its processor away in the middle of it.
void live_scheduler::record_turn(worker& w) noexcept {
  if (w.ran.time == 0) return;
  w.ran.value = cheap_now() - w.ran.time;
  w.held->samples.add(w.ran);
  trace_on(*w.held, w.ran);
  w.ran.time = 0;
}

/// Called by the holder of p. Spare processors share the ring of operations on timers.
void live_scheduler::trace_on(const processor& p, trace_event e) noexcept {
  trace_ring* const ring = p.traced.load(std::memory_order_acquire);
  if (ring == nullptr) return;
  if (!is_spare(p)) return ring->add(e);
  if (e.what != trace_event::kind::fire) e.id = &p;
  ring->add_shared(e);
}

void live_scheduler::trace_fired(const timer_node& t, std::int64_t when) noexcept {
  const trace_event e{.time = cheap_now(),
                      .value = when,
                      .what = trace_event::kind::fire,
                      .id = &t,
                      .label = name_of(*t.does.load(std::memory_order_relaxed))};
  if (const worker* const w = worker_with_processor()) {
    trace_on(*w->held, e);
  } else if (traced_.load(std::memory_order_acquire)) {
    operations_->add_shared(e);
  }
}

/// One that is taken later sees to it itself (take_spare_locked).
void live_scheduler::trace_spares() noexcept {
  std::lock_guard held(lock_);
  for (unsigned i = 0; i < all_.spares_made(); ++i) set_traced_locked(all_.spare(i));
}

void live_scheduler::set_traced_locked(processor& spare) noexcept {
  const bool traced = traced_.load(std::memory_order_acquire);
  spare.traced.store(traced ? operations_.get() : nullptr, std::memory_order_release);
}

void live_scheduler::begin_trace(std::size_t size) {
  std::lock_guard one_at_a_time(resize_lock_);
  if (traced_.load(std::memory_order_relaxed)) {
    throw std::logic_error("verge: a trace of this runtime is under way: end it first");
  }
  if (operations_ == nullptr) operations_ = std::make_unique<trace_ring>(size);
  for (unsigned i = 0; i < all_.made(); ++i) {
    if (all_[i].ring == nullptr) all_[i].ring = std::make_unique<trace_ring>(size);
  }
  operations_->forget();
  for (unsigned i = 0; i < all_.made(); ++i) {
    all_[i].ring->forget();
    all_[i].traced.store(all_[i].ring.get(), std::memory_order_release);
  }
  traced_.store(true, std::memory_order_release);
  trace_spares();
  trace_firings(true);
  timers_->trace_to(operations_.get());
}

void live_scheduler::end_trace(const std::function<void(unsigned, const trace_ring&)>& of_processor,
                               const std::function<void(const trace_ring&)>& of_operations) {
  std::lock_guard one_at_a_time(resize_lock_);
  timers_->trace_to(nullptr);
  trace_firings(false);
  traced_.store(false, std::memory_order_relaxed);
  for (unsigned i = 0; i < all_.made(); ++i) {
    all_[i].traced.store(nullptr, std::memory_order_relaxed);
  }
  trace_spares();
  for (unsigned i = 0; i < all_.made(); ++i) {
    if (all_[i].ring != nullptr) of_processor(i, *all_[i].ring);
  }
  of_operations(*operations_);
}

}  // namespace verge::detail
