// SPDX-License-Identifier: Apache-2.0
// The true clock: CLOCK_MONOTONIC in nanoseconds, never zero.
//
// Whether a timer is due is decided on this clock only. A reading takes about 25 ns and is fenced,
// so it is done once per check and passed down.
#pragma once

#include <cstdint>

namespace verge::detail {

std::int64_t true_now() noexcept;

}  // namespace verge::detail
