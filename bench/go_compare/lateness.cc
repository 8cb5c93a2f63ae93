// SPDX-License-Identifier: Apache-2.0

#include "lateness.h"

#include <verge/chan.h>
#include <verge/task.h>
#include <verge/time.h>

#include <atomic>
#include <span>
#include <vector>

#include "countdown.h"

namespace verge::bench {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

double ns_since(clock::time_point due) {
  return std::chrono::duration<double, std::nano>(clock::now() - due).count();
}

/// Keeps a processor busy.
void work(std::chrono::nanoseconds d) {
  for (const auto start = clock::now(); clock::now() - start < d;) {
  }
}

task<void> busy_task() {
  work(1ms);
  co_return;
}

/// Ensures that there is a running thread for every processor.
task<void> warm_up(int processors) {
  std::vector<join_handle<void>> all;
  for (int i = 0; i < processors; ++i) all.push_back(go(busy_task()));
  for (auto& one : all) co_await one;
}

task<figures> sample_sleeps(parameters p) {
  figures f;
  for (int i = 0; i < p.samples; ++i) {
    const auto due = clock::now() + p.sleep;
    co_await sleep(p.sleep);
    f.late_ns.push_back(ns_since(due));
  }
  co_return f;
}

void spin_until(const std::atomic<int>& fired, int all) {
  while (fired.load(std::memory_order_acquire) < all) {
  }
}

/// Keeps one processor spinning and has a timer for each of the others, which must all wake at the
/// same time: each callback spins until all of them run.
task<figures> sample_parallel_timers(parameters p) {
  constexpr auto delay = 1ms;
  const int timers = p.processors - 1;
  figures f;
  f.late_ns.resize(static_cast<std::size_t>(timers) * static_cast<std::size_t>(p.samples));
  auto sample = f.late_ns.begin();
  co_await warm_up(p.processors);
  work(30ms);
  for (int i = 0; i < p.samples; ++i) {
    std::atomic<int> fired{0};
    countdown all(timers);
    for (int j = 0; j < timers; ++j) {
      const auto due = clock::now() + delay;
      after_func(delay, [&fired, &all, &late = *sample++, due, timers] {
        late = ns_since(due);
        fired.fetch_add(1, std::memory_order_acq_rel);
        spin_until(fired, timers);
        all.arrive();
      }).detach();
    }
    spin_until(fired, timers);
    co_await all.wait();
    work(1ms);  // lets the other threads go idle
  }
  co_return f;
}

constexpr auto tick_period = 3ms;
constexpr auto work_per_tick = 300us;

task<void> tick(ticker t, clock::time_point due, std::span<double> samples) {
  for (double& late : samples) {
    co_await recv(t.c());
    late = ns_since(due);
    due += tick_period;
    work(work_per_tick);
  }
}

/// Tickers spread over their period, each of which has work to do per tick.
task<figures> sample_staggered_tickers(parameters p) {
  const auto samples = static_cast<std::size_t>(p.samples);
  const auto tickers = static_cast<std::size_t>(p.processors) * static_cast<std::size_t>(p.tickers);
  figures f;
  f.late_ns.resize(tickers * samples);
  co_await warm_up(p.processors);
  work(30ms);
  std::vector<join_handle<void>> all;
  for (std::size_t i = 0; i < tickers; ++i) {
    work(tick_period / p.processors);
    const auto due = clock::now() + tick_period;
    const auto mine = std::span(f.late_ns).subspan(i * samples, samples);
    all.push_back(go(tick(ticker(tick_period), due, mine)));
  }
  for (auto& one : all) co_await one;
  co_return f;
}

}  // namespace

figures sleep_lateness(runtime& rt, const parameters& p) { return rt.run(sample_sleeps(p)); }

figures parallel_timer_latency(runtime& rt, const parameters& p) {
  return rt.run(sample_parallel_timers(p));
}

figures staggered_ticker_latency(runtime& rt, const parameters& p) {
  return rt.run(sample_staggered_tickers(p));
}

}  // namespace verge::bench
