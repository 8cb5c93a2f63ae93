// SPDX-License-Identifier: Apache-2.0
// The shape of a wheel: the length of a tick and the number of buckets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace verge::detail {

struct wheel_shape {
  std::int64_t tick;  ///< nanoseconds
  std::size_t size;   ///< buckets
};

/// Throws std::invalid_argument, naming the value, unless the tick is 1 us to 1 h and the size 2 to
/// 2^24.
void check_shape(const char* wheel, wheel_shape shape);

/// The number of the first tick that is not before `when`: a timer is never early.
constexpr std::int64_t tick_at_or_after(std::int64_t when, std::int64_t tick) noexcept {
  return when / tick + (when % tick != 0);
}

}  // namespace verge::detail
