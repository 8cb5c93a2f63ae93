// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <source_location>

#pragma GCC visibility push(default)

/// How exactly a timer keeps its time: for timers, tickers, sleeps and deadlines of descriptors.
namespace verge {

#if defined(__cpp_lib_source_location)
/// A place in the source.
using code_place = std::source_location;
#else
/// A place in the source: nothing, where the standard library has no std::source_location, as with
/// clang before 16.
struct code_place {
  static constexpr code_place current() noexcept { return {}; }  ///< nothing
};
#endif

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
  /// What the timer is called in metrics, traces, dumps, reports of stalls and the inspector: when
  /// it is made, not when it is reset. Without one, that is `place`. The text must outlive the
  /// timer: a literal. Timers of one label, made in one place, are counted together; there are
  /// 2,047 different ones at most in a process, and later ones have none.
  const char* label{nullptr};
  /// Where the timer is made: filled in where these options are written, or left out. A function
  /// that makes timers for others passes their place on: `{.place = where}`.
  code_place place{code_place::current()};
};

namespace detail {

/// The slack of a precise timer, as it is handed down.
inline constexpr std::int64_t precise_slack = -1;

/// What a timer is called by: pointers to constants of the program's.
struct work_name {
  const char* label{nullptr};
  const void* place{nullptr};    ///< what a code_place consists of
  const char* written{nullptr};  ///< the type of the callable (site.h)
};

#if defined(__cpp_lib_source_location)
static_assert(sizeof(code_place) == sizeof(const void*));
constexpr const void* word_of(const code_place& place) noexcept {
  return std::bit_cast<const void*>(place);
}
#else
constexpr const void* word_of(const code_place& /*place*/) noexcept { return nullptr; }
#endif

constexpr work_name name_of(const timer_options& options) noexcept {
  return {.label = options.label, .place = word_of(options.place)};
}

constexpr std::int64_t slack_of(const timer_options& options) noexcept {
  return options.precise ? precise_slack : std::max<std::int64_t>(options.slack.count(), 0);
}

}  // namespace detail

}  // namespace verge

#pragma GCC visibility pop
