// SPDX-License-Identifier: Apache-2.0

#include <engine/clockwork.h>

#include <algorithm>
#include <utility>

#include <base/fence.h>
#include <node/named_behaviours.h>

namespace verge::detail {

clockwork::clockwork(std::unique_ptr<timer_engine> e, scheduler& s, engine_host& host)
    : node_store(e->layout(), s),
      engine_(std::move(e)),
      counts_(engine_->counts_totals() ? nullptr : std::make_unique<operation_counts>()),
      quick_(dynamic_cast<hybrid*>(engine_.get())),
      host_(host),
      in_real_time_(!host.simulated()),
      quick_deadlines_(in_real_time_) {
  engine_->attach(nodes());
  // Probing the clock opens a descriptor; do it here, not later on a worker.
  if (in_real_time_) static_cast<void>(fast_clock::source_in_use());
}

std::int64_t clockwork::deadline_at(std::int64_t when) noexcept {
  // The cheap time is ahead of the true one: `when` may be between the two.
  return when > cheap_now() ? when : std::max(when, as_time(host_.now()));
}

void clockwork::trace_to(trace_ring* ring) noexcept {
  traced_.store(ring, std::memory_order_release);
  auto* const h = dynamic_cast<hybrid*>(engine_.get());
  quick_.store(ring != nullptr ? nullptr : h, std::memory_order_relaxed);
  // The program may be ending (halt()), or this be the child of a fork: each sets its mark, and
  // then this pointer. So if the mark is not seen here, theirs is the later store.
  full_fence();
  if (has(is_closing | is_forked | is_halted | has_ended)) {
    quick_.store(nullptr, std::memory_order_relaxed);
  }
}

void clockwork::record(trace_ring& ring, trace_event::kind what, const timer_node& t,
                       std::int64_t when) noexcept {
  const timer_behaviour* const does = t.does.load(std::memory_order_relaxed);
  ring.add_shared({.time = fast_clock::now(),
                   .value = when,
                   .what = what,
                   .id = &t,
                   .label = does != nullptr ? name_of(*does) : nullptr});
}

void clockwork::close() noexcept {
  if (closing()) return;
  quick_.store(nullptr, std::memory_order_relaxed);
  close_store();
}

void clockwork::end(void (*at_end)(timer_node&) noexcept, std::shared_ptr<void> keep,
                    bool hold) noexcept {
  close();
  mark(has_ended);
  // A concurrent restart is either drained here or observes has_ended; the queue's lock orders the
  // two. A thread that still took the engine for quick() may meet neither: its timer is armed, for
  // nothing, until it is stopped with its handle.
  engine_->drain();
  for_each_live(at_end);
  end_store(std::move(keep), hold);
}

void clockwork::start_slowly(timer_node& t, std::int64_t when, std::int64_t period) {
  refuse_if_ended();
  trace(trace_event::kind::start, t, when);  // before it can fire
  engine_->start(t, when, period);
  if (counts_ != nullptr) counts_->started();
  if (ended()) [[unlikely]]
    take_off_again(t);
}

bool clockwork::reset_slowly(timer_node& t, std::int64_t when, std::int64_t period) {
  refuse_if_ended();
  const bool was_waiting = engine_->reset(t, when, period);
  // If it was not waiting it begins anew. It may have fired already; a trace sorts by time.
  trace(was_waiting ? trace_event::kind::reset : trace_event::kind::start, t, when);
  if (counts_ != nullptr) was_waiting ? counts_->reset() : counts_->started();
  if (ended()) [[unlikely]]
    take_off_again(t);
  return was_waiting;
}

void clockwork::take_off_again(timer_node& t) noexcept {
  engine_->stop(t);
  mark(has_strays);
}

void clockwork::clear_up_now() noexcept {
  if (given_up()) return;
  if (take_marks()) return engine_->drain();
  engine_->bury_dead();
}

}  // namespace verge::detail
