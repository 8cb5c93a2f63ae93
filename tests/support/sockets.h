// SPDX-License-Identifier: Apache-2.0
// Sockets in tests: both ends of a connection, and whether an operation waits on one of them.
#pragma once

#include <verge/net.h>
#include <verge/task.h>

#include <array>
#include <chrono>
#include <string_view>
#include <utility>
#include <vector>

#include <net/descriptor.h>

namespace verge::test {

using bytes64 = std::array<char, 64>;
inline std::string_view text(const bytes64& bytes, std::size_t n) { return {bytes.data(), n}; }

/// Both ends of a local connection.
struct two_ends {
  tcp_conn near;
  tcp_conn far;
};

inline task<two_ends> connected(endpoint at = endpoint::loopback(0)) {
  auto listener = tcp_listener::listen(at).or_throw();
  auto near = (co_await tcp_conn::connect(listener.local().or_throw())).or_throw();
  auto far = (co_await listener.accept()).or_throw();
  co_return two_ends{std::move(near), std::move(far)};
}

/// A listener that does not accept, and whose queue is full: connecting to it never ends.
class unresponsive {
 public:
  unresponsive() : listener_(tcp_listener::listen(endpoint::loopback(0), {.backlog = 0}).value) {
    for (;;) {
      auto [conn, error] = tcp_conn::connect(at(), std::chrono::milliseconds(100)).wait();
      if (error) break;
      filling_.push_back(std::move(conn));
    }
  }
  endpoint at() const { return listener_.local().or_throw(); }

 private:
  tcp_listener listener_;
  std::vector<tcp_conn> filling_;
};

/// Returns whether an operation waits on it, for tests of waiting operations.
inline bool awaited(const descriptor& of, detail::io_direction d) {
  struct inside : descriptor {
    using descriptor::get;
  };
  return (of.*(&inside::get))()->awaited(d);
}
inline bool has_reader(const descriptor& of) { return awaited(of, detail::io_direction::read); }
inline bool has_writer(const descriptor& of) { return awaited(of, detail::io_direction::write); }

}  // namespace verge::test
