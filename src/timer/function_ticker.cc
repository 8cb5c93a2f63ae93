// SPDX-License-Identifier: Apache-2.0

// Tickers that call a function: every().
//
// A tick owes a call. The calls themselves are those of any callback (timer/callback.cc), one after
// the other; what is kept here is how many are owed, by the policy for missed ticks, and whether a
// firing is out of date.
//
// Ground rules
//  - `due` says when the ticker, as armed now, is due; 0 if it is not armed. The engine is told of
//    every change under the record's lock, so the two agree. A firing that was found due before
//    that time belongs to an earlier arming, and owes nothing.
//  - A call is requested when `owed` leaves zero, and by each call that leaves some owed. The call
//    takes its tick under the lock; if none is owed, because the ticker was stopped meanwhile, it
//    is not made. So no call begins after stop or reset for a tick from before.
//  - Locks: the record's before any of the engine's. The engine fires with none held. No payload is
//    destroyed while a record is locked, because that is user code.
//  - The handle's destructor destroys the function. The record lives as long as the node, because a
//    firing that began before may read it. Nothing of the function is read afterwards: its code and
//    its constants may have been unloaded.
//  - With the policy `delay` the engine's timer is a one-shot, armed again when a tick is taken.

#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include <engine/clockwork.h>
#include <timer/callback.h>
#include <timer/owed_ticks.h>
#include <verge/detail/lock.h>
#include <verge/detail/timer_functions.h>
#include <verge/time.h>

namespace verge::detail {

namespace {

/// What a ticker keeps beside its function. Its node's payload is a pointer to it. Guarded by the
/// lock, except the function: that belongs to the calls, and when there are none to the handle.
struct function_ticker {
  short_lock lock;
  const std::uint8_t policy;  ///< missed_ticks
  std::int64_t due{0};        ///< when the ticker, as armed now, is due; 0 if it is not armed
  owed_ticks owed;
  ticking_function function;

  function_ticker(std::uint8_t p, const ticking_function& f) noexcept : policy(p), function(f) {}
};

function_ticker& record_of(timer_node& t) noexcept {
  return **std::launder(reinterpret_cast<function_ticker**>(t.payload));
}

bool is(const function_ticker& r, missed_ticks policy) noexcept {
  return r.policy == static_cast<std::uint8_t>(policy);
}

/// The period that the engine is given: none for a ticker that waits for its ticks to be taken.
std::int64_t engine_period(const function_ticker& r, std::int64_t period) noexcept {
  return is(r, missed_ticks::delay) ? 0 : period;
}

/// With the lock held, or before the ticker is known to another thread.
void arm(function_ticker& r, std::int64_t when, std::int64_t period) noexcept {
  r.due = when;
  r.owed.start(when, period);
}

/// With the lock held: one tick is taken, so the next comes a period from now. False if there is no
/// memory for it.
bool arm_delayed(timer_node& t, function_ticker& r, const clear_up_after& unlocked) noexcept {
  clockwork& of = clockwork::of(t);
  if (of.ended()) return true;
  r.due = of.deadline(r.owed.period(), clockwork::exactly);
  try {
    of.reset_alone(t, r.due, 0, unlocked);
  } catch (...) {
    r.due = 0;
    return of.closing();
  }
  return true;
}

/// With the lock held. A ticker that delays is not armed while a tick waits to be taken.
bool is_ticking(const function_ticker& r) noexcept {
  return r.due != 0 || (is(r, missed_ticks::delay) && r.owed.any());
}

bool stop(timer_node& t) noexcept {
  function_ticker& r = record_of(t);
  clockwork& of = clockwork::of(t);
  const clear_up_after unlocked;
  const std::lock_guard held(r.lock);
  // A ticker whose runtime has ended does not fire, stopped or not.
  const bool ticks = is_ticking(r) && !of.ended();
  r.due = 0;
  r.owed.forget();
  of.stop(t, unlocked);
  return ticks;
}

bool reset(timer_node& t, std::int64_t when, std::int64_t period) {
  function_ticker& r = record_of(t);
  const clear_up_after unlocked;
  const std::lock_guard held(r.lock);
  // The engine first: if it has no room, all stays as it was. The lock keeps all others out.
  clockwork::of(t).reset_alone(t, when, engine_period(r, period), unlocked);
  const bool ticked = is_ticking(r);
  arm(r, when, period);
  return ticked;
}

void destroy_function(function_ticker& r) noexcept {
  if (void* const f = std::exchange(r.function.f, nullptr)) r.function.destroy(f);
}

void end(timer_node& t) noexcept {
  clockwork& of = clockwork::of(t);
  function_ticker& r = record_of(t);
  stop(t);
  if (end_callbacks(t)) destroy_function(r);
  of.release(t);
}

void fire(timer_node& t, std::int64_t now) noexcept {
  function_ticker& r = record_of(t);
  {
    const std::lock_guard held(r.lock);
    if (r.due == 0 || now < r.due) return;
    const bool requested = r.owed.any();
    if (is(r, missed_ticks::burst)) {
      r.owed.add_all_until(now);
    } else {
      r.owed.owe_one();
    }
    if (is(r, missed_ticks::delay)) r.due = 0;
    if (requested || !r.owed.any()) return;
  }
  fire_callback(t, now);
}

/// Takes the tick that a call is for.
struct taken_tick {
  bool any;        ///< false: it was stopped meanwhile
  bool no_memory;  ///< the ticker could not be armed again, and stands still
};
taken_tick take_tick(timer_node& t) noexcept {
  function_ticker& r = record_of(t);
  bool armed = true;
  bool more = false;
  {
    const clear_up_after unlocked;
    const std::lock_guard held(r.lock);
    if (!r.owed.any()) return {.any = false, .no_memory = false};
    r.owed.deliver_one();
    more = r.owed.any();
    if (is(r, missed_ticks::delay)) armed = arm_delayed(t, r, unlocked);
  }
  if (more) fire_callback(t, 0);
  return {.any = true, .no_memory = !armed};
}

void invoke(timer_node& t) {
  const taken_tick tick = take_tick(t);
  const ticking_function& function = record_of(t).function;
  if (tick.any) function.call(t, function.f);
  if (tick.no_memory) throw std::bad_alloc();
}

void destroy(timer_node& t) noexcept {
  function_ticker& r = record_of(t);
  destroy_function(r);
  delete &r;
}

constexpr timer_operations ticker_operations{
    .stop = &stop, .reset = &reset, .end = &end, .detach = &detach_function};

constexpr timer_behaviour behaviour{.fire = &fire,
                                    .invoke = &invoke,
                                    .destroy = &destroy,
                                    .operations = &ticker_operations,
                                    .written = "ticker with a function"};

/// Makes a ticker whose first tick is at `when`.
timer_node* start_at(clockwork& of, std::int64_t when, std::int64_t period, std::uint8_t policy,
                     const ticking_function& function, const work_name& name) {
  const bool precise = (policy & precise_ticks) != 0;
  const auto kept = static_cast<std::uint8_t>(policy & ~precise_ticks);
  auto record = std::make_unique<function_ticker>(kept, function);
  timer_node& t = of.make();
  set_precise(t, precise);
  ::new (static_cast<void*>(t.payload)) function_ticker*(record.get());
  t.run = &run_callback;
  t.does.store(&named_behaviour(behaviour, name.label, name.place, name.written),
               std::memory_order_relaxed);
  arm(*record, when, period);
  try {
    of.start(t, when, engine_period(*record, period));
  } catch (...) {
    of.free(t);
    throw;
  }
  static_cast<void>(record.release());  // the node's
  return &t;
}

}  // namespace

timer_node* start_function_ticker(clockwork& of, std::int64_t period, std::uint8_t policy,
                                  const ticking_function& function, const work_name& name) {
  return start_at(of, of.deadline(period, clockwork::exactly), period, policy, function, name);
}

timer_node* start_function_ticker_at(clockwork& of, std::int64_t start, std::int64_t period,
                                     std::uint8_t policy, const ticking_function& function,
                                     const work_name& name) {
  return start_at(of, of.first_tick_on_grid(start, period), period, policy, function, name);
}

}  // namespace verge::detail
