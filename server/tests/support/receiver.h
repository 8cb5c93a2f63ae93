// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// A receiver of pushes, for tests: threads that take one connection after the other, keep what was
/// sent, and answer as they are told.
namespace verge::server::test {

struct pushed {
  std::string target;
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;
  std::string header(const std::string& name) const {
    const auto at = headers.find(name);
    return at == headers.end() ? "" : at->second;
  }
};

inline std::string http_reply(int status, const std::string& headers = "",
                              const std::string& body = "") {
  return "HTTP/1.1 " + std::to_string(status) + " Status\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

class receiver {
 public:
  /// What to answer, by what was sent and how many were before it. An empty answer: none, the
  /// connection is closed.
  using answering = std::function<std::string(const pushed&, std::size_t)>;

  explicit receiver(answering how, std::size_t threads = 1) : how_(std::move(how)) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    if (::bind(fd_, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 || ::listen(fd_, 1000) != 0 ||
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size) != 0) {
      throw std::runtime_error("cannot listen");
    }
    port_ = ntohs(at.sin_port);
    for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { serve(); });
  }
  receiver(const receiver&) = delete;
  receiver& operator=(const receiver&) = delete;
  ~receiver() {
    over_.store(true);
    ::shutdown(fd_, SHUT_RDWR);
    for (std::thread& t : threads_) t.join();
    ::close(fd_);
  }

  std::uint16_t port() const { return port_; }
  std::string url(const std::string& path = "/hook") const {
    std::string text = "http://127.0.0.1:";
    return text.append(std::to_string(port_)).append(path);
  }
  std::vector<pushed> got() const {
    std::lock_guard held(lock_);
    return got_;
  }
  std::size_t count() const {
    std::lock_guard held(lock_);
    return got_.size();
  }
  std::size_t connections() const { return connections_.load(); }

 private:
  void serve() {
    while (!over_.load()) {
      const int conn = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (conn < 0) continue;
      connections_.fetch_add(1);
      pushed p;
      if (read(conn, p)) {
        std::size_t before = 0;
        {
          std::lock_guard held(lock_);
          before = got_.size();
          got_.push_back(p);
        }
        const std::string answer = how_(p, before);
        static_cast<void>(!::send(conn, answer.data(), answer.size(), MSG_NOSIGNAL));
      }
      ::close(conn);
    }
  }
  static bool read(int conn, pushed& p) {
    std::string in;
    std::size_t end = 0;
    while ((end = in.find("\r\n\r\n")) == std::string::npos) {
      if (!more(conn, in)) return false;
    }
    std::size_t at = in.find("\r\n");
    const std::size_t space = in.find(' ');
    p.target = in.substr(space + 1, in.find(' ', space + 1) - space - 1);
    while (at < end) {
      at += 2;
      const std::size_t line_end = in.find("\r\n", at);
      const std::size_t colon = in.find(':', at);
      std::string name = in.substr(at, colon - at);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      p.headers[name] = in.substr(colon + 2, line_end - colon - 2);
      at = line_end;
    }
    const std::size_t size = std::stoul(p.header("content-length"));
    p.body = in.substr(end + 4);
    while (p.body.size() < size) {
      if (!more(conn, p.body)) return false;
    }
    return true;
  }
  static bool more(int conn, std::string& to) {
    char bytes[65536];
    const ssize_t n = ::recv(conn, bytes, sizeof bytes, 0);
    if (n <= 0) return false;
    to.append(bytes, static_cast<std::size_t>(n));
    return true;
  }

  const answering how_;
  int fd_{-1};
  std::uint16_t port_{0};
  mutable std::mutex lock_;
  std::vector<pushed> got_;
  std::atomic<std::size_t> connections_{0};
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

}  // namespace verge::server::test
