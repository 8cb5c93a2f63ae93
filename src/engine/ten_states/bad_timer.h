// bad_timer: the last words of a process that found a timer in a state it cannot be in.
//
// Such a state is a bug in verge, or overwritten memory. To continue would fire a timer twice or
// never, so the process stops, with what is needed to find out why on standard error. What is
// written needs no memory and no lock.
#pragma once

#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <engine/ten_states/timer_state.h>

namespace verge::detail {

[[noreturn]] inline void abort_on_bad_timer(const char* operation, const void* timer,
                                            timer_state state, std::int64_t when) noexcept {
  char text[256];
  const int length =
      std::snprintf(text, sizeof text,
                    "verge: %s: timer %p is in state %s (%u), when %" PRId64
                    "; the timers are inconsistent, stopping\n",
                    operation, timer, name_of(state), static_cast<unsigned>(state), when);
  // Nothing can be done if this fails.
  [[maybe_unused]] const auto written =
      ::write(STDERR_FILENO, text, static_cast<std::size_t>(length));
  std::abort();
}

}  // namespace verge::detail
