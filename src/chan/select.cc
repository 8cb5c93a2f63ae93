// SPDX-License-Identifier: Apache-2.0

// How a select checks its channels, and how it waits.

#include <algorithm>
#include <atomic>
#include <functional>

#include <verge/detail/random.h>
#include <verge/detail/select_state.h>

namespace verge::detail {

select_state::select_state(std::span<select_arm*> arms, chan_base** locks,
                           std::uint32_t* order) noexcept
    : arms_(arms), order_(order, arms.size()) {
  chan_base** end = locks;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    if (chan_base* const c = arms[i]->channel()) *end++ = c;
    order[i] = static_cast<std::uint32_t>(i);
  }
  std::sort(locks, end, std::less<>());
  locks_ = {locks, std::unique(locks, end)};
}

bool select_state::start(waiter& w, bool may_wait) noexcept {
  shuffle();
  lock_all();
  const chan_step step = try_in_random_order();
  const bool waits = step.what == chan_step::would_block && may_wait;
  if (waits) {
    std::uint32_t ticket = waiter::by_event;
    for (select_arm* arm : arms_) {
      if (arm->channel() != nullptr) arm->join_locked(w, ticket);
      ++ticket;
    }
  }
  unlock_all();
  if (step.to_wake != nullptr) step.to_wake->wake();
  return waits;
}

chan_step select_state::try_in_random_order() noexcept {
  for (const std::uint32_t i : order_) {
    if (arms_[i]->channel() == nullptr) continue;
    const chan_step step = arms_[i]->try_locked();
    if (step.what == chan_step::would_block) continue;
    if (step.what == chan_step::closed) arms_[i]->set_found_closed();
    chosen_ = i;
    return step;
  }
  return {chan_step::would_block};
}

void select_state::withdraw() noexcept {
  for (select_arm* arm : arms_) {
    chan_base* const c = arm->channel();
    if (c == nullptr) continue;
    c->lock();
    arm->leave_locked();
    c->unlock();
  }
}

// Every order has the same probability.
void select_state::shuffle() noexcept {
  if (order_.size() < 2) return;
  random_sequence random(random_bits());
  for (std::size_t n = order_.size(); n > 1; --n)
    std::swap(order_[n - 1], order_[random.below(static_cast<std::uint32_t>(n))]);
}

void select_state::lock_all() noexcept {
  for (chan_base* c : locks_) c->lock();
}

void select_state::unlock_all() noexcept {
  for (chan_base* c : locks_) c->unlock();
}

}  // namespace verge::detail
