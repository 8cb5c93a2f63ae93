// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <verge/endpoint.h>
#include <verge/net.h>

namespace verge::server {

/// A connection to the server that asks one thing after the other.
class session {
 public:
  explicit session(const std::string& at) {
    const auto [where, error] = endpoint::parse(at);
    if (error) {
      throw std::invalid_argument("'" + at + "' is no address: write one like 127.0.0.1:11300");
    }
    auto connected = tcp_conn::connect(where, std::chrono::seconds(10)).wait();
    if (!connected) {
      throw std::runtime_error("no task server at " + at + " (" + connected.error.message() +
                               "): start one with `verge serve`, or say --at");
    }
    conn_ = std::move(*connected);
  }

  /// The reply: its line, and the bytes that it announces.
  struct answer {
    std::string line;
    std::string chunk;
    bool begins(std::string_view with) const { return line.starts_with(with); }
  };

  answer ask(const std::string& request) {
    static_cast<void>(conn_.write_all(request).wait().or_throw());
    answer a;
    a.line = take_line();
    const bool sized = a.begins("OK ") || a.begins("FOUND ") || a.begins("RESERVED ");
    if (!sized) return a;
    const std::size_t size = std::stoul(a.line.substr(a.line.rfind(' ') + 1));
    while (in_.size() < size + 2) more();
    a.chunk = in_.substr(0, size);
    in_.erase(0, size + 2);
    return a;
  }

 private:
  std::string take_line() {
    std::size_t end = 0;
    while ((end = in_.find("\r\n")) == std::string::npos) more();
    std::string line = in_.substr(0, end);
    in_.erase(0, end + 2);
    return line;
  }
  void more() {
    std::array<char, 16384> bytes;
    const auto [n, error] = conn_.read_some(bytes).wait();
    if (error) throw std::runtime_error("the server has closed the connection: " + error.message());
    in_.append(bytes.data(), n);
  }

  tcp_conn conn_;
  std::string in_;
};

}  // namespace verge::server
