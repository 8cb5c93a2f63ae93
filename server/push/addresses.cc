// SPDX-License-Identifier: Apache-2.0

#include "addresses.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace verge::server::push {

namespace {

struct v4_range {
  std::uint32_t first;
  unsigned bits;
};
constexpr std::uint32_t v4(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  return a << 24 | b << 16 | c << 8 | d;
}

/// IANA's registry of special-purpose addresses, and multicast.
constexpr std::array special_v4{
    v4_range{v4(0, 0, 0, 0), 8},        // this network
    v4_range{v4(10, 0, 0, 0), 8},       // private
    v4_range{v4(100, 64, 0, 0), 10},    // shared by a provider
    v4_range{v4(127, 0, 0, 0), 8},      // loopback
    v4_range{v4(169, 254, 0, 0), 16},   // link-local, and clouds' metadata
    v4_range{v4(172, 16, 0, 0), 12},    // private
    v4_range{v4(192, 0, 0, 0), 24},     // protocol assignments
    v4_range{v4(192, 0, 2, 0), 24},     // documentation
    v4_range{v4(192, 88, 99, 0), 24},   // 6to4 relays
    v4_range{v4(192, 168, 0, 0), 16},   // private
    v4_range{v4(198, 18, 0, 0), 15},    // benchmarks
    v4_range{v4(198, 51, 100, 0), 24},  // documentation
    v4_range{v4(203, 0, 113, 0), 24},   // documentation
    v4_range{v4(224, 0, 0, 0), 3},      // multicast, reserved, broadcast
};

bool is_public_v4(std::uint32_t a) noexcept {
  return std::none_of(special_v4.begin(), special_v4.end(),
                      [a](const v4_range& r) { return ((a ^ r.first) >> (32 - r.bits)) == 0; });
}

using v6_bytes = std::array<std::uint8_t, 16>;

std::uint32_t v4_at(const v6_bytes& a, std::size_t i) noexcept {
  return v4(a[i], a[i + 1], a[i + 2], a[i + 3]);
}

bool begins_with(const v6_bytes& a, std::initializer_list<std::uint8_t> prefix) noexcept {
  return std::equal(prefix.begin(), prefix.end(), a.begin());
}

bool is_public_v6(const v6_bytes& a) noexcept {
  // ::ffff:a.b.c.d is the IPv4 address; 64:ff9b::a.b.c.d and 2002:a.b.c.d:: lead to it.
  if (begins_with(a, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff})) return is_public_v4(v4_at(a, 12));
  if (begins_with(a, {0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0})) {
    return is_public_v4(v4_at(a, 12));
  }
  if (begins_with(a, {0x20, 0x02})) return is_public_v4(v4_at(a, 2));
  // Global unicast is 2000::/3, without what IANA has taken out of it.
  if ((a[0] & 0xe0) != 0x20) return false;
  const bool protocols = begins_with(a, {0x20, 0x01}) && a[2] < 2;       // 2001::/23, Teredo in it
  const bool documents = begins_with(a, {0x20, 0x01, 0x0d, 0xb8}) ||     // 2001:db8::/32
                         (begins_with(a, {0x3f, 0xff}) && a[2] < 0x10);  // 3fff::/20
  return !protocols && !documents;
}

}  // namespace

bool is_public(const endpoint& at) noexcept {
  if (at.kind() == endpoint::family::ipv4) {
    sockaddr_in a{};
    std::memcpy(&a, at.address(), sizeof a);
    return is_public_v4(ntohl(a.sin_addr.s_addr));
  }
  if (at.kind() == endpoint::family::ipv6) {
    sockaddr_in6 a{};
    std::memcpy(&a, at.address(), sizeof a);
    v6_bytes bytes;
    std::memcpy(bytes.data(), &a.sin6_addr, bytes.size());
    return is_public_v6(bytes);
  }
  return false;
}

}  // namespace verge::server::push
