#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <verge/io.h>

#pragma GCC visibility push(default)

struct sockaddr;

namespace verge {

/// Where a socket is: an IPv4 or IPv6 address with a port, or the path of a unix socket.
///
///   endpoint::parse("127.0.0.1:8080"), endpoint::parse("[::1]:80"),
///   endpoint::parse("[fe80::1%2]:80") endpoint::loopback(8080), endpoint::loopback_v6(8080)
///   endpoint::any(8080), endpoint::any_v6(8080)              // to listen on all interfaces
///   endpoint::path("/run/x"), endpoint::path("@name")        // @: no file, Linux's abstract names
///
/// Names are not looked up: getaddrinfo() blocks, so call it inside of verge::blocking().
class endpoint {
 public:
  enum class family : std::uint8_t { none, ipv4, ipv6, unix_path };

  /// None.
  endpoint() noexcept = default;
  static result<endpoint> parse(std::string_view text) noexcept;
  static endpoint loopback(std::uint16_t port) noexcept;
  static endpoint loopback_v6(std::uint16_t port) noexcept;
  static endpoint any(std::uint16_t port) noexcept;
  static endpoint any_v6(std::uint16_t port) noexcept;
  static result<endpoint> path(std::string_view path) noexcept;

  family kind() const noexcept;
  /// Of an IP address; 0 of others.
  std::uint16_t port() const noexcept;
  /// Of a unix socket; empty of others and of sockets without a name.
  std::string path() const;
  /// As parse() takes it.
  std::string to_string() const;

  /// The kernel's form, for whoever calls it himself.
  const sockaddr* address() const noexcept { return reinterpret_cast<const sockaddr*>(&bytes_); }
  std::uint32_t size() const noexcept { return size_; }
  /// From the kernel's form; none if it is of no family that is known here.
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
