// SPDX-License-Identifier: Apache-2.0
// A blocking client, for requests that are sent byte by byte.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <support/patience.h>

namespace verge::test {

inline constexpr std::string_view get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

/// A request for /echo with this body.
inline std::string post(std::string_view body) {
  std::string request = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: ";
  return request.append(std::to_string(body.size())).append("\r\n\r\n").append(body);
}

inline int count(std::string_view text, std::string_view part) {
  int n = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

/// A connection that blocks.
class client {
 public:
  explicit client(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)
      throw std::runtime_error("cannot connect");
    const timeval patient{.tv_sec = patience.count(), .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patient, sizeof patient);
  }
  client(client&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  client& operator=(client&&) = delete;
  ~client() {
    if (fd_ >= 0) ::close(fd_);
  }

  /// Returns false if the peer has hung up.
  bool send(std::string_view text) const {
    return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  void end_of_requests() const { ::shutdown(fd_, SHUT_WR); }
  /// What is available, waiting for it; empty at the end.
  std::string some() const {
    std::array<char, 4096> bytes;
    const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), 0);
    return n <= 0 ? "" : std::string(bytes.data(), static_cast<std::size_t>(n));
  }
  /// What is available, up to `most` bytes.
  std::size_t read_away(std::size_t most) const {
    std::vector<char> bytes(most);
    const ssize_t n = ::recv(fd_, bytes.data(), most, MSG_WAITALL);
    return n <= 0 ? 0 : static_cast<std::size_t>(n);
  }
  /// Until the peer closes.
  std::string rest() const {
    std::string all;
    for (std::string s = some(); !s.empty(); s = some()) all += s;
    return all;
  }
  /// That many bytes, or fewer if the stream ends before.
  std::string bytes(std::size_t n) const {
    std::string all;
    while (all.size() < n) {
      const std::string s = some();
      if (s.empty()) break;
      all += s;
    }
    return all;
  }

 private:
  int fd_;
};

}  // namespace verge::test
