// What the handles of time.h do: timers with a function, and timers with a channel, under one face.

#include <verge/time.h>

#include <stdexcept>
#include <string>

#include <clock/arithmetic.h>
#include <timer/callback.h>
#include <timer/channel_timer.h>
#include <timer/clockwork.h>

namespace verge::detail {

namespace {

/// The timer of a handle; an error that says what to do if there is none, or no way to use it.
timer_node& of_handle(timer_node* t, const char* what) {
  if (t != nullptr) return *t;
  throw std::logic_error(std::string("verge: ") + what +
                         " of a timer that was never started: give the handle a timer first, from "
                         "verge::timer, verge::ticker, after_func or every");
}

[[noreturn]] void throw_forked() {
  throw std::logic_error(
      "verge: this timer was started before a fork; in the child it is lost, start a new one");
}

void ended_fire(timer_node&, std::int64_t) noexcept {}

/// Of a node whose handle has gone and that a queue still knows.
constexpr timer_behaviour ended_behaviour{
    .fire = &ended_fire, .invoke = nullptr, .destroy = nullptr};

/// The clockwork of a timer that is to be started again, if that is still there for it.
clockwork& running_clockwork(timer_node& t) {
  clockwork& of = clockwork::of(t);
  if (!of.running()) [[unlikely]] {
    if (of.forked()) throw_forked();
    of.refuse_if_ended();
  }
  return of;
}

bool reset_to(clockwork& of, timer_node& t, std::int64_t when, std::int64_t period) {
  return is_channel_timer(t) ? reset_channel(t, when, period) : of.reset(t, when, period);
}

/// Starts a channel timer, or leaves nothing behind.
timer_node* started(timer_node& t, std::int64_t delay, std::int64_t period,
                    std::int64_t slack = 0) {
  clockwork& of = clockwork::of(t);
  try {
    start_channel(t, of.deadline(delay, slack), period);
  } catch (...) {
    of.release(t);
    throw;
  }
  return &t;
}

/// The channel of a timer that nobody holds.
receiver<clock::time_point> channel_alone(timer_node& t, std::int64_t delay, std::int64_t period) {
  auto channel = chan_access::handle<receiver<clock::time_point>>(share_channel(t));
  started(t, delay, period);
  clockwork::of(t).release(t);
  return channel;
}

}  // namespace

clockwork& timers_here() { return scheduler_or_default().timers(); }

timer_node* start_channel_timer(clockwork& of, std::int64_t delay, std::int64_t slack) {
  return started(make_channel_timer(of, channel_kind::one_shot, nullptr), delay, 0, slack);
}

timer_node* start_ticker(clockwork& of, std::int64_t period, std::uint8_t policy) {
  check_period(period);
  channel_kind kind{};
  switch (static_cast<missed_ticks>(policy)) {
    case missed_ticks::skip:
      kind = channel_kind::skip;
      break;
    case missed_ticks::burst:
      kind = channel_kind::burst;
      break;
    case missed_ticks::delay:
      kind = channel_kind::delay;
      break;
    default:
      throw std::invalid_argument(
          "verge: no such policy for missed ticks; there are skip, burst and delay");
  }
  return started(make_channel_timer(of, kind, nullptr), period, period);
}

receiver<clock::time_point> after_channel(clockwork& of, std::int64_t delay) {
  return channel_alone(make_channel_timer(of, channel_kind::one_shot, &stop_when_unused), delay, 0);
}

receiver<clock::time_point> tick_channel(clockwork& of, std::int64_t period) {
  if (period <= 0) return chan_access::handle<receiver<clock::time_point>>(tick_state::make(1));
  return channel_alone(make_channel_timer(of, channel_kind::skip, &stop_when_unused), period,
                       period);
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
  clockwork& of = clockwork::of(t);
  if (of.forked()) return false;
  return is_channel_timer(t) ? stop_channel(t) : of.stop(t);
}

bool reset_timer_after(timer_node* handle, std::int64_t delay, std::int64_t slack) {
  timer_node& t = of_handle(handle, "reset");
  __builtin_prefetch(handle, 1);  // comes while the clock is read
  clockwork& of = running_clockwork(t);
  return reset_to(of, t, of.deadline(delay, slack), 0);
}

bool reset_timer_at(timer_node* handle, std::int64_t when) {
  timer_node& t = of_handle(handle, "reset");
  clockwork& of = running_clockwork(t);
  // A time in the past would let in a firing that began before this reset.
  if (is_channel_timer(t)) when = of.deadline_at(when);
  return reset_to(of, t, as_time(when), 0);
}

bool reset_ticker(timer_node* handle, std::int64_t period) {
  timer_node& t = of_handle(handle, "reset");
  check_period(period);
  clockwork& of = running_clockwork(t);
  return reset_to(of, t, of.deadline(period), period);
}

void destroy_timer(timer_node& t) noexcept {
  clockwork& of = clockwork::of(t);
  if (of.forked()) return;  // its locks may be held by threads that are no more
  if (is_channel_timer(t)) {
    stop_channel(t);
  } else {
    // A callback that runs, or is to run, has a reference: without any there is none.
    if (of.retire(t)) return of.bury(t);
    return end_function(t);
  }
  of.release(t);
}

void end_function(timer_node& t) noexcept {
  if (end_callbacks(t)) {
    if (auto* destroy = t.does.load(std::memory_order_relaxed)->destroy) destroy(t);
    t.does.store(&ended_behaviour, std::memory_order_release);
  }
  clockwork::of(t).release(t);
}

void detach_timer(timer_node& t) noexcept {
  clockwork& of = clockwork::of(t);
  if (!of.forked()) of.release(t);
}

void check_period(std::int64_t period) {
  if (period > 0) return;
  throw std::invalid_argument("verge: the period of a ticker must be positive, and this one is " +
                              std::to_string(period) + " ns");
}

timer_node& make_timer(clockwork& of) {
  timer_node& t = of.make();
  return t;
}

void unmake_timer(timer_node& t) noexcept { clockwork::of(t).free(t); }

void start_timer_after(timer_node& t, std::int64_t delay, std::int64_t period, std::int64_t slack) {
  clockwork& of = clockwork::of(t);
  of.start(t, of.deadline(delay, slack), period);
}

scheduler& scheduler_of(const timer_node& t) noexcept { return clockwork::of(t).home(); }

}  // namespace verge::detail
