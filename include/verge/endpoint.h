// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <verge/io.h>

#pragma GCC visibility push(default)

struct sockaddr;

/// Addresses of sockets.
namespace verge {

/// The address of a socket: an IPv4 or IPv6 address with a port, or the path of a Unix socket.
///
///   auto server = endpoint::parse("127.0.0.1:8080");      // or "[::1]:80", "[fe80::1%2]:80"
///   auto local = endpoint::loopback(8080);                // or loopback_v6(8080)
///   auto all = endpoint::any(8080);                       // or any_v6(8080): every interface
///   auto file = endpoint::path("/run/x");                 // or "@name", which has no file
///
/// Names are not resolved: getaddrinfo() blocks, so call it inside verge::blocking().
class endpoint {
 public:
  /// What kind of address it is.
  enum class family : std::uint8_t {
    none,       ///< no address
    ipv4,       ///< an IPv4 address and a port
    ipv6,       ///< an IPv6 address and a port, perhaps with a scope
    unix_path,  ///< a path or an abstract name of a Unix socket
  };

  /// No address.
  endpoint() noexcept = default;
  /// Reads an address with a port, as above. The error is net_errc::bad_address.
  static result<endpoint> parse(std::string_view text) noexcept;
  /// 127.0.0.1.
  static endpoint loopback(std::uint16_t port) noexcept;
  /// ::1.
  static endpoint loopback_v6(std::uint16_t port) noexcept;
  /// All IPv4 addresses of this machine.
  static endpoint any(std::uint16_t port) noexcept;
  /// All addresses of this machine, of both kinds.
  static endpoint any_v6(std::uint16_t port) noexcept;
  /// A path of at most 107 bytes; with @ in front an abstract name.
  static result<endpoint> path(std::string_view path) noexcept;

  /// The kind of the address.
  family kind() const noexcept;
  /// The port of an IP address; otherwise 0.
  std::uint16_t port() const noexcept;
  /// The path of a Unix socket; otherwise, and for unnamed sockets, empty.
  std::string path() const;
  /// The form that parse() accepts.
  std::string to_string() const;

  /// The kernel's form, for direct system calls.
  const sockaddr* address() const noexcept { return reinterpret_cast<const sockaddr*>(&bytes_); }
  /// How many bytes address() has.
  std::uint32_t size() const noexcept { return size_; }
  /// Converts from the kernel's form. The kind is `none` if the family is unknown.
  static endpoint from(const sockaddr* a, std::uint32_t size) noexcept;

  friend bool operator==(const endpoint& a, const endpoint& b) noexcept;

 private:
  template <class Address>
  static endpoint of(const Address& a, std::size_t size = sizeof(Address)) noexcept;

  /// As large as the largest of the three kinds, sockaddr_un.
  alignas(8) std::array<std::byte, 112> bytes_{};
  std::uint32_t size_{0};
};

}  // namespace verge

#pragma GCC visibility pop
