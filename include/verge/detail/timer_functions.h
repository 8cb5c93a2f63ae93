#pragma once

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

timer_node* start_channel_timer(clockwork& of, std::int64_t delay, std::int64_t slack);
timer_node* start_channel_timer_at(clockwork& of, std::int64_t when, std::int64_t slack);
timer_node* start_ticker(clockwork& of, std::int64_t period, std::uint8_t policy);
/// Ticks on the grid through `start`: at start + n * period, from the first that is not past.
timer_node* start_ticker_at(clockwork& of, std::int64_t start, std::int64_t period,
                            std::uint8_t policy);
receiver<clock::time_point> after_channel(clockwork& of, std::int64_t delay);
receiver<clock::time_point> tick_channel(clockwork& of, std::int64_t period);
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

template <class F, std::size_t Room>
void invoke_callback(timer_node& t) {
  call_function(t, node_callable<F, Room>::get(t));
}

/// One with a label has half the room.
template <class F, std::size_t Room = payload_bytes, bool Labelled = false>
inline constexpr timer_behaviour callback_behaviour{
    .fire = &fire_callback,
    .invoke = &invoke_callback<F, Room>,
    .destroy = node_callable<F, Room>::in_node&& std::is_trivially_destructible_v<F>
                   ? nullptr
                   : &node_callable<F, Room>::destroy,
    .take = &take_callback,
    .operations = nullptr,
    .written = written_as<F>(),
    .labelled = Labelled};

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
template <std::size_t Room, class F>
timer_node& make_func_timer(clockwork& of, F&& f) {
  using callable = std::decay_t<F>;
  refuse_null(f);
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

/// Makes and starts a timer with a function, by start(node); or leaves nothing behind.
template <class F, class Start>
timer_node* make_and_start(clockwork& of, F&& f, Start start) {
  timer_node& t = make_func_timer<payload_bytes>(of, std::forward<F>(f));
  try {
    start(t);
  } catch (...) {
    node_callable<std::decay_t<F>>::destroy(t);
    unmake_timer(t);
    throw;
  }
  return &t;
}

/// The same with a label, in the second half of the payload.
template <class F, class Start>
timer_node* make_and_start_labelled(clockwork& of, F&& f, const char* label, Start start) {
  using callable = std::decay_t<F>;
  timer_node& t = make_func_timer<periodic_payload_bytes>(of, std::forward<F>(f));
  t.does.store(&callback_behaviour<callable, periodic_payload_bytes, true>,
               std::memory_order_relaxed);
  std::memcpy(t.payload + periodic_payload_bytes, &label, sizeof label);
  try {
    start(t);
  } catch (...) {
    node_callable<callable, periodic_payload_bytes>::destroy(t);
    unmake_timer(t);
    throw;
  }
  return &t;
}

template <class F>
timer_node* start_func_timer(clockwork& of, std::int64_t delay, F&& f, std::int64_t slack,
                             const char* label = nullptr) {
  using callable = std::decay_t<F>;
  if constexpr (!check_callback<F>()) {
    return nullptr;
  } else if (label != nullptr) {
    return make_and_start_labelled(of, std::forward<F>(f), label,
                                   [&](timer_node& t) { start_timer_after(t, delay, slack); });
  } else if constexpr (is_small_payload<callable> &&
                       std::is_same_v<callable, std::remove_cvref_t<F>>) {
    refuse_null(f);
    small_payload payload{};
    std::memcpy(payload.words, std::addressof(f), std::is_empty_v<callable> ? 0 : sizeof(callable));
    return start_small_timer(of, delay, slack, callback_behaviour<callable>, payload);
  } else {
    return make_and_start(of, std::forward<F>(f),
                          [&](timer_node& t) { start_timer_after(t, delay, slack); });
  }
}

template <class F>
timer_node* start_func_timer_at(clockwork& of, std::int64_t when, F&& f, std::int64_t slack,
                                const char* label = nullptr) {
  if constexpr (!check_callback<F>()) {
    return nullptr;
  } else if (label != nullptr) {
    return make_and_start_labelled(of, std::forward<F>(f), label,
                                   [&](timer_node& t) { start_timer_at(t, when, slack); });
  } else {
    return make_and_start(of, std::forward<F>(f),
                          [&](timer_node& t) { start_timer_at(t, when, slack); });
  }
}

// Tickers with a function: src/timer/function_ticker.cc.

/// The function of such a ticker, and how to call and destroy it.
struct ticking_function {
  void* f;
  void (*call)(timer_node& t, void* f);
  void (*destroy)(void* f) noexcept;
  /// Its label, or its type (site.h).
  const char* written{nullptr};
};

/// Takes the function over, unless it throws.
timer_node* start_function_ticker(clockwork& of, std::int64_t period, std::uint8_t policy,
                                  const ticking_function& function);
timer_node* start_function_ticker_at(clockwork& of, std::int64_t start, std::int64_t period,
                                     std::uint8_t policy, const ticking_function& function);
void check_policy(std::uint8_t policy);

/// Starts it by start(function), which takes the function over unless it throws.
template <class F, class Start>
timer_node* make_function_ticker(std::int64_t period, F&& f, std::uint8_t policy, const char* label,
                                 Start start) {
  if constexpr (!check_callback<F>()) {
    return nullptr;
  } else {
    using callable = std::decay_t<F>;
    check_period(period);
    check_policy(policy);
    refuse_null(f);
    auto function = std::make_unique<callable>(std::forward<F>(f));
    timer_node* const t = start(ticking_function{
        .f = function.get(),
        .call = [](timer_node& node, void* g) { call_function(node, *static_cast<callable*>(g)); },
        .destroy = [](void* g) noexcept { delete static_cast<callable*>(g); },
        .written = label != nullptr ? label : written_as<callable>()});
    static_cast<void>(function.release());  // the ticker's
    return t;
  }
}
template <class F>
timer_node* make_function_ticker(clockwork& of, std::int64_t period, F&& f, std::uint8_t policy,
                                 const char* label = nullptr) {
  return make_function_ticker(
      period, std::forward<F>(f), policy, label,
      [&](const ticking_function& g) { return start_function_ticker(of, period, policy, g); });
}
template <class F>
timer_node* make_function_ticker_at(clockwork& of, std::int64_t start, std::int64_t period, F&& f,
                                    std::uint8_t policy, const char* label = nullptr) {
  return make_function_ticker(period, std::forward<F>(f), policy, label,
                              [&](const ticking_function& g) {
                                return start_function_ticker_at(of, start, period, policy, g);
                              });
}

}  // namespace verge::detail

#pragma GCC visibility pop
