// SPDX-License-Identifier: Apache-2.0

// Sleeping: a timer whose firing is an event that one party waits for.

#include <verge/timeout.h>

#include <new>

#include <clock/arithmetic.h>
#include <engine/clockwork.h>

namespace verge::detail {

namespace {

/// The event may outlive the sleeper: the firing has a reference on the node.
struct alarm {
  one_shot event;
  std::uint32_t ticket;
};

alarm& alarm_of(timer_node& t) noexcept {
  return *std::launder(reinterpret_cast<alarm*>(t.payload));
}
one_shot& event(timer_node& t) noexcept { return alarm_of(t).event; }

void fire_sleep(timer_node& t, std::int64_t /*now*/) noexcept {
  alarm& a = alarm_of(t);
  a.event.fire(a.ticket);
}

constexpr timer_behaviour sleep_behaviour{
    .fire = &fire_sleep, .invoke = nullptr, .destroy = nullptr, .written = "sleep"};
static_assert(std::is_trivially_destructible_v<alarm> && fits_in_node<alarm>);

}  // namespace

sleep_action::sleep_action(const sleep_operation& op) {
  if (op.relative_ && op.time_ <= 0) return;
  clockwork& of = op.timers_ != nullptr ? *op.timers_ : scheduler_or_default().timers();
  when_ = op.relative_ ? of.deadline(op.time_, op.slack_) : as_time(op.time_);
  if (!op.relative_ && when_ <= of.now()) return;
  if (!op.relative_) when_ = with_slack(when_, op.slack_);
  node_ = &of.make();
  set_precise(*node_, op.slack_ == precise_slack);
  ::new (static_cast<void*>(node_->payload)) alarm;
  node_->does.store(
      &named_behaviour(sleep_behaviour, op.name_.label, op.name_.place, op.name_.written),
      std::memory_order_relaxed);
}

sleep_action::~sleep_action() {
  if (node_ == nullptr) return;
  clockwork& of = clockwork::of(*node_);
  { const clear_up_after before(of); }  // what start() and withdraw() have left
  of.release(*node_);
}

bool sleep_action::start(waiter& w, std::uint32_t ticket) noexcept {
  if (node_ == nullptr) return false;
  waiter_ = &w;
  alarm_of(*node_).ticket = ticket;
  event(*node_).subscribe(w);  // no other thread knows it yet
  try {
    // The coroutine has yet to suspend: no time for user code.
    clockwork::of(*node_).start(*node_, when_, 0, clear_up_later());
  } catch (...) {
    // No memory, or a delay that the engine does not take: finish() throws.
    event(*node_).unsubscribe(w);
    error_ = std::current_exception();
    return false;
  }
  return true;
}

void sleep_action::withdraw() noexcept {
  event(*node_).unsubscribe(*waiter_);
  clockwork::of(*node_).stop(*node_, clear_up_later());
}

void sleep_action::pause() noexcept { event(*node_).unsubscribe(*waiter_); }

bool sleep_action::resume(waiter& w) noexcept {
  waiter_ = &w;
  return event(*node_).subscribe(w);
}

void sleep_action::finish(std::uint32_t /*winner*/) {
  if (error_ != nullptr) std::rethrow_exception(error_);
}

std::error_code sleep_action::failure() const noexcept {
  if (error_ == nullptr) return {};
  try {
    std::rethrow_exception(error_);
  } catch (const std::bad_alloc&) {
    return std::make_error_code(std::errc::not_enough_memory);
  } catch (...) {
    return std::make_error_code(std::errc::invalid_argument);
  }
}

}  // namespace verge::detail

namespace verge {

const char* timed_out::what() const noexcept { return "verge: not done in time"; }

void detail::throw_timed_out() { throw timed_out(); }

}  // namespace verge
