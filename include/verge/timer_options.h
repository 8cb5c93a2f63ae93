#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#pragma GCC visibility push(default)

/// How exactly a timer keeps its time: for timers, tickers, sleeps and deadlines of descriptors.
namespace verge {

/// What a timer is started or reset with.
struct timer_options {
  /// How late the timer may fire. Timers with slack fire together where possible, which saves
  /// wake-ups: `after_func(30s, f, {.slack = 1s})`.
  std::chrono::nanoseconds slack{0};
  /// Fires within about a microsecond of its time where a core is free, rather than 30 us to 70 us
  /// late, which is how long the kernel takes to wake a thread. A thread wakes earlier than the
  /// timer, by what it has learnt about its own wake-ups, 200 us at most, and waits awake for the
  /// rest: that takes processor time, a few percent of a core for a thousand such timers a second
  /// (runtime_stats::precise_waits). No timer fires early, precise or not. Slack is ignored. With
  /// engines other than the default one, and in simulated time, it changes nothing.
  bool precise{false};
  /// What the timer is called in traces, dumps, reports of stalls and the inspector: for timers and
  /// tickers with a function, when they are made. Without one, that is the function in which the
  /// callable was written. The text must outlive the timer: a literal. A function object of more
  /// than 8 bytes is then allocated, where otherwise 16 fit into the timer.
  const char* label{nullptr};
};

namespace detail {

/// The slack of a precise timer, as it is handed down.
inline constexpr std::int64_t precise_slack = -1;

constexpr std::int64_t slack_of(const timer_options& options) noexcept {
  return options.precise ? precise_slack : std::max<std::int64_t>(options.slack.count(), 0);
}

}  // namespace detail

}  // namespace verge

#pragma GCC visibility pop
