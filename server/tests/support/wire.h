// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

/// A plain blocking connection, to see a server from outside.
namespace verge::server::test {

class wire {
 public:
  wire() = default;
  explicit wire(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) {
      throw std::system_error(errno, std::generic_category(), "connect");
    }
    const int one = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  wire(wire&& o) noexcept : fd_(std::exchange(o.fd_, -1)), in_(std::move(o.in_)) {}
  wire& operator=(wire&& o) noexcept {
    std::swap(fd_, o.fd_);
    std::swap(in_, o.in_);
    return *this;
  }
  ~wire() { close(); }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

  void send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0) throw std::system_error(errno, std::generic_category(), "send");
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  void finish() const { ::shutdown(fd_, SHUT_WR); }

  /// One reply: a line, and the chunk that it announces.
  std::string reply() {
    std::string line = take_line();
    std::size_t chunk = 0;
    if (line.starts_with("OK ")) chunk = std::stoul(line.substr(3));
    if (line.starts_with("FOUND ") || line.starts_with("RESERVED ")) {
      chunk = std::stoul(line.substr(line.rfind(' ') + 1));
    }
    const bool has_chunk =
        line.starts_with("OK ") || line.starts_with("FOUND ") || line.starts_with("RESERVED ");
    if (!has_chunk) return line;
    while (in_.size() < chunk + 2) more();
    line += in_.substr(0, chunk + 2);
    in_.erase(0, chunk + 2);
    return line;
  }
  std::string ask(std::string_view request) {
    send(request);
    return reply();
  }
  /// Everything until the server closes.
  std::string rest() {
    while (more_or_end()) {
    }
    return std::exchange(in_, {});
  }
  /// Whether something has come, without waiting.
  bool is_readable(int milliseconds = 0) const {
    if (!in_.empty()) return true;
    pollfd p{fd_, POLLIN, 0};
    return ::poll(&p, 1, milliseconds) > 0;
  }

 private:
  std::string take_line() {
    std::size_t end = 0;
    while ((end = in_.find("\r\n")) == std::string::npos) more();
    std::string line = in_.substr(0, end + 2);
    in_.erase(0, end + 2);
    return line;
  }
  void more() {
    if (!more_or_end()) throw std::runtime_error("the server has closed the connection");
  }
  bool more_or_end() {
    char bytes[65536];
    const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
    if (n < 0 && errno != ECONNRESET) {
      throw std::system_error(errno, std::generic_category(), "recv");
    }
    if (n <= 0) return false;
    in_.append(bytes, static_cast<std::size_t>(n));
    return true;
  }

  int fd_{-1};
  std::string in_;
};

}  // namespace verge::server::test
