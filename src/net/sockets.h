// Making sockets. All of them are non-blocking and are closed on exec.
#pragma once

#include <system_error>

#include <net/descriptor.h>
#include <verge/endpoint.h>

namespace verge::detail {

/// A descriptor, or why there is none.
struct made_descriptor {
  descriptor_handle it;
  std::error_code error;
};

/// Takes over a number and registers it. If that fails, the number is closed.
made_descriptor adopt_socket(int fd, io_descriptor::traits t, const net_home& home) noexcept;
/// A socket that fits an address. It is not registered yet.
made_descriptor make_socket(const endpoint& address, int type, const net_home& home) noexcept;

}  // namespace verge::detail
