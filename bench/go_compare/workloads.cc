// SPDX-License-Identifier: Apache-2.0

#include "workloads.h"

#include <algorithm>

#include "lateness.h"
#include "net.h"
#include "throughput.h"

namespace verge::bench {
namespace {

using run_fn = figures (*)(runtime&, const parameters&);

const std::vector<goal> as_fast{{statistic::per_operation, 1}};

/// How many samples of something that takes `each` fill the time of two rounds: the p99 needs many.
int samples_in(const parameters& p, std::chrono::microseconds each) {
  return std::max(30, static_cast<int>(2 * p.duration / each));
}

workload costs(const std::string& name, run_fn run) {
  return {name, name, as_fast, [](parameters&) {}, run};
}

/// From threads that hold no processor: most C++ programs call it so.
workload costs_on_threads(const std::string& name, run_fn run) {
  return {name + "/threads", name, as_fast, [](parameters&) {}, run};
}

/// The same on one processor, where nothing but the switch itself is measured.
workload costs_on_one(const std::string& name, run_fn run) {
  return {name + "/1", name, as_fast, [](parameters& p) { p.processors = 1; }, run};
}

/// With so many contexts that have a deadline.
workload over_contexts(const std::string& name, int live, run_fn run) {
  const std::string count = live < 1000 ? std::to_string(live) : std::to_string(live / 1000) + "k";
  return {name + "/" + count, name, as_fast,
          [live](parameters& p) { p.background = live / p.processors; }, run};
}

/// Deadlines are postponed with every request: the goal is four times as fast.
workload put_off_deadline() {
  return {"SetReadDeadline",
          "SetReadDeadline",
          {{statistic::per_operation, 4}},
          [](parameters&) {},
          &set_read_deadline};
}

workload echo_over(int connections) {
  return {"Echo/" + std::to_string(connections), "Echo", as_fast,
          [connections](parameters& p) { p.connections = connections; }, &echo};
}

/// Go waits in whole milliseconds, so below one it is late by up to one.
workload sleep_late(std::chrono::microseconds d) {
  const std::string name =
      d < std::chrono::milliseconds(1)
          ? std::to_string(d.count()) + "us"
          : std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(d).count()) + "ms";
  const double p50_goal = d < std::chrono::milliseconds(1) ? 10 : 1;
  return {"SleepLateness/" + name,
          "SleepLateness",
          {{statistic::p50_late, p50_goal}, {statistic::p99_late, 1}},
          [d](parameters& p) {
            p.sleep = d;
            p.samples = samples_in(p, d + std::chrono::milliseconds(1));
          },
          &sleep_lateness};
}

workload staggered(int tickers) {
  return {"StaggeredTickerLatency/" + std::to_string(tickers),
          "StaggeredTickerLatency",
          {{statistic::mean_late, 1}},
          [tickers](parameters& p) {
            p.tickers = tickers;
            p.samples = samples_in(p, std::chrono::milliseconds(3)) / 2;
          },
          &staggered_ticker_latency};
}

workload parallel_latency() {
  return {"ParallelTimerLatency",
          "ParallelTimerLatency",
          {{statistic::mean_late, 1}},
          [](parameters& p) {
            p.processors = std::max(2, p.processors);
            p.samples = samples_in(p, std::chrono::milliseconds(2)) / 2;
          },
          &parallel_timer_latency};
}

}  // namespace

std::vector<workload> all_workloads() {
  std::vector<workload> all{
      costs("AfterFunc", &after_func_chain),
      costs("After", &after),
      costs("Stop", &stop),
      costs("SimultaneousAfterFunc", &simultaneous_after_func),
      costs("StartStop", &start_stop),
      costs("Reset", &reset),
      costs("Sleep", &sleep),
      costs("Ticker", &ticker),
      costs("TickerReset", &ticker_reset),
      costs("AdjustTimers10000", &adjust_timers_10000),
      over_contexts("ContextTimeout", 0, &context_timeout),
      over_contexts("ContextTimeout", 100'000, &context_timeout),
      over_contexts("ContextTimeout", 400'000, &context_timeout),
      over_contexts("ContextChild", 400'000, &context_child),
      costs_on_threads("Stop", &stop_on_threads),
      costs_on_threads("StartStop", &start_stop_on_threads),
      costs_on_threads("Reset", &reset_on_threads),
      costs_on_one("Yield", &yield),
      costs("Yield", &yield),
      costs_on_one("ChanHandover", &chan_handover),
      costs("ChanHandover", &chan_handover),
      put_off_deadline(),
      echo_over(1),
      echo_over(64),
      echo_over(1000),
      parallel_latency(),
      staggered(1),
      staggered(10),
  };
  for (const int us : {50, 100, 250, 500, 1000, 2000, 5000}) {
    all.push_back(sleep_late(std::chrono::microseconds(us)));
  }
  return all;
}

}  // namespace verge::bench
