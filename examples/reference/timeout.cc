// SPDX-License-Identifier: Apache-2.0

#include <verge/timeout.h>
#include <verge/verge.h>

#include <array>

namespace reference_timeout {

using namespace std::chrono_literals;

verge::task<int> call(int server);

verge::task<> example(verge::receiver<int> ch, int server, verge::tcp_conn conn) {
  std::array<char, 16> bytes;
  auto message = co_await verge::timeout(verge::recv(ch), 50ms);         // throws verge::timed_out
  verge::timeout(verge::recv(ch), 50ms).wait();                          // on a plain thread
  auto reply = co_await verge::timeout(call(server), 2s);                // or a task
  auto [n, error] = co_await verge::timeout(conn.read_full(bytes), 2s);  // net_errc::timed_out
}

}  // namespace reference_timeout
