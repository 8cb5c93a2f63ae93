// SPDX-License-Identifier: Apache-2.0

// The code that unload_test.cc loads, runs on a runtime and unloads: tasks and callbacks of every
// kind. run_in_plugin() returns when it has joined or destroyed all of them.

#include <unistd.h>
#include <verge/chan.h>
#include <verge/fd.h>
#include <verge/runtime.h>
#include <verge/task.h>
#include <verge/time.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>

namespace {

using namespace std::chrono_literals;

verge::task<int> child(int n) {
  co_await verge::yield();
  co_return n + 1;
}

void join_a_call(verge::runtime& rt) {
  rt.spawn([s = std::string(100, 'x')] { return s.size(); }).join();
}

void join_a_coroutine(verge::runtime& rt) {
  rt.spawn(
        [](std::string s) -> verge::task<std::string> { co_return s + s; }(std::string(100, 'x')))
      .join();
}

void join_a_coroutine_that_waits(verge::runtime& rt) {
  rt.spawn([n = 1]() -> verge::task<int> {
      co_await verge::sleep(1us);
      co_return co_await child(n);
    }).join();
}

/// Each yield may move it to another worker, while the last one is still leaving it.
void join_coroutines_that_yield(verge::runtime& rt) {
  std::array<verge::join_handle<>, 4> all;
  for (auto& one : all) {
    one = rt.spawn([]() -> verge::task<> {
      for (int i = 0; i < 5; ++i) co_await verge::yield();
    });
  }
  for (auto& one : all) one.join();
}

/// It is woken at once by another worker, while this one is still leaving it.
void join_a_coroutine_that_is_handed_something(verge::runtime& rt) {
  const verge::chan<int> c(0);
  auto receives = rt.spawn([c]() -> verge::task<int> { co_return *co_await verge::recv(c); });
  c.send(1);
  receives.join();
}

void join_a_coroutine_that_reads(verge::runtime& rt) {
  rt.run([]() -> verge::task<> {
    auto [ends, error] = verge::make_pipe();
    auto reads = verge::go([from = std::move(ends.from)]() mutable -> verge::task<std::size_t> {
      std::array<char, 8> bytes{};
      const auto [n, why] = co_await from.read_some(bytes);
      co_return n;
    });
    co_await verge::yield();
    co_await ends.to.write_all("x");
    co_await reads;
  });
}

void join_a_task_that_is_cancelled(verge::runtime& rt) {
  auto h = rt.spawn([]() -> verge::task<> { co_await verge::sleep(10s); });
  h.cancel();
  try {
    h.join();
  } catch (const verge::cancelled&) {
  }
}

void join_a_task_by_a_task(verge::runtime& rt) {
  rt.run([]() -> verge::task<> {
    auto a = verge::go(child(1));
    auto b = verge::go([] { return std::string(100, 'y'); });
    co_await a;
    co_await b;
  });
}

void destroy_a_timer_that_fires(verge::runtime& rt) {
  std::atomic<bool> called_small{false};
  std::atomic<bool> called_large{false};
  std::atomic<int> ticks{0};
  verge::timer small;
  verge::timer large;
  verge::ticker again;
  rt.run([&] {
    small = verge::after_func(0s, [&] { called_small = true; });
    large = verge::after_func(
        0s, [&, s = std::make_shared<std::string>(100, 'z')] { called_large = true; });
    again = verge::every(1us, [&] { ++ticks; });
  });
  // A one-shot that an engine is about to fire may still read a constant of its function's type
  // when the handle is destroyed. So they have been called, and their calls run or have run; the
  // ticker fires at any moment.
  while (!called_small || !called_large) ::usleep(1);
}

}  // namespace

extern "C" [[gnu::visibility("default")]] void run_in_plugin(verge::runtime& rt, int kind) {
  constexpr std::array kinds{&join_a_call,
                             &join_a_coroutine,
                             &join_a_coroutine_that_waits,
                             &join_a_coroutine_that_reads,
                             &join_a_task_that_is_cancelled,
                             &join_a_task_by_a_task,
                             &destroy_a_timer_that_fires,
                             &join_coroutines_that_yield,
                             &join_a_coroutine_that_is_handed_something};
  kinds.at(static_cast<std::size_t>(kind))(rt);
}
