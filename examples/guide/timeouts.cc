// SPDX-License-Identifier: Apache-2.0

// A limit on any operation: what it throws, what it returns, and what is left undone.

#include <array>
#include <chrono>
#include <cstdio>

#include <verge/chan.h>
#include <verge/net.h>
#include <verge/runtime.h>
#include <verge/timeout.h>

using namespace std::chrono_literals;

namespace {

verge::task<int> slow_answer() {
  co_await verge::sleep(1h);
  co_return 42;
}

verge::task<> work() {
  const verge::chan<int> ch(1);
  try {
    co_await verge::timeout(verge::recv(ch), 10ms);
  } catch (const verge::timed_out&) {
    std::puts("recv: timed out, and no value is lost");
  }
  try {
    co_await verge::timeout(slow_answer(), 10ms);
  } catch (const verge::timed_out&) {
    std::puts("task: cancelled, and it has ended");
  }

  // Operations of sockets return what they have done and why they ended.
  auto [here, there] = verge::unix_conn::pair().or_throw();
  (co_await there.write_all("abc")).or_throw();
  std::array<char, 8> bytes{};
  const auto [n, error] = co_await verge::timeout(here.read_full(bytes), 10ms);
  std::printf("read_full: %zu bytes, %s\n", n, error.message().c_str());
}

}  // namespace

int main() {
  verge::default_runtime().run(work());

  // On a plain thread the same operations have wait().
  const verge::chan<int> ch;
  try {
    verge::timeout(verge::recv(ch), 10ms).wait();
  } catch (const verge::timed_out&) {
    std::puts("thread: timed out");
  }
}
