// SPDX-License-Identifier: Apache-2.0

// An idle time-out with Boost.Asio.

#include <utility>

#include <boost/asio.hpp>

#include <chrono>
#include <cstdio>

using namespace std::chrono_literals;
namespace asio = boost::asio;

namespace {

// [code]
class connection {
 public:
  explicit connection(asio::io_context& io) : strand_(asio::make_strand(io)), idle_(strand_) {
    received();
  }
  void received() {             // on the strand only
    idle_.expires_after(30ms);  // a handler that is queued already will run, without an error
    idle_.async_wait([this](boost::system::error_code error) {
      if (error == asio::error::operation_aborted) return;
      if (idle_.expiry() > std::chrono::steady_clock::now()) return;  // that one
      std::puts("idle");
    });
  }

 private:
  asio::strand<asio::io_context::executor_type> strand_;
  asio::steady_timer idle_;  // `this` must outlive every handler, also the aborted ones
};
// [/code]

}  // namespace

int main() {
  asio::io_context io;
  connection c(io);
  c.received();
  io.run();
}
