// SPDX-License-Identifier: Apache-2.0

// Coroutines: tasks that wait without a thread, run concurrently, and return results.

#include <chrono>
#include <cstdio>
#include <string>

#include <verge/runtime.h>
#include <verge/task.h>
#include <verge/time.h>

using namespace std::chrono_literals;

namespace {

verge::task<std::string> fetch(std::string what, std::chrono::milliseconds takes) {
  co_await verge::sleep(takes);  // no thread waits
  co_return what + " fetched";
}

verge::task<> work() {
  const auto start = verge::clock::now();
  auto user = verge::go(fetch, "user", 30ms);  // runs concurrently
  auto orders = verge::go(fetch, "orders", 50ms);
  const std::string here = co_await fetch("news", 10ms);  // runs here
  std::printf("%s, %s, %s\n", here.c_str(), (co_await user).c_str(), (co_await orders).c_str());
  std::printf("in the time of the slowest: %s\n",
              verge::clock::now() - start < 90ms ? "yes" : "the machine is busy");

  auto too_slow = verge::go(fetch, "archive", 1h);
  too_slow.cancel();
  try {
    co_await too_slow;
  } catch (const verge::cancelled&) {
    std::puts("cancelled");
  }
}

}  // namespace

int main() {
  verge::default_runtime().run(work());

  // A hundred thousand tasks that sleep are a hundred thousand small objects, not threads.
  const verge::chan<int> done(100'000);
  for (int i = 0; i < 100'000; ++i) {
    verge::go([done]() -> verge::task<> {
      co_await verge::sleep(20ms);
      co_await verge::send(done, 1);
    }).detach();
  }
  int sum = 0;
  while (sum < 100'000) sum += *done.recv();
  std::printf("%d tasks have slept\n", sum);
}
