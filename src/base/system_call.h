// SPDX-License-Identifier: Apache-2.0
// Results of system calls on descriptors.
#pragma once

#include <cerrno>

namespace verge::detail {

constexpr bool would_block(int code) noexcept { return code == EAGAIN || code == EWOULDBLOCK; }

/// Repeats the call while a signal interrupts it.
template <class Call>
auto uninterrupted(Call&& call) noexcept {
  for (;;) {
    const auto n = call();
    if (n >= 0 || errno != EINTR) return n;
  }
}

}  // namespace verge::detail
