// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// A blocking client of beanstalk's protocol. When the server has ended, all calls return nothing.
namespace verge::crash {

class connection {
 public:
  explicit connection(std::uint16_t port);
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;
  ~connection();

  bool is_open() const noexcept { return fd_ >= 0; }
  bool send(std::string_view bytes);
  /// The next line, without its end.
  std::optional<std::string> line();
  /// So many bytes and the end of a line after them.
  std::optional<std::string> body(std::size_t size);
  /// Sends a line and returns the first line of the answer.
  std::optional<std::string> ask(const std::string& command);
  /// The text after `OK n`; empty if there was another answer.
  std::string show(const std::string& command);
  std::string shown();

  /// Where it is connected from, and how many bytes have been taken of what came.
  std::uint16_t local_port() const noexcept { return local_port_; }
  std::uint64_t taken() const noexcept { return taken_; }
  void close();

 private:
  bool more();

  int fd_{-1};
  std::uint16_t local_port_{0};
  std::uint64_t taken_{0};
  std::string in_;
  std::size_t at_{0};
};

/// The value after `name: ` in a text of YAML; empty if it is not there.
std::string value_of(const std::string& yaml, const std::string& name);

}  // namespace verge::crash
