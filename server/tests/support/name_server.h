// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// A name server on loopback, for tests: a thread that answers over UDP and TCP as it is told.
namespace verge::server::test {

/// What it answers to one question.
struct name_answer {
  bool silent{false};                ///< it says nothing
  bool cut{false};                   ///< over UDP it says that the reply does not fit
  std::uint8_t code{0};              ///< 3: there is no such name
  std::vector<std::string> found{};  ///< addresses, of IPv4 or IPv6
  std::string alias{};               ///< the name stands for this one, which has the addresses
};

class name_server {
 public:
  /// By the name and the type of the question: 1 is A, 28 is AAAA.
  using answering = std::function<name_answer(const std::string& name, int type)>;

  explicit name_server(answering how) : how_(std::move(how)) {
    udp_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    tcp_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    // The same port for both: another one, if it is taken for TCP.
    for (int tries = 0;; ++tries) {
      sockaddr_in at{};
      at.sin_family = AF_INET;
      at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t size = sizeof at;
      if (::bind(tcp_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0 &&
          ::getsockname(tcp_, reinterpret_cast<sockaddr*>(&at), &size) == 0 &&
          ::bind(udp_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0) {
        port_ = ntohs(at.sin_port);
        break;
      }
      if (tries == 100) throw std::runtime_error("no port for a name server");
      ::close(tcp_);
      tcp_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
    // A burst of questions is not to be lost, as far as the kernel lets us say so.
    const int large = 4 << 20;
    if (::setsockopt(udp_, SOL_SOCKET, SO_RCVBUFFORCE, &large, sizeof large) != 0) {
      ::setsockopt(udp_, SOL_SOCKET, SO_RCVBUF, &large, sizeof large);
    }
    ::listen(tcp_, 100);
    thread_ = std::thread([this] { serve(); });
  }
  name_server(const name_server&) = delete;
  name_server& operator=(const name_server&) = delete;
  ~name_server() {
    over_.store(true);
    thread_.join();
    ::close(udp_);
    ::close(tcp_);
  }

  std::uint16_t port() const { return port_; }
  int by_udp() const { return by_udp_.load(); }
  int by_tcp() const { return by_tcp_.load(); }

 private:
  void serve() {
    while (!over_.load()) {
      pollfd both[2] = {{udp_, POLLIN, 0}, {tcp_, POLLIN, 0}};
      if (::poll(both, 2, 5) <= 0) continue;
      if ((both[0].revents & POLLIN) != 0) serve_udp();
      if ((both[1].revents & POLLIN) != 0) serve_tcp();
    }
  }
  void serve_udp() {
    char bytes[4096];
    sockaddr_in from{};
    socklen_t size = sizeof from;
    const ssize_t n = ::recvfrom(udp_, bytes, sizeof bytes, MSG_DONTWAIT,
                                 reinterpret_cast<sockaddr*>(&from), &size);
    if (n <= 0) return;
    by_udp_.fetch_add(1);
    const std::string reply = answer(std::string(bytes, static_cast<std::size_t>(n)), true);
    if (reply.empty()) return;
    ::sendto(udp_, reply.data(), reply.size(), 0, reinterpret_cast<sockaddr*>(&from), size);
  }
  void serve_tcp() {
    const int conn = ::accept4(tcp_, nullptr, nullptr, SOCK_CLOEXEC);
    if (conn < 0) return;
    unsigned char size[2];
    while (::recv(conn, size, 2, MSG_WAITALL) == 2) {
      std::string query(static_cast<std::size_t>(size[0] << 8 | size[1]), '\0');
      if (::recv(conn, query.data(), query.size(), MSG_WAITALL) != std::ssize(query)) break;
      by_tcp_.fetch_add(1);
      const std::string reply = answer(query, false);
      const std::string framed = number16(reply.size()) + reply;
      static_cast<void>(!::send(conn, framed.data(), framed.size(), MSG_NOSIGNAL));
    }
    ::close(conn);
  }

  static std::string number16(std::size_t n) {
    return {static_cast<char>(n >> 8 & 0xff), static_cast<char>(n & 0xff)};
  }
  static std::string encoded(const std::string& name) {
    std::string out;
    for (std::size_t at = 0; at < name.size();) {
      const std::size_t end = std::min(name.find('.', at), name.size());
      out += static_cast<char>(end - at);
      out += name.substr(at, end - at);
      at = end + 1;
    }
    return out + '\0';
  }
  static std::string record(const std::string& owner, int type, const std::string& data) {
    return owner + number16(static_cast<std::size_t>(type)) + number16(1) +
           std::string("\0\0\0\x3c", 4) + number16(data.size()) + data;
  }

  std::string answer(const std::string& query, bool udp) const {
    std::string name;
    std::size_t at = 12;
    while (query[at] != '\0') {
      const std::size_t length = static_cast<unsigned char>(query[at]);
      name += (name.empty() ? "" : ".") + query.substr(at + 1, length);
      at += 1 + length;
    }
    const int type = static_cast<unsigned char>(query[at + 2]);
    const name_answer a = how_(name, type);
    if (a.silent) return {};
    const bool cut = a.cut && udp;
    std::string records;
    std::size_t count = 0;
    // The name of the question, by where it stands.
    std::string owner("\xc0\x0c", 2);
    if (!a.alias.empty() && !cut) {
      records += record(owner, 5, encoded(a.alias));
      owner = encoded(a.alias);
      ++count;
    }
    for (const std::string& text : a.found) {
      if (cut) break;
      const bool v6 = text.find(':') != text.npos;
      if ((type == 28) != v6) continue;
      char data[16];
      ::inet_pton(v6 ? AF_INET6 : AF_INET, text.c_str(), data);
      records += record(owner, type, std::string(data, v6 ? 16 : 4));
      ++count;
    }
    const std::string flags{static_cast<char>(cut ? 0x87 : 0x85), static_cast<char>(0x80 | a.code)};
    return query.substr(0, 2) + flags + number16(1) + number16(count) + number16(0) + number16(0) +
           query.substr(12, at + 5 - 12) + records;
  }

  const answering how_;
  int udp_{-1};
  int tcp_{-1};
  std::uint16_t port_{0};
  std::atomic<int> by_udp_{0};
  std::atomic<int> by_tcp_{0};
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace verge::server::test
