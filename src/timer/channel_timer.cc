// SPDX-License-Identifier: Apache-2.0

// Timers that send to a channel.
//
// The channel has room for one time. Go 1.23's promise must hold: once stop or reset has returned,
// nothing from before is received. The engine alone cannot keep it, because a firing that it has
// begun may send at any later moment. So the channel's lock decides:
//
// Ground rules
//  - `due` says when the timer, as armed now, is due; 0 if it is not armed. It is guarded by the
//    channel's lock, and the engine is told of every change under that lock, so the two agree.
//  - A firing takes the lock and looks: if the timer is not armed, or was not due yet when the
//    firing was found due, then the firing belongs to an earlier arming and sends nothing.
//  - stop and reset, under the lock, discard what is in the channel. A time that was not received
//    counts as pending.
//  - Locks: the channel's before any of the engine's. The engine fires with none held. No payload
//    is destroyed while a channel is locked, because that is user code.
//  - The channel's hook context is the node; it is cleared under the lock before the node is freed.
//  - A channel has a reference for its node, one for each receiver, and one for a ticker's handle.
//    The thread that drops all but the first stops the timer: no receiver can come any more. (Not
//    so for a one-shot with a handle: that fires once in any case, and is cheaper for it.)
//  - A channel closes when its timer's runtime ends: with the node, if that is destroyed while the
//    runtime ends, else by a walk over all nodes after the last timer was taken off its queue.

#include <timer/channel_timer.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include <engine/clockwork.h>
#include <node/named_behaviours.h>
#include <timer/callback.h>
#include <timer/owed_ticks.h>
#include <verge/detail/timer_functions.h>

namespace verge::detail {

namespace {

using time_point = clock::time_point;

/// All of a one-shot's payload.
struct channel_payload {
  tick_state* channel;
  std::int64_t due;
};
static_assert(fits_in_node<channel_payload>);

/// Of a ticker, whose payload is a pointer to it: the period takes the rest of the node.
struct ticker_state : channel_payload {
  owed_ticks owed;         ///< burst; and the period of a delayed one
  bool in_channel{false};  ///< delay: a tick waits to be taken; the timer is not armed meanwhile
  bool kept{false};        ///< delay: it has a reference to itself
};
static_assert(fits_in_node<ticker_state*, periodic_payload_bytes>);

ticker_state& ticker_of(const timer_node& t) noexcept {
  return **std::launder(reinterpret_cast<ticker_state* const*>(t.payload));
}
channel_payload& payload(timer_node& t) noexcept {
  if (is_ticker(t)) return ticker_of(t);
  return *std::launder(reinterpret_cast<channel_payload*>(t.payload));
}
const channel_payload& payload(const timer_node& t) noexcept {
  return payload(const_cast<timer_node&>(t));
}

bool stop_channel(timer_node& t) noexcept;
bool reset_channel(timer_node& t, std::int64_t when, std::int64_t period);
/// The handle is destroyed, and stops the timer; or detached: it runs on for as long as there are
/// receivers.
void end_channel(timer_node& t) noexcept;
void detach_channel(timer_node& t) noexcept;

/// Of a ticker that does not skip what it misses; null for the others.
ticker_state* counting_ticker(const timer_node& t) noexcept;

time_point as_time_point(std::int64_t t) noexcept { return time_point(clock::duration(t)); }

/// The channel's lock, and the waiter to wake when it is unlocked.
class locked_channel {
 public:
  explicit locked_channel(timer_node& t) noexcept : channel_(*payload(t).channel) {
    channel_.lock();
  }
  ~locked_channel() {
    channel_.unlock();
    if (to_wake_ != nullptr) to_wake_->wake();
  }
  locked_channel(const locked_channel&) = delete;
  locked_channel& operator=(const locked_channel&) = delete;

  /// Sends t if there is room or a receiver waits. The receiver is woken after the unlock.
  bool send(std::int64_t t) noexcept {
    time_point value = as_time_point(t);
    const chan_step sent = channel_.try_send_locked(value);
    if (sent.to_wake != nullptr) to_wake_ = sent.to_wake;
    return sent.what == chan_step::done;
  }
  /// Whether a receiver waited, so that send() has handed the time over.
  bool receiver_waited() const noexcept { return to_wake_ != nullptr; }
  bool drain() noexcept { return channel_.drain_locked(); }

 private:
  tick_state& channel_;
  waiter* to_wake_{nullptr};
};

bool still_meant(const channel_payload& p, std::int64_t now) noexcept {
  return p.due != 0 && now >= p.due;
}

void fire_one_shot(timer_node& t, std::int64_t now) noexcept {
  locked_channel held(t);
  channel_payload& p = payload(t);
  if (!still_meant(p, now)) return;
  p.due = 0;
  held.send(now);
}

void fire_skip(timer_node& t, std::int64_t now) noexcept {
  locked_channel held(t);
  // If a tick waits in the channel, this one is missed.
  if (still_meant(payload(t), now)) held.send(now);
}

/// Sends the next tick that is owed, if any. True if a waiting receiver took it.
bool send_owed(ticker_state& s, locked_channel& held) noexcept {
  if (!s.owed.any() || !held.send(s.owed.next())) return false;
  s.owed.deliver_one();
  return held.receiver_waited();
}

void fire_burst(timer_node& t, std::int64_t now) noexcept {
  bool more = false;
  {
    locked_channel held(t);
    channel_payload& p = payload(t);
    if (!still_meant(p, now)) return;
    ticker_state& s = ticker_of(t);
    s.owed.add_all_until(now);
    more = send_owed(s, held);
  }
  // Several receivers may wait, and are woken one by one.
  while (more) {
    locked_channel held(t);
    more = payload(t).due != 0 && send_owed(ticker_of(t), held);
  }
}

/// With the lock held.
void arm_delayed(timer_node& t) noexcept {
  channel_payload& p = payload(t);
  clockwork& of = clockwork::of(t);
  p.due = 0;
  if (of.ended()) return;
  p.due = of.deadline(ticker_of(t).owed.period(), clockwork::exactly);
  try {
    // By a firing, or by a receiver that has the lock.
    of.reset_alone(t, p.due, 0, clear_up_later());
  } catch (...) {
    p.due = 0;
    // No memory for the queue: the ticker stands still. The exception handler is user code, so a
    // task tells it, where there is no lock.
    if (!of.closing()) fire_callback(t, 0);
  }
}

/// That task.
void stands_still(timer_node& /*t*/) { throw std::bad_alloc(); }

/// While a tick waits to be taken no queue has a reference on the timer. If there is no handle
/// either, this reference keeps it for the receivers. With the lock held.
void keep_without_queue(timer_node& t) noexcept {
  if (!std::exchange(ticker_of(t).kept, true)) t.refs.fetch_add(1, std::memory_order_relaxed);
}
/// The caller has a reference, or a queue has. If the queue has dropped it meanwhile, because the
/// runtime ends, the reference stays: a node must not be freed with the lock held. The caller must
/// not touch the node afterwards.
void keep_no_longer(timer_node& t) noexcept {
  ticker_state& s = ticker_of(t);
  if (!s.kept) return;
  s.kept = false;
  std::uint32_t refs = t.refs.load(std::memory_order_relaxed);
  while (refs > 1) {
    if (t.refs.compare_exchange_weak(refs, refs - 1, std::memory_order_release,
                                     std::memory_order_relaxed)) {
      return;
    }
  }
  s.kept = true;
}

void fire_delay(timer_node& t, std::int64_t now) noexcept {
  locked_channel held(t);
  channel_payload& p = payload(t);
  if (!still_meant(p, now)) return;
  p.due = 0;
  held.send(now);
  if (held.receiver_waited()) {
    arm_delayed(t);
  } else {
    ticker_of(t).in_channel = true;
    keep_without_queue(t);
  }
}

/// A tick was taken: a burst continues, a delayed ticker is armed again.
void tick_taken(void* context) noexcept {
  timer_node& t = *static_cast<timer_node*>(context);
  channel_payload& p = payload(t);
  ticker_state* ticker = counting_ticker(t);
  if (ticker == nullptr) return;
  if (ticker->in_channel) {
    ticker->in_channel = false;
    arm_delayed(t);
    // If it could not be armed, this may be the only reference: it stays until the last receiver is
    // destroyed.
    if (p.due != 0) keep_no_longer(t);
  } else if (p.due != 0 && ticker->owed.any()) {
    // Into the place that was just made free. No receiver waits while values are there.
    time_point value = as_time_point(ticker->owed.next());
    if (p.channel->try_send_locked(value).what == chan_step::done) ticker->owed.deliver_one();
  }
}

/// Takes a reference, unless the node is being destroyed.
bool try_share(timer_node& t) noexcept {
  std::uint32_t refs = t.refs.load(std::memory_order_relaxed);
  while (refs != 0 && !t.refs.compare_exchange_weak(refs, refs + 1)) {
  }
  return refs != 0;
}

/// The last receiver is destroyed and there is no handle, or the other way round.
void channel_unused(chan_base& c) noexcept {
  timer_node* t = nullptr;
  c.lock();
  if (c.hooks_context != nullptr) {
    t = static_cast<timer_node*>(c.hooks_context);
    if (!try_share(*t)) t = nullptr;  // there is nothing to stop
  }
  c.unlock();
  if (t == nullptr) return;
  clockwork& of = clockwork::of(*t);
  if (!of.forked()) stop_channel(*t);
  of.release(*t);
}

constexpr timer_operations channel_operations{
    .stop = &stop_channel, .reset = &reset_channel, .end = &end_channel, .detach = &detach_channel};

constexpr timer_behaviour behaviour_of(void (*fire)(timer_node&, std::int64_t) noexcept,
                                       const char* what, void (*invoke)(timer_node&) = nullptr) {
  return {.fire = fire,
          .invoke = invoke,
          .destroy = &destroy_channel,
          .operations = &channel_operations,
          .written = what};
}
constexpr const char* a_ticker = "ticker with a channel";
constexpr timer_behaviour behaviours[] = {
    behaviour_of(&fire_one_shot, "timer with a channel"), behaviour_of(&fire_skip, a_ticker),
    behaviour_of(&fire_burst, a_ticker), behaviour_of(&fire_delay, a_ticker, &stands_still)};

constexpr chan_hooks stop_when_unused{.taken = nullptr, .unused = &channel_unused};
constexpr chan_hooks when_taken{.taken = &tick_taken, .unused = &channel_unused};

bool is(const timer_node& t, channel_kind kind) noexcept {
  return t.does.load(std::memory_order_relaxed)->fire ==
         behaviours[static_cast<std::size_t>(kind)].fire;
}

ticker_state* counting_ticker(const timer_node& t) noexcept {
  return is(t, channel_kind::burst) || is(t, channel_kind::delay) ? &ticker_of(t) : nullptr;
}

/// The period that the engine is given: none for a ticker that waits for its ticks to be taken.
std::int64_t engine_period(const timer_node& t, std::int64_t period) noexcept {
  return is(t, channel_kind::delay) ? 0 : period;
}

/// With the lock held, or before the timer is known to another thread.
void arm(timer_node& t, std::int64_t when, std::int64_t period) noexcept {
  payload(t).due = when;
  if (ticker_state* s = counting_ticker(t)) {
    s->owed.start(when, period);
    s->in_channel = false;
    keep_no_longer(t);
  }
}

}  // namespace

timer_node& make_channel_timer(clockwork& of, channel_kind kind, bool has_handle,
                               const work_name& name) {
  const bool keeps_count = kind == channel_kind::burst || kind == channel_kind::delay;
  auto ticker = kind == channel_kind::one_shot ? nullptr : std::make_unique<ticker_state>();
  tick_state* channel = tick_state::make(1);
  timer_node* t = nullptr;
  try {
    t = &of.make();
  } catch (...) {
    tick_state::drop(channel);
    throw;
  }
  if (keeps_count) {
    channel->hooks = &when_taken;
  } else if (kind != channel_kind::one_shot || !has_handle) {
    channel->hooks = &stop_when_unused;
  }
  channel->hooks_context = t;
  if (ticker == nullptr) {
    ::new (static_cast<void*>(t->payload)) channel_payload{.channel = channel, .due = 0};
  } else {
    ticker->channel = channel;
    ticker->due = 0;
    ::new (static_cast<void*>(t->payload)) ticker_state*(ticker.release());
  }
  t->run = &run_callback;  // for stands_still
  t->does.store(
      &named_behaviour(behaviours[static_cast<std::size_t>(kind)], name.label, name.place),
      std::memory_order_relaxed);
  return *t;
}

void close_channel_of(timer_node& t) noexcept {
  // Not is_channel_timer(): the behaviour of a timer with a function may have been unloaded.
  const timer_behaviour* const does =
      named_behaviours::unnamed(t.does.load(std::memory_order_acquire));
  if (std::ranges::none_of(behaviours, [=](const auto& b) { return &b == does; })) return;
  if (!try_share(t)) return;
  chan_base::wake_all(payload(t).channel->close_in_silence());
  clockwork::of(t).release(t);
}

void destroy_channel(timer_node& t) noexcept {
  channel_payload& p = payload(t);
  if (clockwork::of(t).closing()) chan_base::wake_all(p.channel->close_in_silence());
  p.channel->lock();
  p.channel->hooks_context = nullptr;
  p.channel->unlock();
  tick_state::drop(p.channel);
  if (is_ticker(t)) delete &ticker_of(t);
}

bool is_ticker(const timer_node& t) noexcept { return !is(t, channel_kind::one_shot); }

tick_state* share_channel(const timer_node& t) noexcept {
  payload(t).channel->add_reference();
  return payload(t).channel;
}

void start_channel(timer_node& t, std::int64_t when, std::int64_t period) {
  arm(t, when, period);
  clockwork::of(t).start(t, when, engine_period(t, period));
}

namespace {

bool stop_channel(timer_node& t) noexcept {
  const clear_up_after unlocked;
  locked_channel held(t);
  clockwork& of = clockwork::of(t);
  // A timer whose runtime has ended does not fire, stopped or not.
  const bool armed = std::exchange(payload(t).due, 0) != 0 && !of.ended();
  of.stop(t, unlocked);
  bool in_channel = held.drain();
  ticker_state* const counting = counting_ticker(t);
  if (counting != nullptr) {
    counting->owed.forget();
    in_channel = std::exchange(counting->in_channel, false);
    keep_no_longer(t);
  }
  // A tick that waits says nothing about whether a ticker still runs.
  return armed || (in_channel && (!is_ticker(t) || counting != nullptr));
}

void end_channel(timer_node& t) noexcept {
  clockwork& of = clockwork::of(t);
  stop_channel(t);
  if (is_ticker(t)) static_cast<void>(payload(t).channel->drop_reference());  // the node has one
  of.release(t);
}

void detach_channel(timer_node& t) noexcept {
  clockwork& of = clockwork::of(t);
  if (of.closing()) {
    // It may have been started again while the runtime ended: nothing else takes it off its queue.
    const clear_up_after unlocked;
    const locked_channel held(t);
    of.stop(t, unlocked);
  }
  if (is_ticker(t)) tick_state::drop(payload(t).channel);
  of.release(t);
}

bool reset_channel(timer_node& t, std::int64_t when, std::int64_t period) {
  const clear_up_after unlocked;
  locked_channel held(t);
  // The engine first: if it has no room, all stays as it was. The lock keeps all others out.
  clockwork::of(t).reset_alone(t, when, engine_period(t, period), unlocked);
  bool pending = payload(t).due != 0;
  const bool drained = held.drain();
  if (const ticker_state* s = counting_ticker(t)) {
    pending = pending || s->in_channel;
  } else if (!is_ticker(t)) {
    pending = pending || drained;
  }
  arm(t, when, period);
  return pending;
}

}  // namespace
}  // namespace verge::detail
