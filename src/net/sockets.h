// SPDX-License-Identifier: Apache-2.0
// Creation of sockets. All of them are non-blocking and close-on-exec.
#pragma once

#include <system_error>

#include <net/descriptor.h>
#include <verge/endpoint.h>

namespace verge::detail {

/// A descriptor, or the error.
struct [[gnu::visibility("hidden")]] made_descriptor {
  descriptor_handle it;
  std::error_code error;
};

/// Takes ownership of a number and registers it. On failure, the number is closed.
made_descriptor adopt_socket(int fd, io_descriptor::traits t, const net_home& home) noexcept;
/// Creates a socket for the family of an address. It is not registered yet.
made_descriptor make_socket(const endpoint& address, int type, const net_home& home) noexcept;

}  // namespace verge::detail
