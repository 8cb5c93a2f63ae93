// SPDX-License-Identifier: Apache-2.0

// What the handles of time.h do, for timers with a function and timers with a channel alike.

#include <verge/time.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include <clock/arithmetic.h>
#include <engine/clockwork.h>
#include <engine/fast_path.h>
#include <timer/callback.h>
#include <timer/channel_timer.h>

namespace verge::detail {

namespace {

[[noreturn, gnu::cold, gnu::noinline]] void throw_no_timer(const char* what) {
  throw std::logic_error(std::string("verge: ") + what +
                         " of a handle that has no timer: it was never given one, or it was moved "
                         "from or detached. Give it one, from verge::timer, verge::ticker, "
                         "after_func or every");
}

/// The timer of a handle; an error that says what to do if there is none.
timer_node& of_handle(timer_node* t, const char* what) {
  if (t == nullptr) [[unlikely]]
    throw_no_timer(what);
  return *t;
}

[[noreturn]] void throw_forked() {
  throw std::logic_error(
      "verge: this timer was started before a fork; in the child it is lost, start a new one");
}

void ended_fire(timer_node&, std::int64_t) noexcept {}

/// Of a node whose handle is destroyed and that a queue still knows.
constexpr timer_behaviour ended_behaviour{
    .fire = &ended_fire, .invoke = nullptr, .destroy = nullptr};

/// The clockwork of a timer that is to be started again. Throws if its runtime has ended.
clockwork& running_clockwork(timer_node& t) {
  clockwork& of = clockwork::of(t);
  if (of.quick() == nullptr) {
    if (of.forked()) throw_forked();
    of.refuse_if_ended();
  }
  return of;
}

const timer_operations* operations_of(const timer_node& t) noexcept {
  return t.does.load(std::memory_order_relaxed)->operations;
}

bool reset_to(clockwork& of, timer_node& t, std::int64_t when, std::int64_t period) {
  const timer_operations* const its = operations_of(t);
  return its != nullptr ? its->reset(t, when, period) : of.reset(t, when, period);
}

// What is not the usual case (fast_path.h) continues in one of these.

[[gnu::noinline]] bool stop_slowly(clockwork& of, timer_node& t) noexcept {
  if (of.forked()) return false;
  const timer_operations* const its = operations_of(t);
  return its != nullptr ? its->stop(t) : of.stop(t);
}

[[gnu::noinline]] bool reset_slowly(timer_node& t, std::int64_t delay, std::int64_t slack) {
  clockwork& of = running_clockwork(t);
  set_precise(t, slack == precise_slack);
  return reset_to(of, t, of.deadline(delay, slack), 0);
}

void make_small(timer_node& t, const timer_behaviour& does, small_payload payload) noexcept {
  t.run = &run_callback;
  t.does.store(&does, std::memory_order_relaxed);
  std::memcpy(t.payload, payload.words, sizeof payload.words);
}

[[gnu::noinline]] timer_node* start_small_slowly(clockwork& of, std::int64_t delay,
                                                 std::int64_t slack, const timer_behaviour& does,
                                                 small_payload payload) {
  timer_node& t = of.make();
  make_small(t, does, payload);
  set_precise(t, slack == precise_slack);
  try {
    of.start(t, of.deadline(delay, slack), 0);
  } catch (...) {
    of.free(t);
    throw;
  }
  return &t;
}

[[gnu::noinline]] timer_node* finish_start(clockwork& of, const fast_path::started& so_far) {
  return fast_path::finish_start(of, so_far);
}

[[gnu::noinline]] void destroy_slowly(timer_node& t) noexcept {
  clockwork& of = clockwork::of(t);
  of.fetch(t);
  if (of.given_up()) return;
  if (const timer_operations* const its = operations_of(t)) return its->end(t);
  { const clear_up_after before(of); }
  switch (of.stop_for_good(t)) {
    case left_with::caller:
      // A callback that runs, or is to run, has a reference: so there is none.
      return of.bury(t);
    case left_with::others:
      return end_function(t);
    case left_with::engine:
      return;
  }
}

/// Of a timer with a function that is disarmed. The reference for being armed is the caller's.
[[gnu::noinline]] void end_disarmed(timer_node& t) noexcept {
  clockwork& of = clockwork::of(t);
  if (t.refs.fetch_sub(1, std::memory_order_acq_rel) == 2) return of.bury(t);
  end_function(t);
}

/// Starts a channel timer, or frees it if that fails.
timer_node* started(timer_node& t, std::int64_t when, std::int64_t period) {
  clockwork& of = clockwork::of(t);
  try {
    start_channel(t, when, period);
  } catch (...) {
    of.release(t);
    throw;
  }
  return &t;
}

/// A ticker with a channel that has yet to be started.
timer_node& make_ticker(clockwork& of, std::int64_t period, std::uint8_t policy, bool has_handle,
                        const work_name& name) {
  check_period(period);
  check_policy(policy);
  channel_kind kind{};
  switch (static_cast<missed_ticks>(policy & ~precise_ticks)) {
    case missed_ticks::skip:
      kind = channel_kind::skip;
      break;
    case missed_ticks::burst:
      kind = channel_kind::burst;
      break;
    case missed_ticks::delay:
      kind = channel_kind::delay;
      break;
  }
  timer_node& t = make_channel_timer(of, kind, has_handle, name);
  set_precise(t, (policy & precise_ticks) != 0);
  return t;
}

timer_node* started_ticker(timer_node& t, std::int64_t when, std::int64_t period) {
  started(t, when, period);
  share_channel(t);  // the handle's
  return &t;
}

/// The channel of a timer without a handle.
receiver<clock::time_point> channel_alone(timer_node& t, std::int64_t delay, std::int64_t slack,
                                          std::int64_t period) {
  auto channel = chan_access::handle<receiver<clock::time_point>>(share_channel(t));
  clockwork& of = clockwork::of(t);
  started(t, of.deadline(delay, slack), period);
  of.release(t);
  return channel;
}

}  // namespace

clockwork& timers_here() { return scheduler_or_default().timers(); }

clockwork& timers_of(runtime& rt) {
  clockwork& of = scheduler_of(rt).timers();
  if (of.forked()) {
    throw std::logic_error(
        "verge: this runtime was started before a fork; in the child it is lost, start a new one");
  }
  return of;
}

timer_node* start_channel_timer(clockwork& of, std::int64_t delay, std::int64_t slack,
                                const work_name& name) {
  timer_node& t = make_channel_timer(of, channel_kind::one_shot, true, name);
  set_precise(t, slack == precise_slack);
  return started(t, of.deadline(delay, slack), 0);
}

timer_node* start_channel_timer_at(clockwork& of, std::int64_t when, std::int64_t slack,
                                   const work_name& name) {
  timer_node& t = make_channel_timer(of, channel_kind::one_shot, true, name);
  set_precise(t, slack == precise_slack);
  return started(t, with_slack(of.deadline_at(as_time(when)), slack), 0);
}

timer_node* start_ticker(clockwork& of, std::int64_t period, std::uint8_t policy,
                         const work_name& name) {
  timer_node& t = make_ticker(of, period, policy, true, name);
  return started_ticker(t, of.deadline(period, clockwork::exactly), period);
}

timer_node* start_ticker_at(clockwork& of, std::int64_t start, std::int64_t period,
                            std::uint8_t policy, const work_name& name) {
  timer_node& t = make_ticker(of, period, policy, true, name);
  return started_ticker(t, of.first_tick_on_grid(start, period), period);
}

receiver<clock::time_point> after_channel(clockwork& of, std::int64_t delay, std::int64_t slack,
                                          const work_name& name) {
  timer_node& t = make_channel_timer(of, channel_kind::one_shot, false, name);
  set_precise(t, slack == precise_slack);
  return channel_alone(t, delay, slack, 0);
}

receiver<clock::time_point> tick_channel(clockwork& of, std::int64_t period, std::uint8_t policy,
                                         const work_name& name) {
  if (period <= 0) return chan_access::handle<receiver<clock::time_point>>(tick_state::make(1));
  timer_node& t = make_ticker(of, period, policy, false, name);
  return channel_alone(t, period, clockwork::exactly, period);
}

receiver<clock::time_point> channel_of(const timer_node* t) {
  if (t == nullptr) of_handle(nullptr, "the channel");
  if (!is_channel_timer(*t)) {
    throw std::logic_error("verge: this timer calls a function and has no channel");
  }
  return chan_access::handle<receiver<clock::time_point>>(share_channel(*t));
}

bool stop_timer(timer_node* handle) {
  timer_node& t = of_handle(handle, "stop");
  fast_path::fetch_to_change(t);
  clockwork& of = clockwork::of(t);
  hybrid* const engine = of.quick();
  if (engine == nullptr) [[unlikely]]
    return stop_slowly(of, t);
  const timer_operations* const its = operations_of(t);
  return its != nullptr ? its->stop(t) : fast_path::stop(*engine, t);
}

bool reset_timer_after(timer_node* handle, std::int64_t delay, std::int64_t slack) {
  timer_node& t = of_handle(handle, "reset");
  fast_path::fetch_to_change(t);  // arrives while the clock is read
  clockwork& of = clockwork::of(t);
  const std::int64_t when = fast_path::deadline(of, delay, slack);
  hybrid* const engine = of.quick();
  if (when == 0 || engine == nullptr || operations_of(t) != nullptr || is_precise(t)) [[unlikely]]
    return reset_slowly(t, delay, slack);
  return fast_path::reset(*engine, t, when);
}

bool reset_timer_at(timer_node* handle, std::int64_t when, std::int64_t slack) {
  timer_node& t = of_handle(handle, "reset");
  clockwork& of = running_clockwork(t);
  when = as_time(when);
  // A time in the past would let a firing send that began before this reset.
  if (is_channel_timer(t)) when = of.deadline_at(when);
  set_precise(t, slack == precise_slack);
  return reset_to(of, t, with_slack(when, slack), 0);
}

bool reset_ticker(timer_node* handle, std::int64_t period) {
  timer_node& t = of_handle(handle, "reset");
  check_period(period);
  clockwork& of = running_clockwork(t);
  return reset_to(of, t, of.first_tick(period), period);
}

void destroy_timer(timer_node& t) noexcept {
  switch (fast_path::end(t)) {
    case fast_path::ended::all:
      return;
    case fast_path::ended::disarmed:
      return end_disarmed(t);
    case fast_path::ended::nothing:
      return destroy_slowly(t);
  }
}

void end_function(timer_node& t) noexcept {
  if (end_callbacks(t)) {
    if (auto* destroy = t.does.load(std::memory_order_relaxed)->destroy) destroy(t);
    t.does.store(&ended_behaviour, std::memory_order_release);
  }
  clockwork::of(t).release(t);
}

void detach_timer(timer_node* handle) {
  timer_node& t = of_handle(handle, "detach");
  clockwork& of = clockwork::of(t);
  if (of.forked()) return;
  if (const timer_operations* const its = operations_of(t)) return its->detach(t);
  detach_function(t);
}

void detach_function(timer_node& t) noexcept {
  clockwork& of = clockwork::of(t);
  // It may have been started again while the runtime ended: nothing else takes it off its queue.
  if (of.closing()) of.stop(t);
  if (of.its_engine().give_up(t)) of.release(t);
  of.release(t);  // NOLINT(clang-analyzer-unix.Malloc): another reference, which it does not count
}

void check_period(std::int64_t period) {
  if (period > 0) return;
  throw std::invalid_argument("verge: the period of a ticker must be positive, and this one is " +
                              std::to_string(period) + " ns");
}

void check_policy(std::uint8_t policy) {
  if ((policy & ~precise_ticks) <= static_cast<std::uint8_t>(missed_ticks::delay)) return;
  throw std::invalid_argument(
      "verge: no such policy for missed ticks; there are skip, burst and delay");
}

timer_node& make_timer(clockwork& of) { return of.make(); }

timer_node* start_small_timer(clockwork& of, std::int64_t delay, std::int64_t slack,
                              const timer_behaviour& does, small_payload payload) {
  const fast_path::started s =
      fast_path::start(of, delay, slack, [&](timer_node& t) { make_small(t, does, payload); });
  if (s.timer == nullptr) [[unlikely]]
    return start_small_slowly(of, delay, slack, does, payload);
  if (s.engine != nullptr) [[unlikely]]
    return finish_start(of, s);
  return s.timer;
}

void unmake_timer(timer_node& t) noexcept { clockwork::of(t).free(t); }

void start_timer_after(timer_node& t, std::int64_t delay, std::int64_t slack) {
  clockwork& of = clockwork::of(t);
  set_precise(t, slack == precise_slack);
  of.start(t, of.deadline(delay, slack), 0);
}

void start_timer_at(timer_node& t, std::int64_t when, std::int64_t slack) {
  clockwork& of = clockwork::of(t);
  set_precise(t, slack == precise_slack);
  of.start(t, with_slack(as_time(when), slack), 0);
}

scheduler& scheduler_of(const timer_node& t) noexcept { return clockwork::of(t).home(); }

}  // namespace verge::detail
