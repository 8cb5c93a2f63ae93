// SPDX-License-Identifier: Apache-2.0
// bad_timer: the last words of a process that found a timer in a state it cannot be in.
//
// Such a state is a bug in verge, or overwritten memory. To continue would fire a timer twice or
// never, so the process stops, with what is needed to find out why in the log. What is logged needs
// no memory and no lock.
#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdlib>

#include <base/log.h>
#include <engine/ten_states/timer_state.h>

namespace verge::detail {

[[noreturn]] inline void abort_on_bad_timer(const char* operation, const void* timer,
                                            timer_state state, std::int64_t when) noexcept {
  log(log_level::fatal,
      "%s: timer %p is in state %s (%u), when %" PRId64 "; the timers are inconsistent, stopping",
      operation, timer, name_of(state), static_cast<unsigned>(state), when);
  std::abort();
}

}  // namespace verge::detail
