// SPDX-License-Identifier: Apache-2.0

#include "client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

namespace verge::crash {

connection::connection(std::uint16_t port) {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd_ < 0) return;
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) {
    close();
    return;
  }
  // A server that says nothing for a minute counts as crashed, so that the test ends.
  const timeval patience{.tv_sec = 60, .tv_usec = 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const int yes = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  socklen_t size = sizeof at;
  if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size) == 0) {
    local_port_ = ntohs(at.sin_port);
  }
}

connection::~connection() { close(); }

void connection::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool connection::send(std::string_view bytes) {
  while (fd_ >= 0 && !bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    // What has come before the end is still to be read: the connection stays open for that.
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return fd_ >= 0;
}

bool connection::more() {
  if (fd_ < 0) return false;
  if (at_ == in_.size()) {
    in_.clear();
    at_ = 0;
  }
  char piece[16384];
  ssize_t n = 0;
  do {
    n = ::recv(fd_, piece, sizeof piece, 0);
  } while (n < 0 && errno == EINTR);
  if (n <= 0) {
    close();
    return false;
  }
  in_.append(piece, static_cast<std::size_t>(n));
  return true;
}

std::optional<std::string> connection::line() {
  for (;;) {
    if (const auto end = in_.find("\r\n", at_); end != std::string::npos) {
      std::string text = in_.substr(at_, end - at_);
      taken_ += text.size() + 2;
      at_ = end + 2;
      return text;
    }
    if (!more()) return std::nullopt;
  }
}

std::optional<std::string> connection::body(std::size_t size) {
  while (in_.size() - at_ < size + 2) {
    if (!more()) return std::nullopt;
  }
  std::string text = in_.substr(at_, size);
  const bool ends_well = in_.compare(at_ + size, 2, "\r\n") == 0;
  at_ += size + 2;
  taken_ += size + 2;
  if (!ends_well) return std::nullopt;
  return text;
}

std::optional<std::string> connection::ask(const std::string& command) {
  send(command + "\r\n");
  return line();
}

std::string connection::show(const std::string& command) {
  send(command + "\r\n");
  return shown();
}

std::string connection::shown() {
  const auto first = line();
  if (!first || !first->starts_with("OK ")) return {};
  std::size_t size = 0;
  std::from_chars(first->data() + 3, first->data() + first->size(), size);
  return body(size).value_or("");
}

std::string value_of(const std::string& yaml, const std::string& name) {
  const std::string before = "\n" + name + ": ";
  const auto at = yaml.find(before);
  if (at == std::string::npos) return {};
  const auto begin = at + before.size();
  return yaml.substr(begin, yaml.find('\n', begin) - begin);
}

}  // namespace verge::crash
