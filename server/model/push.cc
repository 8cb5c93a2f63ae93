// SPDX-License-Identifier: Apache-2.0

#include "push.h"

#include <algorithm>

namespace verge::server {

std::uint32_t attempts_of(const push_settings& s, const task& t) noexcept {
  return t.max_attempts != 0 ? t.max_attempts : s.max_attempts;
}

nanoseconds retry_delay(const push_settings& s, const task& t, nanoseconds retry_after,
                        std::uint64_t random) noexcept {
  nanoseconds delay = std::min(t.backoff != 0 ? t.backoff : s.backoff, s.longest_backoff);
  for (std::uint32_t i = 1; i < t.reserves && delay < s.longest_backoff && delay != 0; ++i) {
    delay = std::min(2 * delay, s.longest_backoff);
  }
  const nanoseconds half = delay / 2;
  if (half > 0) delay -= static_cast<nanoseconds>(random % static_cast<std::uint64_t>(half + 1));
  return std::max(delay, std::clamp<nanoseconds>(retry_after, 0, longest_retry_after));
}

}  // namespace verge::server
