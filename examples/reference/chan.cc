// SPDX-License-Identifier: Apache-2.0

#include <verge/chan.h>
#include <verge/verge.h>

namespace reference_chan {

void use(int n);

verge::task<> example() {
  verge::chan<int> ch(16);  // room for 16 values; 0: unbuffered

  co_await verge::send(ch, 1);  // in a coroutine
  std::optional<int> v = co_await verge::recv(ch);

  ch.send(2);               // on a plain thread: blocks it
  for (int n : ch) use(n);  // until the channel is closed and drained
  ch.close();
}

}  // namespace reference_chan
