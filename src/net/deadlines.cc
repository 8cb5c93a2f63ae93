// SPDX-License-Identifier: Apache-2.0

// Deadlines of descriptors. The rules are in descriptor.h.

#include <new>
#include <stdexcept>

#include <engine/clockwork.h>
#include <net/descriptor.h>

namespace verge::detail {

namespace {

/// The delay that every engine supports. Deadlines beyond a wheel's span are reached in steps.
constexpr std::int64_t step = 1'000'000'000;
/// An ordinary timer that fires this long before a precise deadline is in time, however late it is.
constexpr std::int64_t ahead_of_precise = 10'000'000;

}  // namespace

/// The payload of a timer.
struct io_descriptor::deadline_of {
  io_descriptor* it;
};

std::error_code io_descriptor::set_deadline(bool for_read, bool for_write, std::int64_t when,
                                            bool precise) noexcept {
  if (home_.poller->forked()) return net_errc::runtime_ended;
  const bool chosen[2] = {for_read, for_write};
  io_waiting* late[2] = {nullptr, nullptr};
  std::error_code error;
  {
    const clear_up_after unlocked;
    const std::lock_guard hold(lock_);
    const std::uint64_t s = state_.load(std::memory_order_relaxed);
    if ((s & is_closed) != 0) return net_errc::closed;
    std::int64_t now = 0;
    for (const io_direction d : {io_direction::read, io_direction::write}) {
      if (!chosen[static_cast<unsigned>(d)]) continue;
      direction& it = of(d);
      it.deadline = when == never ? 0 : when;
      it.precise = precise;
      if (when != never && !covered_locked(it, when)) {
        if (ended_) return net_errc::runtime_ended;
        if (now == 0) now = home_.scheduler->now();
        if (when <= now) {
          late[static_cast<unsigned>(d)] = expire_locked(d);
          continue;
        }
        error = arm_locked(it, when, unlocked);
        if (error) {
          it.deadline = 0;
          break;
        }
      }
      // These bits are changed only here and by the firing of a timer.
      if ((s & expired(d)) != 0) state_.fetch_and(~expired(d), std::memory_order_relaxed);
    }
  }
  for (io_waiting* list : late) wake(list);
  return error;
}

/// Returns whether an armed timer covers a deadline of d at `when`: it fires by then, and finds
/// what is left. For a precise one it must be early enough to be armed anew, precisely.
bool io_descriptor::covered_locked(const direction& d, std::int64_t when) const noexcept {
  const std::int64_t by = d.precise ? when - ahead_of_precise : when;
  return (directions_[0].armed != 0 && directions_[0].armed <= by) ||
         (directions_[1].armed != 0 && directions_[1].armed <= by);
}

/// The direction's deadline has passed. Returns the waiters to be woken.
io_waiting* io_descriptor::expire_locked(io_direction d) noexcept {
  of(d).deadline = 0;
  // Release: see wait() and enter(). Requires lock_.
  state_.fetch_or(expired(d), std::memory_order_release);
  return take_waiting_locked(d, by_deadline);
}

std::error_code io_descriptor::arm_locked(direction& d, std::int64_t when,
                                          const clear_up_after& unlocked) noexcept {
  try {
    return arm_for_locked(d, when, unlocked);
  } catch (const std::invalid_argument&) {
    // Beyond a wheel's span.
  } catch (const std::bad_alloc&) {
    return std::make_error_code(std::errc::not_enough_memory);
  } catch (...) {
    return net_errc::runtime_ended;
  }
  try {
    const std::int64_t soon = saturating_add(home_.scheduler->now(), step);
    return arm_for_locked(d, soon < when ? soon : when, unlocked);
  } catch (...) {
    return std::make_error_code(std::errc::invalid_argument);
  }
}

/// Each arming has a reference until it is stopped or its firing has ended.
std::error_code io_descriptor::arm_for_locked(direction& d, std::int64_t when,
                                              const clear_up_after& unlocked) {
  static constexpr timer_behaviour behaviour{
      .fire = &fire, .invoke = nullptr, .destroy = nullptr, .written = "deadline of a descriptor"};
  static_assert(fits_in_node<deadline_of>);
  if (d.timer == nullptr) {
    d.timer = &home_.scheduler->timers().make();
    ::new (static_cast<void*>(d.timer->payload)) deadline_of{this};
    d.timer->does.store(&named_behaviour(behaviour, nullptr, nullptr), std::memory_order_relaxed);
  }
  clockwork& timers = clockwork::of(*d.timer);
  set_precise(*d.timer, d.precise);
  state_.fetch_add(one_reference, std::memory_order_relaxed);
  bool was_armed = false;
  try {
    if (d.started) {
      was_armed = timers.reset(*d.timer, when, 0, unlocked);
    } else {
      timers.start(*d.timer, when, 0, unlocked);
      d.started = true;
    }
  } catch (...) {
    drop();  // never the last: the caller has one
    throw;
  }
  d.armed = when;
  if (was_armed) drop();
  return {};
}

void io_descriptor::stop_timers_locked(const clear_up_after& unlocked) noexcept {
  for (direction& d : directions_) {
    if (d.timer == nullptr || !d.started) continue;
    clockwork& timers = clockwork::of(*d.timer);
    if (timers.forked()) continue;  // its locks may be held by threads that no longer exist
    d.armed = 0;
    if (timers.stop(*d.timer, unlocked)) drop();
  }
}

void io_descriptor::fire(timer_node& t, std::int64_t now) noexcept {
  io_descriptor& self = *std::launder(reinterpret_cast<deadline_of*>(t.payload))->it;
  self.deadline_fired(now);
  self.drop();  // the reference of the arming
}

/// A timer of either direction has fired, for a deadline that may have been moved since.
void io_descriptor::deadline_fired(std::int64_t now) noexcept {
  io_waiting* late[2] = {nullptr, nullptr};
  {
    const clear_up_after unlocked;
    const std::lock_guard hold(lock_);
    if (ended_ || (state_.load(std::memory_order_relaxed) & is_closed) != 0) return;
    for (direction& d : directions_) {
      if (d.armed <= now) d.armed = 0;
    }
    for (const io_direction d : {io_direction::read, io_direction::write}) {
      direction& it = of(d);
      if (it.deadline == 0) continue;
      // No timer available: rather early than never.
      if (it.deadline <= now ||
          (!covered_locked(it, it.deadline) && arm_locked(it, it.deadline, unlocked))) {
        late[static_cast<unsigned>(d)] = expire_locked(d);
      }
    }
  }
  for (io_waiting* list : late) wake(list);
}

}  // namespace verge::detail
