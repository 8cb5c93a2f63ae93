// SPDX-License-Identifier: Apache-2.0

// The cost of tasks and channels: a switch, a hand-over, a send with room, a select, a task.
//
// All run inside one task on one processor, unless noted otherwise, to measure the code and not
// thread wake-ups; in processor time, so that other load matters less. bench/go_compare compares
// yields and hand-overs with Go's.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <optional>

#include <verge/chan.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/task.h>

namespace {

using namespace verge;

/// Runs `body(n)`, a coroutine that does something n times; `each` is what one of them takes.
template <class Body>
void measure(benchmark::State& state, unsigned processors, Body body) {
  runtime rt({.processors = processors});
  constexpr int batch = 20'000;
  for (auto _ : state) rt.run([&]() -> task<void> { co_await body(batch); });
  state.counters["each"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * batch,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

task<void> yield_alone(int n) {
  for (int i = 0; i < n; ++i) co_await verge::yield();
}
void yield_with_nobody_else(benchmark::State& state) { measure(state, 1, yield_alone); }

/// Two tasks take turns: every yield is a switch to the other one.
task<void> yield_in_turns(int n) {
  auto other = go(yield_alone(n / 2));
  co_await yield_alone(n / 2);
  co_await other;
}
void yield_to_another_task(benchmark::State& state) { measure(state, 1, yield_in_turns); }

task<void> receive_many(receiver<int> from, int n) {
  for (int i = 0; i < n; ++i) co_await verge::recv(from);
}
task<void> send_many(sender<int> to, int n) {
  for (int i = 0; i < n; ++i) co_await verge::send(to, i);
}

/// From one task to another that waits for it. On average every second one waits.
task<void> stream(std::size_t capacity, int n) {
  chan<int> ch(capacity);
  auto other = go(receive_many(ch, n));
  co_await send_many(ch, n);
  co_await other;
}
void stream_by_hand(benchmark::State& state) {
  measure(state, 1, [](int n) { return stream(0, n); });
}
void stream_through_a_buffer_of_64(benchmark::State& state) {
  measure(state, 1, [](int n) { return stream(64, n); });
}

/// Round trips over two unbuffered channels: every operation waits. Per hand-over.
task<void> ping_pong(int n) {
  chan<int> ping;
  chan<int> pong;
  auto other = go(
      [](chan<int> in, chan<int> out, int times) -> task<void> {
        for (int i = 0; i < times; ++i) co_await verge::send(out, *co_await verge::recv(in));
      },
      ping, pong, n / 2);
  for (int i = 0; i < n / 2; ++i) {
    co_await verge::send(ping, i);
    co_await verge::recv(pong);
  }
  co_await other;
}
void ping_pong_on_one_processor(benchmark::State& state) { measure(state, 1, ping_pong); }
void ping_pong_on_two_processors(benchmark::State& state) { measure(state, 2, ping_pong); }

/// Without waiting: a send and a receive, in a coroutine and on a thread.
task<void> fill_and_drain(int n) {
  chan<int> ch(1);
  for (int i = 0; i < n; ++i) {
    co_await verge::send(ch, i);
    benchmark::DoNotOptimize(co_await verge::recv(ch));
  }
}
void send_and_recv_without_waiting(benchmark::State& state) { measure(state, 1, fill_and_drain); }

void send_and_recv_without_waiting_on_a_thread(benchmark::State& state) {
  chan<int> ch(1);
  for ([[maybe_unused]] auto _ : state) {
    ch.send(1);
    benchmark::DoNotOptimize(ch.recv());
  }
}

task<void> select_one_of_three(int n) {
  chan<int> a;
  chan<int> b(1);
  chan<int> c;
  for (int i = 0; i < n; ++i) {
    co_await verge::send(b, i);
    co_await verge::select(verge::recv(a), verge::recv(b), verge::recv(c));
  }
}
void send_and_select_of_three(benchmark::State& state) { measure(state, 1, select_one_of_three); }

/// A select that waits, and is woken through one of its channels.
task<void> select_stream(int n) {
  chan<int> a;
  chan<int> b;
  auto other = go(send_many(b, n));
  for (int i = 0; i < n; ++i) co_await verge::select(verge::recv(a), verge::recv(b));
  co_await other;
}
void stream_to_a_select_of_two(benchmark::State& state) { measure(state, 1, select_stream); }

task<int> answer(int n) { co_return n; }
task<void> await_tasks(int n) {
  for (int i = 0; i < n; ++i) benchmark::DoNotOptimize(co_await answer(i));
}
void await_a_task(benchmark::State& state) { measure(state, 1, await_tasks); }

task<void> spawn_and_join(int n) {
  for (int i = 0; i < n; ++i) benchmark::DoNotOptimize(co_await go(answer(i)));
}
void spawn_a_task_and_join_it(benchmark::State& state) { measure(state, 1, spawn_and_join); }

BENCHMARK(yield_with_nobody_else)->MeasureProcessCPUTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(yield_to_another_task)->MeasureProcessCPUTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(stream_by_hand)->MeasureProcessCPUTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(stream_through_a_buffer_of_64)->MeasureProcessCPUTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(ping_pong_on_one_processor)->MeasureProcessCPUTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(ping_pong_on_two_processors)->MeasureProcessCPUTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(send_and_recv_without_waiting)->MeasureProcessCPUTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(send_and_recv_without_waiting_on_a_thread);
BENCHMARK(send_and_select_of_three)->MeasureProcessCPUTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(stream_to_a_select_of_two)->MeasureProcessCPUTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(await_a_task)->MeasureProcessCPUTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(spawn_a_task_and_join_it)->MeasureProcessCPUTime()->Unit(benchmark::kMicrosecond);

}  // namespace
