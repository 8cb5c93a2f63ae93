// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <verge/chan.h>
#include <verge/clock.h>
#include <verge/detail/owned.h>
#include <verge/detail/site.h>
#include <verge/detail/spawn.h>
#include <verge/detail/timer_node.h>
#include <verge/duration.h>

#pragma GCC visibility push(default)

/// What the handles in time.h are written with. A nullptr for a node is a handle without a timer.
namespace verge::detail {

/// The timers of the runtime or simulation that the calling thread belongs to, or of the default
/// runtime.
clockwork& timers_here();
/// The timers of that runtime. Throws std::logic_error in the child of a fork if the runtime was
/// made before.
clockwork& timers_of(runtime& rt);

timer_node* start_channel_timer(clockwork& of, std::int64_t delay, std::int64_t slack,
                                const work_name& name = {});
timer_node* start_channel_timer_at(clockwork& of, std::int64_t when, std::int64_t slack,
                                   const work_name& name = {});
timer_node* start_ticker(clockwork& of, std::int64_t period, std::uint8_t policy,
                         const work_name& name = {});
/// Ticks on the grid through `start`: at start + n * period, from the first that is not past.
timer_node* start_ticker_at(clockwork& of, std::int64_t start, std::int64_t period,
                            std::uint8_t policy, const work_name& name = {});
receiver<clock::time_point> after_channel(clockwork& of, std::int64_t delay, std::int64_t slack = 0,
                                          const work_name& name = {});
receiver<clock::time_point> tick_channel(clockwork& of, std::int64_t period,
                                         std::uint8_t policy = 0, const work_name& name = {});
receiver<clock::time_point> channel_of(const timer_node* t);

bool stop_timer(timer_node* t);
bool reset_timer_after(timer_node* t, std::int64_t delay, std::int64_t slack = 0);
bool reset_timer_at(timer_node* t, std::int64_t when, std::int64_t slack);
bool reset_ticker(timer_node* t, std::int64_t period);
void destroy_timer(timer_node& t) noexcept;
void detach_timer(timer_node* t);
void check_period(std::int64_t period);
/// Beside the policy for missed ticks: the ticker is precise.
inline constexpr std::uint8_t precise_ticks = 0x80;

/// What a handle of a timer holds.
struct timer_destroyer {
  void operator()(timer_node* t) const noexcept { destroy_timer(*t); }
};
using owned_timer = owned<timer_node*, timer_destroyer>;

/// Makes handles of what the functions here give.
struct handle_access {
  template <class Handle, class Owned>
  static Handle make(Owned* owned) noexcept {
    return Handle(owned);
  }
};

template <class Clock, class Duration>
std::int64_t count_of(std::chrono::time_point<Clock, Duration> t) noexcept {
  static_assert(std::is_same_v<Clock, clock> || std::is_same_v<Clock, std::chrono::steady_clock>,
                "a timer goes by verge::clock or std::chrono::steady_clock, which count alike");
  return saturate(t.time_since_epoch()).count();
}

// Timers with a function.

timer_node& make_timer(clockwork& of);
/// Gives back a node that was never started.
void unmake_timer(timer_node& t) noexcept;
void start_timer_after(timer_node& t, std::int64_t delay, std::int64_t slack);
void start_timer_at(timer_node& t, std::int64_t when, std::int64_t slack);
void fire_callback(timer_node& t, std::int64_t now) noexcept;
void take_callback(timer_node& t, std::int64_t now) noexcept;
void run_callback(runnable& r) noexcept;
scheduler& scheduler_of(const timer_node& t) noexcept;

template <class F>
inline constexpr bool is_coroutine_function = task_traits<std::invoke_result_t<F&>>::is_task;

/// One call of a timer's function. A result that is not a task is discarded.
template <class F>
void call_function(timer_node& t, F& f) {
  if constexpr (is_coroutine_function<F>) {
    // The function is copied, for the timer may be freed before the coroutine ends.
    spawn(scheduler_of(t), F(f)).detach();
  } else {
    static_cast<void>(f());
  }
}

template <class F>
void invoke_callback(timer_node& t) {
  call_function(t, node_callable<F>::get(t));
}

template <class F>
inline constexpr timer_behaviour callback_behaviour{
    .fire = &fire_callback,
    .invoke = &invoke_callback<F>,
    .destroy = node_callable<F>::in_node&& std::is_trivially_destructible_v<F>
                   ? nullptr
                   : &node_callable<F>::destroy,
    .take = &take_callback,
    .operations = nullptr,
    .written = written_as<F>()};

/// The one with a name that was last asked for: a lambda is written in one place.
template <class F>
inline constinit std::atomic<const timer_behaviour*> last_behaviour{&callback_behaviour<F>};

template <class F>
const timer_behaviour& behaviour_with(work_name name) noexcept {
  // Acquire: what it was filled with.
  const timer_behaviour* const last = last_behaviour<F>.load(std::memory_order_acquire);
  if (name.label == nullptr ? last->only_place == name.place
                            : last->given.label == name.label && last->given.place == name.place)
      [[likely]] {
    return *last;
  }
  const timer_behaviour& found = named_behaviour(callback_behaviour<F>, name.label, name.place);
  last_behaviour<F>.store(&found, std::memory_order_release);
  return found;
}

/// Whether a timer, a ticker or a context can call it. If not, that is an error which says why, and
/// the only one: callers instantiate nothing with F then.
template <class F>
constexpr bool check_callback() {
  using f = std::decay_t<F>;
  static_assert(std::is_invocable_v<f&>,
                "a callback takes no arguments: let a lambda capture what the function needs");
  if constexpr (!std::is_invocable_v<f&>) {
    return false;
  } else {
    constexpr bool can_be_made = std::is_constructible_v<f, F>;
    static_assert(can_be_made, "this callback cannot be copied: pass it with std::move");
    constexpr bool can_be_called = !is_coroutine_function<f> || std::is_copy_constructible_v<f>;
    static_assert(can_be_called,
                  "a coroutine function is copied for every call: keep what cannot be copied in a "
                  "std::shared_ptr");
    constexpr bool waits = !is_pending_operation<std::invoke_result_t<f&>>;
    static_assert(waits,
                  "this callback returns an operation and does not wait for it: make it a "
                  "coroutine, []() -> verge::task<> { co_await ...; }");
    return can_be_made && can_be_called && waits;
  }
}

template <class F>
void refuse_null(const F& f) {
  if constexpr (requires { static_cast<bool>(f == nullptr); }) {
    if (f == nullptr) throw std::invalid_argument("verge: a timer needs a function to call");
  }
}

/// A timer with a function that has yet to be started.
template <class F>
timer_node& make_func_timer(clockwork& of, F&& f, work_name name = {}) {
  using callable = std::decay_t<F>;
  refuse_null(f);
  timer_node& t = make_timer(of);
  try {
    node_callable<callable>::make(t, std::forward<F>(f));
  } catch (...) {
    unmake_timer(t);
    throw;
  }
  t.run = &run_callback;
  t.does.store(&behaviour_with<callable>(name), std::memory_order_relaxed);
  return t;
}

/// A function that can be handed over in two registers, to make and start its timer in one call.
template <class F>
inline constexpr bool is_small_payload =
    fits_in_node<F>&& std::is_trivially_copyable_v<F>&& std::is_trivially_destructible_v<F>;

struct small_payload {
  std::uint64_t words[payload_bytes / sizeof(std::uint64_t)];
};
timer_node* start_small_timer(clockwork& of, std::int64_t delay, std::int64_t slack,
                              const timer_behaviour& does, small_payload payload);

/// Makes and starts a timer with a function, by start(node); or leaves nothing behind.
template <class F, class Start>
timer_node* make_and_start(clockwork& of, F&& f, work_name name, Start start) {
  timer_node& t = make_func_timer(of, std::forward<F>(f), name);
  try {
    start(t);
  } catch (...) {
    node_callable<std::decay_t<F>>::destroy(t);
    unmake_timer(t);
    throw;
  }
  return &t;
}

template <class F>
timer_node* start_func_timer(clockwork& of, std::int64_t delay, F&& f, std::int64_t slack,
                             work_name name = {}) {
  using callable = std::decay_t<F>;
  if constexpr (!check_callback<F>()) {
    return nullptr;
  } else if constexpr (is_small_payload<callable> &&
                       std::is_same_v<callable, std::remove_cvref_t<F>>) {
    refuse_null(f);
    small_payload payload{};
    std::memcpy(payload.words, std::addressof(f), std::is_empty_v<callable> ? 0 : sizeof(callable));
    return start_small_timer(of, delay, slack, behaviour_with<callable>(name), payload);
  } else {
    return make_and_start(of, std::forward<F>(f), name,
                          [&](timer_node& t) { start_timer_after(t, delay, slack); });
  }
}

template <class F>
timer_node* start_func_timer_at(clockwork& of, std::int64_t when, F&& f, std::int64_t slack,
                                work_name name = {}) {
  if constexpr (!check_callback<F>()) {
    return nullptr;
  } else {
    return make_and_start(of, std::forward<F>(f), name,
                          [&](timer_node& t) { start_timer_at(t, when, slack); });
  }
}

// Tickers with a function: src/timer/function_ticker.cc.

/// The function of such a ticker, and how to call and destroy it.
struct ticking_function {
  void* f;
  void (*call)(timer_node& t, void* f);
  void (*destroy)(void* f) noexcept;
};

/// Takes the function over, unless it throws.
timer_node* start_function_ticker(clockwork& of, std::int64_t period, std::uint8_t policy,
                                  const ticking_function& function, const work_name& name);
timer_node* start_function_ticker_at(clockwork& of, std::int64_t start, std::int64_t period,
                                     std::uint8_t policy, const ticking_function& function,
                                     const work_name& name);
void check_policy(std::uint8_t policy);

/// Starts it by start(function, name), which takes the function over unless it throws.
template <class F, class Start>
timer_node* make_function_ticker(std::int64_t period, F&& f, std::uint8_t policy, work_name name,
                                 Start start) {
  if constexpr (!check_callback<F>()) {
    return nullptr;
  } else {
    using callable = std::decay_t<F>;
    check_period(period);
    check_policy(policy);
    refuse_null(f);
    auto function = std::make_unique<callable>(std::forward<F>(f));
    name.written = written_as<callable>();
    timer_node* const t = start(
        ticking_function{.f = function.get(),
                         .call = [](timer_node& node,
                                    void* g) { call_function(node, *static_cast<callable*>(g)); },
                         .destroy = [](void* g) noexcept { delete static_cast<callable*>(g); }},
        name);
    static_cast<void>(function.release());  // the ticker's
    return t;
  }
}
template <class F>
timer_node* make_function_ticker(clockwork& of, std::int64_t period, F&& f, std::uint8_t policy,
                                 const work_name& name = {}) {
  return make_function_ticker(period, std::forward<F>(f), policy, name,
                              [&](const ticking_function& g, const work_name& its) {
                                return start_function_ticker(of, period, policy, g, its);
                              });
}
template <class F>
timer_node* make_function_ticker_at(clockwork& of, std::int64_t start, std::int64_t period, F&& f,
                                    std::uint8_t policy, const work_name& name = {}) {
  return make_function_ticker(period, std::forward<F>(f), policy, name,
                              [&](const ticking_function& g, const work_name& its) {
                                return start_function_ticker_at(of, start, period, policy, g, its);
                              });
}

}  // namespace verge::detail

#pragma GCC visibility pop
