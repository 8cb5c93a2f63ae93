// SPDX-License-Identifier: Apache-2.0

#include <verge/endpoint.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <charconv>
#include <cstddef>
#include <cstring>

namespace verge {

namespace {

constexpr std::size_t path_offset = offsetof(sockaddr_un, sun_path);

bool parse_number(std::string_view text, std::uint32_t most, std::uint32_t& number) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number <= most;
}

/// inet_pton needs a terminating zero.
template <std::size_t N>
bool copy_text(std::string_view text, char (&to)[N]) noexcept {
  if (text.size() >= N || text.find('\0') != std::string_view::npos) return false;
  std::memcpy(to, text.data(), text.size());
  to[text.size()] = '\0';
  return true;
}

sockaddr_in ipv4(std::uint32_t address, std::uint16_t port) noexcept {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(address);
  a.sin_port = htons(port);
  return a;
}

sockaddr_in6 ipv6(const in6_addr& address, std::uint16_t port) noexcept {
  sockaddr_in6 a{};
  a.sin6_family = AF_INET6;
  a.sin6_addr = address;
  a.sin6_port = htons(port);
  return a;
}

}  // namespace

template <class Address>
endpoint endpoint::of(const Address& a, std::size_t size) noexcept {
  static_assert(sizeof(Address) <= sizeof(bytes_));
  endpoint e;
  std::memcpy(e.bytes_.data(), &a, size);
  e.size_ = static_cast<std::uint32_t>(size);
  return e;
}

endpoint endpoint::loopback(std::uint16_t port) noexcept { return of(ipv4(INADDR_LOOPBACK, port)); }
endpoint endpoint::any(std::uint16_t port) noexcept { return of(ipv4(INADDR_ANY, port)); }
endpoint endpoint::loopback_v6(std::uint16_t port) noexcept {
  return of(ipv6(in6addr_loopback, port));
}
endpoint endpoint::any_v6(std::uint16_t port) noexcept { return of(ipv6(in6addr_any, port)); }

result<endpoint> endpoint::path(std::string_view path) noexcept {
  sockaddr_un a{};
  // A path has a zero at its end, an abstract name at its beginning, and after it at least a byte.
  if (path.empty() || path == "@" || path.size() >= sizeof a.sun_path) {
    return {{}, net_errc::bad_address};
  }
  a.sun_family = AF_UNIX;
  std::memcpy(a.sun_path, path.data(), path.size());
  if (path.front() == '@') {
    a.sun_path[0] = '\0';
    return {of(a, path_offset + path.size()), {}};
  }
  if (path.find('\0') != std::string_view::npos) return {{}, net_errc::bad_address};
  return {of(a, path_offset + path.size() + 1), {}};
}

result<endpoint> endpoint::parse(std::string_view text) noexcept {
  if (text.starts_with('/') || text.starts_with('@')) return path(text);
  const auto colon = text.rfind(':');
  std::uint32_t port = 0;
  if (colon == std::string_view::npos || !parse_number(text.substr(colon + 1), 65535, port)) {
    return {{}, net_errc::bad_address};
  }
  std::string_view host = text.substr(0, colon);
  char copy[INET6_ADDRSTRLEN];
  if (!host.starts_with('[')) {
    sockaddr_in a = ipv4(0, static_cast<std::uint16_t>(port));
    if (!copy_text(host, copy) || inet_pton(AF_INET, copy, &a.sin_addr) != 1) {
      return {{}, net_errc::bad_address};
    }
    return {of(a), {}};
  }
  if (!host.ends_with(']')) return {{}, net_errc::bad_address};
  host = host.substr(1, host.size() - 2);
  sockaddr_in6 a = ipv6(in6addr_any, static_cast<std::uint16_t>(port));
  if (const auto percent = host.find('%'); percent != std::string_view::npos) {
    if (!parse_number(host.substr(percent + 1), UINT32_MAX, a.sin6_scope_id)) {
      return {{}, net_errc::bad_address};
    }
    host = host.substr(0, percent);
  }
  if (!copy_text(host, copy) || inet_pton(AF_INET6, copy, &a.sin6_addr) != 1) {
    return {{}, net_errc::bad_address};
  }
  return {of(a), {}};
}

endpoint endpoint::from(const sockaddr* a, std::uint32_t size) noexcept {
  endpoint e;
  if (size < sizeof(a->sa_family) || size > e.bytes_.size()) return e;
  std::memcpy(e.bytes_.data(), a, size);
  e.size_ = size;
  return e.kind() == family::none ? endpoint() : e;
}

endpoint::family endpoint::kind() const noexcept {
  if (size_ == 0) return family::none;
  switch (address()->sa_family) {
    case AF_INET:
      return family::ipv4;
    case AF_INET6:
      return family::ipv6;
    case AF_UNIX:
      return family::unix_path;
    default:
      return family::none;
  }
}

std::uint16_t endpoint::port() const noexcept {
  switch (kind()) {
    case family::ipv4:
      return ntohs(reinterpret_cast<const sockaddr_in*>(address())->sin_port);
    case family::ipv6:
      return ntohs(reinterpret_cast<const sockaddr_in6*>(address())->sin6_port);
    default:
      return 0;
  }
}

std::string endpoint::path() const {
  if (kind() != family::unix_path || size_ <= path_offset) return {};
  const char* text = reinterpret_cast<const sockaddr_un*>(address())->sun_path;
  const std::size_t size = size_ - path_offset;
  if (*text != '\0') return {text, strnlen(text, size)};
  std::string name(text, size == 1 ? 0 : size);
  if (!name.empty()) name.front() = '@';
  return name;
}

std::string endpoint::to_string() const {
  char text[INET6_ADDRSTRLEN] = "";
  switch (kind()) {
    case family::ipv4:
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address())->sin_addr, text,
                sizeof text);
      return std::string(text).append(":").append(std::to_string(port()));
    case family::ipv6: {
      const auto* a = reinterpret_cast<const sockaddr_in6*>(address());
      inet_ntop(AF_INET6, &a->sin6_addr, text, sizeof text);
      std::string whole = "[";
      whole.append(text);
      if (a->sin6_scope_id != 0) whole.append("%").append(std::to_string(a->sin6_scope_id));
      return whole.append("]:").append(std::to_string(port()));
    }
    case family::unix_path:
      return path();
    case family::none:
      break;
  }
  return {};
}

bool operator==(const endpoint& a, const endpoint& b) noexcept {
  return a.size_ == b.size_ && std::memcmp(a.bytes_.data(), b.bytes_.data(), a.size_) == 0;
}

}  // namespace verge
