// The true clock: CLOCK_MONOTONIC in nanoseconds, never zero.
//
// Whether a timer is due is decided on this clock and no other. It costs about 25 ns and its read
// is fenced, so it is read once per check and handed down.
#pragma once

#include <cstdint>

namespace verge::detail {

std::int64_t true_now() noexcept;

}  // namespace verge::detail
