// SPDX-License-Identifier: Apache-2.0

#include <verge/under.h>
#include <verge/verge.h>

#include <array>

namespace reference_under {

using namespace std::chrono_literals;

verge::task<int> call(int server);

verge::task<> example(verge::context ctx, verge::receiver<int> ch, int server,
                      verge::tcp_conn conn) {
  std::array<char, 16> bytes;
  auto message = co_await verge::under(ctx, verge::recv(ch));
  verge::under(ctx, verge::sleep(1s)).wait();                           // on a plain thread
  auto reply = co_await verge::under(ctx, call(server));                // or a task
  auto [n, error] = co_await verge::under(ctx, conn.read_full(bytes));  // error: ctx.err()
}

}  // namespace reference_under
