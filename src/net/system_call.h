// How system calls on descriptors answer.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <system_error>

#include <net/descriptor.h>

namespace verge::detail {

constexpr bool would_block(int code) noexcept { return code == EAGAIN || code == EWOULDBLOCK; }

/// What the call returns when no signal interrupts it.
template <class Call>
auto uninterrupted(Call&& call) noexcept {
  for (;;) {
    const auto n = call();
    if (n >= 0 || errno != EINTR) return n;
  }
}

/// After a call that failed: false if it would block, else its error is the operation's.
inline bool ends_by_errno(std::error_code& error) noexcept {
  if (would_block(errno)) return false;
  error = system_error_code(errno);
  return true;
}

}  // namespace verge::detail
