// SPDX-License-Identifier: Apache-2.0

#include "throughput.h"

#include <verge/chan.h>
#include <verge/context.h>
#include <verge/task.h>
#include <verge/time.h>

#include <atomic>
#include <thread>
#include <type_traits>
#include <vector>

#include "countdown.h"

namespace verge::bench {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;
/// A batch is a coroutine function, or a plain one if there is nothing to wait for.
using plain_batch = void (*)();

constexpr int batch_size = 1000;

// ---- Running batches ----------------------------------------------------------------------------

struct batches_run {
  std::int64_t count;
  std::chrono::nanoseconds took;

  figures per_operation(int operations_per_batch) const {
    return {static_cast<double>(took.count()) / static_cast<double>(count * operations_per_batch),
            {}};
  }
};

template <class Batch>
task<void> repeat(Batch batch, clock::time_point end, std::atomic<std::int64_t>& batches) {
  std::int64_t mine = 0;
  do {
    if constexpr (std::is_same_v<Batch, plain_batch>) {
      batch();
    } else {
      co_await batch();
    }
    ++mine;
  } while (clock::now() < end);
  batches += mine;
}

template <class Batch>
task<batches_run> run_batches(int processors, std::chrono::nanoseconds d, Batch batch) {
  const auto start = clock::now();
  std::atomic<std::int64_t> batches{0};
  std::vector<join_handle<void>> all;
  for (int i = 0; i < processors; ++i) all.push_back(go(repeat(batch, start + d, batches)));
  for (auto& one : all) co_await one;
  co_return batches_run{batches.load(), clock::now() - start};
}

void fill(std::vector<timer>& background, int count) {
  background.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) background.push_back(after_func(1h, [] {}));
}

/// Runs batches on every processor at once, for the given time, with existing timers that are far
/// away, as on a busy server.
template <class Batch>
task<figures> measure(parameters p, int operations_per_batch, Batch batch) {
  std::vector<std::vector<timer>> background(static_cast<std::size_t>(p.processors));
  std::vector<join_handle<void>> fillers;
  for (auto& part : background) fillers.push_back(go([&] { fill(part, p.background); }));
  for (auto& one : fillers) co_await one;

  co_await run_batches(p.processors, p.duration / 10, batch);  // memory and caches are warm then
  const batches_run r = co_await run_batches(p.processors, p.duration, batch);
  co_return r.per_operation(operations_per_batch);
}

template <class Batch>
figures parallel(runtime& rt, const parameters& p, int operations_per_batch, Batch* batch) {
  return rt.run(measure(p, operations_per_batch, batch));
}

/// The same from plain threads, which hold no processor, on the default runtime.
batches_run run_on_threads(int threads, std::chrono::nanoseconds d, plain_batch batch) {
  const auto start = clock::now();
  std::atomic<std::int64_t> batches{0};
  std::vector<std::jthread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&] {
      std::int64_t mine = 0;
      do {
        batch();
        ++mine;
      } while (clock::now() < start + d);
      batches += mine;
    });
  }
  all.clear();
  return {batches.load(), clock::now() - start};
}

figures on_threads(const parameters& p, plain_batch batch) {
  std::vector<timer> background;
  fill(background, p.processors * p.background);
  run_on_threads(p.processors, p.duration / 10, batch);
  return run_on_threads(p.processors, p.duration, batch).per_operation(batch_size);
}

/// Over live contexts, all of one parent, where the others have timers.
task<figures> measure_contexts(parameters p, context parent) {
  std::vector<std::vector<cancellable>> live(static_cast<std::size_t>(p.processors));
  const auto fill_part = [&](std::vector<cancellable>& part) {
    for (int i = 0; i < p.background; ++i) part.push_back(with_timeout(parent, 1h));
  };
  std::vector<join_handle<void>> fillers;
  for (auto& part : live) fillers.push_back(go([&] { fill_part(part); }));
  for (auto& one : fillers) co_await one;

  const auto batch = [&parent]() -> task<void> {
    for (int i = 0; i < batch_size; ++i) {
      const cancellable one = with_timeout(parent, 1h);
      one.cancel();
    }
    co_return;
  };
  co_await run_batches(p.processors, p.duration / 10, batch);
  const batches_run r = co_await run_batches(p.processors, p.duration, batch);
  co_return r.per_operation(batch_size);
}

// ---- The batches --------------------------------------------------------------------------------

/// A chain: each callback starts the next timer, which is due at once.
struct chain {
  int left{batch_size};
  chan<bool> done{1};

  void start_next() {
    after_func(0ns, [this] {
      if (--left > 0) {
        start_next();
      } else {
        chan<bool> ours = done;  // the chain may be destroyed as soon as it is known to have ended
        ours.send(true);
      }
    }).detach();
  }
};

task<void> after_func_chain_batch() {
  chain c;
  c.start_next();
  co_await recv(c.done);
}

task<void> after_batch() {
  for (int i = 0; i < batch_size; ++i) co_await recv(verge::after(1ns));
}

void stop_batch() {
  for (int i = 0; i < batch_size; ++i) timer(1s).stop();
}

task<void> simultaneous_after_func_batch() {
  countdown all(batch_size);
  for (int i = 0; i < batch_size; ++i) after_func(0ns, [&all] { all.arrive(); }).detach();
  co_await all.wait();
}

void start_stop_batch() {
  std::vector<timer> timers;
  timers.reserve(batch_size);
  for (int i = 0; i < batch_size; ++i) timers.push_back(after_func(1h, [] {}));
  for (timer& t : timers) t.stop();
}

void reset_batch() {
  timer t(1h);
  for (int i = 0; i < batch_size; ++i) t.reset(1h);
  t.stop();
}

task<void> sleep_and_arrive(countdown& all) {
  co_await verge::sleep(1ns);
  all.arrive();
}

/// Many tasks that each sleep for the shortest time there is.
task<void> sleep_batch() {
  countdown all(batch_size);
  for (int i = 0; i < batch_size; ++i) go(sleep_and_arrive(all)).detach();
  co_await all.wait();
}

task<void> ticker_batch() {
  verge::ticker t(1ns);
  for (int i = 0; i < batch_size; ++i) co_await recv(t.c());
  t.stop();
}

void ticker_reset_batch() {
  verge::ticker t(1ns);
  for (int i = 0; i < batch_size; ++i) t.reset(2ns);
  t.stop();
}

/// Moves the last of ten thousand timers to the front and lets it fire.
task<void> adjust_timers_batch() {
  constexpr int n = 10000;
  std::vector<timer> timers;
  timers.reserve(n);
  for (int i = 0; i < n; ++i) timers.push_back(after_func(1h, [] {}));
  timers.back().reset(1ns);
  co_await verge::sleep(1us);
  for (timer& t : timers) t.stop();
}

task<void> yield_often() {
  for (int i = 0; i < batch_size; ++i) co_await verge::yield();
}

/// Two tasks per processor that yield to each other.
task<void> yield_batch() {
  auto one = go(yield_often());
  auto other = go(yield_often());
  co_await one;
  co_await other;
}

task<void> answer(chan<int>& ping, chan<int>& pong) {
  while (const auto v = co_await recv(ping)) co_await send(pong, *v);
}

/// Ping-pong over two unbuffered channels: two hand-overs a turn.
task<void> chan_handover_batch() {
  chan<int> ping;
  chan<int> pong;
  auto other = go(answer(ping, pong));
  for (int i = 0; i < batch_size; ++i) {
    co_await send(ping, i);
    co_await recv(pong);
  }
  ping.close();
  co_await other;
}

parameters without_background(parameters p) {
  p.background = 0;
  return p;
}

}  // namespace

figures after_func_chain(runtime& rt, const parameters& p) {
  return parallel(rt, p, batch_size, &after_func_chain_batch);
}
figures after(runtime& rt, const parameters& p) {
  return parallel(rt, p, batch_size, &after_batch);
}
figures stop(runtime& rt, const parameters& p) { return parallel(rt, p, batch_size, &stop_batch); }
figures simultaneous_after_func(runtime& rt, const parameters& p) {
  return parallel(rt, p, batch_size, &simultaneous_after_func_batch);
}
figures start_stop(runtime& rt, const parameters& p) {
  return parallel(rt, p, batch_size, &start_stop_batch);
}
figures reset(runtime& rt, const parameters& p) {
  return parallel(rt, p, batch_size, &reset_batch);
}
figures sleep(runtime& rt, const parameters& p) {
  return parallel(rt, p, batch_size, &sleep_batch);
}
figures ticker(runtime& rt, const parameters& p) {
  return parallel(rt, p, batch_size, &ticker_batch);
}
figures ticker_reset(runtime& rt, const parameters& p) {
  return parallel(rt, p, batch_size, &ticker_reset_batch);
}
figures adjust_timers_10000(runtime& rt, const parameters& p) {
  return parallel(rt, p, 1, &adjust_timers_batch);
}
figures context_timeout(runtime& rt, const parameters& p) {
  return rt.run(measure_contexts(p, background()));
}
figures context_child(runtime& rt, const parameters& p) {
  const cancellable parent = with_cancel(background());
  return rt.run(measure_contexts(p, parent.ctx));
}
figures start_stop_on_threads(runtime&, const parameters& p) {
  return on_threads(p, &start_stop_batch);
}
figures reset_on_threads(runtime&, const parameters& p) { return on_threads(p, &reset_batch); }
figures stop_on_threads(runtime&, const parameters& p) { return on_threads(p, &stop_batch); }
figures yield(runtime& rt, const parameters& p) {
  return parallel(rt, without_background(p), 2 * batch_size, &yield_batch);
}
figures chan_handover(runtime& rt, const parameters& p) {
  return parallel(rt, without_background(p), 2 * batch_size, &chan_handover_batch);
}

}  // namespace verge::bench
