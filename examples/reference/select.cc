// SPDX-License-Identifier: Apache-2.0

#include <verge/select.h>
#include <verge/verge.h>

namespace reference_select {

using namespace std::chrono_literals;

struct message {};
void answer(const std::optional<message>& m);
verge::task<> answer_slowly(message m);

verge::task<> example(verge::receiver<message> messages, verge::chan<int> results, int r) {
  int sent = 0;
  bool late = false;
  bool idle = false;
  co_await verge::select(
      verge::recv(messages, [&](std::optional<message> m) { answer(m); }),  // empty: closed
      verge::send(results, r, [&] { ++sent; }),
      verge::recv(verge::after(1s), [&] { late = true; }),  // a time-out
      verge::otherwise([&] { idle = true; }));              // do not wait
}

verge::task<> by_index(verge::receiver<message> messages, verge::receiver<int> stop) {
  std::optional<message> m;
  switch (co_await verge::select(verge::recv(messages, m), verge::recv(stop))) {
    case 0:
      co_await answer_slowly(*m);
      break;
    case 1:
      co_return;
  }
}

}  // namespace reference_select
