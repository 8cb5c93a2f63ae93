// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// A client for HTTP/1.1 that waits, for tests.
namespace verge::server::test {

struct http_answer {
  int status{0};
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;

  nlohmann::json json() const { return nlohmann::json::parse(body); }
  std::string header(const std::string& name) const {
    const auto at = headers.find(name);
    return at == headers.end() ? "" : at->second;
  }
  /// The word of a problem's type.
  std::string problem() const {
    if (header("content-type") != "application/problem+json") return "";
    const std::string type = json().at("type");
    return type.substr(type.rfind(':') + 1);
  }
};

class http_wire {
 public:
  using header_list = std::vector<std::pair<std::string, std::string>>;

  explicit http_wire(std::uint16_t port) : port_(port) { connect(); }
  http_wire(const http_wire&) = delete;
  http_wire& operator=(const http_wire&) = delete;
  ~http_wire() { close(); }

  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0) throw std::runtime_error("send failed");
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  void send_request(const std::string& method, const std::string& target, const std::string& body,
                    const header_list& headers) {
    std::string out = method + " " + target + " HTTP/1.1\r\n";
    bool has_host = false;
    for (const auto& [name, value] : headers) {
      has_host |= name == "Host";
      out += name + ": " + value + "\r\n";
    }
    if (!has_host) out += "Host: localhost\r\n";
    if (!body.empty() || method == "POST" || method == "PUT" || method == "PATCH") {
      out += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    }
    send(out + "\r\n" + body);
  }
  /// With the type of JSON, unless headers are given.
  http_answer ask(const std::string& method, const std::string& target,
                  const std::string& body = "") {
    header_list headers;
    if (!body.empty()) headers.emplace_back("Content-Type", "application/json");
    return ask(method, target, body, headers);
  }
  http_answer ask(const std::string& method, const std::string& target, const std::string& body,
                  const header_list& headers) {
    if (fd_ < 0) connect();
    send_request(method, target, body, headers);
    return answer(method != "HEAD");
  }
  http_answer answer(bool with_body = true) {
    http_answer a = head();
    if (!with_body || a.headers.count("content-length") == 0) return a;
    const std::size_t size = std::stoul(a.header("content-length"));
    while (in_.size() < size) more();
    a.body = in_.substr(0, size);
    in_.erase(0, size);
    if (a.header("connection") == "close") close();
    return a;
  }
  http_answer head() {
    std::size_t end = 0;
    while ((end = in_.find("\r\n\r\n")) == std::string::npos) more();
    http_answer a;
    a.status = std::stoi(in_.substr(9, 3));
    std::size_t at = in_.find("\r\n") + 2;
    while (at < end + 2) {
      const std::size_t line_end = in_.find("\r\n", at);
      const std::size_t colon = in_.find(':', at);
      std::string name = in_.substr(at, colon - at);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      a.headers[name] = in_.substr(colon + 2, line_end - colon - 2);
      at = line_end + 2;
    }
    in_.erase(0, end + 4);
    return a;
  }
  /// Reads until what has come contains `text`, and takes it off up to there.
  std::string until(const std::string& text) {
    std::size_t at = 0;
    while ((at = in_.find(text)) == std::string::npos) more();
    std::string got = in_.substr(0, at + text.size());
    in_.erase(0, at + text.size());
    return got;
  }
  bool is_readable(int milliseconds) const {
    if (!in_.empty()) return true;
    pollfd p{fd_, POLLIN, 0};
    return ::poll(&p, 1, milliseconds) > 0;
  }
  /// Whether the server has closed it: waits for that.
  bool is_closed() {
    try {
      for (;;) more();
    } catch (const std::runtime_error&) {
      return true;
    }
  }

 private:
  void connect() {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port_);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
      throw std::runtime_error("cannot connect");
    }
    in_.clear();
  }
  void more() {
    char bytes[65536];
    const ssize_t n = fd_ < 0 ? 0 : ::recv(fd_, bytes, sizeof bytes, 0);
    if (n <= 0) throw std::runtime_error("the server has closed the connection");
    in_.append(bytes, static_cast<std::size_t>(n));
  }

  std::uint16_t port_;
  int fd_{-1};
  std::string in_;
};

}  // namespace verge::server::test
