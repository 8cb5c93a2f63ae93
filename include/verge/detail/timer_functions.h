#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <verge/chan.h>
#include <verge/clock.h>
#include <verge/detail/spawn.h>
#include <verge/detail/timer_node.h>
#include <verge/duration.h>

#pragma GCC visibility push(default)

/// What the handles in time.h are written with. A nullptr for a node is a handle without a timer.
namespace verge::detail {

/// The timers of the runtime or simulation that the calling thread belongs to, or of the default
/// runtime.
clockwork& timers_here();

timer_node* start_channel_timer(clockwork& of, std::int64_t delay, std::int64_t slack);
timer_node* start_ticker(clockwork& of, std::int64_t period, std::uint8_t policy);
receiver<clock::time_point> after_channel(clockwork& of, std::int64_t delay);
receiver<clock::time_point> tick_channel(clockwork& of, std::int64_t period);
receiver<clock::time_point> channel_of(const timer_node* t);

bool stop_timer(timer_node* t);
bool reset_timer_after(timer_node* t, std::int64_t delay, std::int64_t slack = 0);
bool reset_timer_at(timer_node* t, std::int64_t when);
bool reset_ticker(timer_node* t, std::int64_t period);
void destroy_timer(timer_node& t) noexcept;
void detach_timer(timer_node& t) noexcept;
void check_period(std::int64_t period);

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
void fire_callback(timer_node& t, std::int64_t now) noexcept;
void take_callback(timer_node& t, std::int64_t now) noexcept;
void run_callback(runnable& r) noexcept;
scheduler& scheduler_of(const timer_node& t) noexcept;

/// One call of a timer's function.
template <class F>
void call_function(timer_node& t, F& f) {
  if constexpr (std::is_void_v<std::invoke_result_t<F&>>) {
    f();
  } else {
    // A coroutine: the function is copied, for the timer may be freed before the coroutine ends.
    static_assert(std::is_copy_constructible_v<F>,
                  "a timer's coroutine function must be copyable, for it may be called again; keep "
                  "what cannot be copied in a std::shared_ptr");
    spawn(scheduler_of(t), F(f)).detach();
  }
}

template <class F, std::size_t Room>
void invoke_callback(timer_node& t) {
  call_function(t, node_callable<F, Room>::get(t));
}

template <class F, std::size_t Room = payload_bytes>
inline constexpr timer_behaviour callback_behaviour{
    .fire = &fire_callback,
    .invoke = &invoke_callback<F, Room>,
    .destroy = node_callable<F, Room>::in_node&& std::is_trivially_destructible_v<F>
                   ? nullptr
                   : &node_callable<F, Room>::destroy,
    .take = &take_callback};

template <class F>
void check_callable(const F& f) {
  static_assert(std::is_invocable_v<std::decay_t<F>&>, "a timer's function takes no arguments");
  if constexpr (requires { static_cast<bool>(f == nullptr); }) {
    if (f == nullptr) throw std::invalid_argument("verge: a timer needs a function to call");
  }
}

/// A timer with a function that has yet to be started.
template <std::size_t Room, class F>
timer_node& make_func_timer(clockwork& of, F&& f) {
  using callable = std::decay_t<F>;
  check_callable(f);
  timer_node& t = make_timer(of);
  try {
    node_callable<callable, Room>::make(t, std::forward<F>(f));
  } catch (...) {
    unmake_timer(t);
    throw;
  }
  t.run = &run_callback;
  t.does.store(&callback_behaviour<callable, Room>, std::memory_order_relaxed);
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

template <class F>
timer_node* start_func_timer(clockwork& of, std::int64_t delay, F&& f, std::int64_t slack) {
  using callable = std::decay_t<F>;
  if constexpr (is_small_payload<callable> && std::is_same_v<callable, std::remove_cvref_t<F>>) {
    check_callable(f);
    small_payload payload{};
    std::memcpy(payload.words, std::addressof(f), std::is_empty_v<callable> ? 0 : sizeof(callable));
    return start_small_timer(of, delay, slack, callback_behaviour<callable>, payload);
  } else {
    timer_node& t = make_func_timer<payload_bytes>(of, std::forward<F>(f));
    try {
      start_timer_after(t, delay, slack);
    } catch (...) {
      node_callable<callable>::destroy(t);
      unmake_timer(t);
      throw;
    }
    return &t;
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
                                  const ticking_function& function);
void check_policy(std::uint8_t policy);

template <class F>
timer_node* make_function_ticker(clockwork& of, std::int64_t period, F&& f, std::uint8_t policy) {
  using callable = std::decay_t<F>;
  check_period(period);
  check_policy(policy);
  check_callable(f);
  auto function = std::make_unique<callable>(std::forward<F>(f));
  timer_node* const t = start_function_ticker(
      of, period, policy,
      {.f = function.get(),
       .call = [](timer_node& node, void* g) { call_function(node, *static_cast<callable*>(g)); },
       .destroy = [](void* g) noexcept { delete static_cast<callable*>(g); }});
  static_cast<void>(function.release());  // the ticker's
  return t;
}

}  // namespace verge::detail

#pragma GCC visibility pop
