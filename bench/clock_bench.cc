// SPDX-License-Identifier: Apache-2.0

// The cost of reading the time: alone, and among cache misses, which a fenced read keeps from
// overlapping.
#include <benchmark/benchmark.h>
#include <clock/fast_clock.h>
#include <clock/true_clock.h>
#include <verge/clock.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace {

using verge::detail::fast_clock;
using verge::detail::true_now;

struct steady {
  static std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
};

struct true_clock {
  static std::int64_t now() { return true_now(); }
};

/// What users read: true time, unless the thread takes part in a simulation.
struct public_clock {
  static std::int64_t now() { return verge::clock::now().time_since_epoch().count(); }
};

struct public_fast_clock {
  static std::int64_t now() { return verge::clock::fast_now().time_since_epoch().count(); }
};

#if defined(__x86_64__)
struct bare_rdtsc {
  static std::int64_t now() { return static_cast<std::int64_t>(__rdtsc()); }
};
#endif

template <class Clock>
void read(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Clock::now());
}

// Writes the time into random lines of 64 MiB, as starting timers does.
template <class Clock>
void read_and_store_far_away(benchmark::State& state) {
  struct alignas(64) line {
    std::int64_t when = 0;
  };
  std::vector<line> lines(std::size_t{1} << 20);
  std::minstd_rand random(1);
  for (auto _ : state) {
    line& l = lines[random() % lines.size()];
    l.when = Clock::now() + (l.when & 1);
  }
  benchmark::DoNotOptimize(lines.data());
}

BENCHMARK(read<steady>);
BENCHMARK(read<true_clock>);
BENCHMARK(read<public_clock>);
BENCHMARK(read<fast_clock>);
BENCHMARK(read<public_fast_clock>);
BENCHMARK(read_and_store_far_away<steady>);
BENCHMARK(read_and_store_far_away<true_clock>);
BENCHMARK(read_and_store_far_away<fast_clock>);
BENCHMARK(read_and_store_far_away<public_fast_clock>);
#if defined(__x86_64__)
BENCHMARK(read<bare_rdtsc>);
BENCHMARK(read_and_store_far_away<bare_rdtsc>);
#endif

}  // namespace
