// SPDX-License-Identifier: Apache-2.0

// Coroutines of another library, both ways: its coroutines await verge's operations, and verge's
// tasks await its awaitables.

#include <chrono>
#include <coroutine>
#include <cstdio>
#include <exception>
#include <thread>

#include <verge/chan.h>
#include <verge/runtime.h>
#include <verge/task.h>
#include <verge/time.h>

using namespace std::chrono_literals;

namespace {

// The other library: a coroutine type that starts at once and belongs to no runtime,
struct detached {
  struct promise_type {
    detached get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
};
// and an awaitable that resumes on a thread of its own.
struct on_new_thread {
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> h) const { std::thread(h).detach(); }
  void await_resume() const noexcept {}
};

// [theirs]
detached their_coroutine(verge::chan<int> ch) {
  co_await verge::sleep(5ms);               // every operation of verge can be awaited here;
  const auto n = co_await verge::recv(ch);  // it resumes on a worker of the runtime
  co_await verge::send(ch, *n + 1);
}
// [/theirs]

// [ours]
verge::task<int> our_task(verge::chan<int> ch) {
  co_await on_new_thread();  // continues on their thread
  co_await verge::yield();   // and from here on again on a worker of verge's
  co_await verge::send(ch, 41);
  co_return *co_await verge::recv(ch);
}
// [/ours]

}  // namespace

int main() {
  const verge::chan<int> ch;
  their_coroutine(ch);
  const int answer = verge::default_runtime().run(our_task(ch));
  std::printf("%d\n", answer);
  return answer == 42 ? 0 : 1;
}
