// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <exception>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

#include <verge/clock.h>
#include <verge/context.h>
#include <verge/detail/random.h>
#include <verge/detail/spawn.h>
#include <verge/duration.h>
#include <verge/task.h>
#include <verge/time.h>
#include <verge/under.h>

#pragma GCC visibility push(default)

/// Retries: with growing, randomized pauses, a limit, and an eye on the caller's deadline.
///
///   auto reply = co_await verge::retry(ctx, {.attempts = 4}, [&] { return call(server); });
///
///   verge::backoff pauses({.first = 5ms, .longest = 1s, .attempts = 0});   // in your own loop
///   while (!connect()) std::this_thread::sleep_for(*pauses.next());
///   pauses.reset();
///
/// The pauses grow by `factor` from `first` to `longest`, and each is shortened by a random part of
/// up to `jitter`, so that clients which failed together do not return together:
///
///     jitter 0      |-----|----------|--------------------|        100, 200, 400 ms
///     jitter 0.5    |---..|------....|-----------.........|        50..100, 100..200, 200..400 ms
///
/// In a verge::simulation the seed decides about the random part.
namespace verge {

/// How often an operation is tried, and how long the pauses between are.
struct retry_policy {
  /// The pause after the first failure.
  std::chrono::nanoseconds first{std::chrono::milliseconds(100)};
  /// No pause is longer.
  std::chrono::nanoseconds longest{std::chrono::seconds(10)};
  /// Each pause is that many times the one before; 1 or more.
  double factor{2};
  /// By how much a pause may be shortened at random: 0 not at all, 1 down to nothing.
  double jitter{0.5};
  /// How often the operation is tried in all; 0 for no limit.
  unsigned attempts{5};
};

/// The pauses of a policy, one after the other. Not thread-safe.
class backoff {
 public:
  /// Throws std::invalid_argument if a pause is negative, the factor below 1, or the jitter not
  /// within 0 and 1.
  explicit backoff(const retry_policy& policy = {}) : policy_(policy) {
    if (policy.first < policy.first.zero() || policy.longest < policy.longest.zero())
      throw std::invalid_argument("verge: a pause between attempts must not be negative");
    if (!(policy.factor >= 1))
      throw std::invalid_argument("verge: the factor of a back-off must be 1 or more");
    if (!(policy.jitter >= 0 && policy.jitter <= 1))
      throw std::invalid_argument("verge: the jitter of a back-off must be from 0 to 1");
    reset();
  }

  /// Counts a failure. Returns how long to pause before the next attempt, or nothing if there was
  /// the last one.
  std::optional<std::chrono::nanoseconds> next() noexcept {
    ++failures_;
    if (policy_.attempts != 0 && failures_ >= policy_.attempts) return std::nullopt;
    const long double whole = pause_;
    pause_ = std::min(pause_ * policy_.factor, count_of(policy_.longest));
    const long double part = static_cast<long double>(detail::random_bits() >> 11) / (1LL << 53);
    return saturate(
        std::chrono::duration<long double, std::nano>(whole - whole * policy_.jitter * part));
  }

  /// After a success: begins anew.
  void reset() noexcept {
    failures_ = 0;
    pause_ = std::min(count_of(policy_.first), count_of(policy_.longest));
  }

  /// How many failures there were since the beginning or reset().
  unsigned failures() const noexcept { return failures_; }

 private:
  static long double count_of(std::chrono::nanoseconds d) noexcept {
    return static_cast<long double>(d.count());
  }

  retry_policy policy_;
  unsigned failures_{0};
  long double pause_{0};
};

/// An attempt that has failed, for the function that decides whether there is another one.
struct retry_failure {
  /// 1 for the first attempt.
  unsigned attempt{0};
  /// What it threw, if it did.
  std::exception_ptr exception{};
  /// The error of its result, or of a std::system_error that it threw.
  std::error_code error{};
};

namespace detail {

/// A result that says itself whether it is one: io_result, result<T>.
template <class T>
concept carries_error = requires(const T& r) {
  { r.error } -> std::convertible_to<std::error_code>;
};

struct always_again {
  bool operator()(const retry_failure& /*f*/) const noexcept { return true; }
};

/// Of the exception in flight.
inline std::error_code current_error() {
  try {
    throw;
  } catch (const std::system_error& e) {
    return e.code();
  } catch (...) {
    return {};
  }
}

/// The context is done before the pause is over: an attempt after it could not begin.
inline bool ends_within(const context& ctx, std::chrono::nanoseconds pause) noexcept {
  const auto end = ctx.deadline();
  return end && *end - clock::now() <= pause;
}

template <class T, class F, class Again>
task<T> retry_task(context ctx, retry_policy policy, F f, Again again) {
  using kept = std::conditional_t<carries_error<T>, T, std::monostate>;
  verge::backoff pauses(policy);
  for (;;) {
    retry_failure failure{.attempt = pauses.failures() + 1};
    std::optional<kept> result;
    try {
      if constexpr (carries_error<T>) {
        T value = co_await under(ctx, f());
        if (!value.error) co_return value;
        failure.error = value.error;
        result.emplace(std::move(value));
      } else {
        co_return co_await under(ctx, f());
      }
    } catch (const context_error&) {
      // Its own deadline, shorter than the caller's, is a failure like any other.
      if (ctx.err() || is_cancelled()) throw;
      failure.exception = std::current_exception();
    } catch (const cancelled&) {
      throw;
    } catch (...) {
      failure.exception = std::current_exception();
      failure.error = current_error();
    }
    const auto pause = pauses.next();
    if (!pause || ends_within(ctx, *pause) || !again(std::as_const(failure))) {
      if constexpr (carries_error<T>) {
        if (result) co_return std::move(*result);
      }
      std::rethrow_exception(failure.exception);
    }
    co_await under(ctx, sleep(*pause));
  }
}

/// Whether retry() can call f and again. If not, that is an error which says why, and the only one.
template <class F, class Again>
constexpr bool check_retry() {
  if constexpr (!std::invocable<F&>) {
    static_assert(std::invocable<F&>,
                  "retry() calls a function without arguments: let a lambda capture what it needs");
    return false;
  } else if constexpr (!task_traits<std::invoke_result_t<F&>>::is_task) {
    static_assert(task_traits<std::invoke_result_t<F&>>::is_task,
                  "retry() calls a function that returns a task; in other code use a backoff");
    return false;
  } else {
    constexpr bool fits = std::is_invocable_r_v<bool, Again&, const retry_failure&>;
    static_assert(fits, "what decides about another attempt takes a retry_failure, returns bool");
    return fits;
  }
}

}  // namespace detail

/// Awaits f(), and again after a pause as long as it fails: throws, or returns a result whose
/// `error` is set. Returns the first success; after the last attempt, throws or returns the last
/// failure. f is a function that returns a task; it is copied or moved here and called once for
/// each attempt.
///
/// When ctx is done, the attempt or pause in progress is cancelled, and context_error is thrown. If
/// ctx has a deadline that comes before the next attempt could begin, there is no use in waiting
/// for it: the failure is given at once. An attempt that reaches a shorter deadline of its own
/// (verge::timeout, or a context made inside f) has failed and is tried again. A cancelled task is
/// not.
template <class F>
auto retry(context ctx, const retry_policy& policy, F&& f) {
  return retry(std::move(ctx), policy, std::forward<F>(f), detail::always_again());
}

/// The same; again(failure) decides whether there is another attempt, and may log the failure. It
/// is not called for the last one.
///
///   co_await verge::retry(ctx, {}, send, [](const verge::retry_failure& f) {
///     return f.error != std::errc::permission_denied;
///   });
template <class F, class Again>
auto retry(context ctx, const retry_policy& policy, F&& f, Again&& again) {
  using function = std::decay_t<F>;
  using decision = std::decay_t<Again>;
  if constexpr (detail::check_retry<function, decision>()) {
    using value = typename detail::task_traits<std::invoke_result_t<function&>>::value_type;
    return detail::retry_task<value, function, decision>(std::move(ctx), policy, std::forward<F>(f),
                                                         std::forward<Again>(again));
  } else {
    return task<>();
  }
}

}  // namespace verge

#pragma GCC visibility pop
