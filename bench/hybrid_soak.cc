// SPDX-License-Identifier: Apache-2.0

// The hybrid engine over a long run, and at a hundred million timers.
//
//   hybrid_soak churn [PAIRS]     start and stop timers among 10,000 live ones, with deadlines of 1
//                                 to 61 s; default a thousand million pairs. Says how much memory
//                                 there is after the first hundred thousand and at the end, and
//                                 fails if it has grown by more than an eighth.
//   hybrid_soak many [TIMERS]     default a hundred million, which takes 8 GiB: starts them, stops
//                                 half, and fires the rest, in simulated time. Says what each of
//                                 them takes, in time of the processor, and fails unless all that
//                                 were left have fired.

#include <time.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <verge/detail/timer_functions.h>

#include "bare_host.h"
#include "peers/measure.h"

namespace {

using verge::detail::timer_node;

using verge::bench::random_numbers;
using verge::bench::resident_bytes;
using verge::bench::second;

/// The engine in simulated time, which begins long enough after zero.
class soak_world final : public verge::bench::bare_host {
 public:
  soak_world() : bare_host(verge::engine::hybrid) { engine().grow(1); }
  ~soak_world() { end(); }
  void set_time(std::int64_t t) { now_ = t; }

  std::int64_t now() noexcept override { return now_; }
  std::int64_t cheap_now() noexcept override { return now_; }
  unsigned home_processor() noexcept override { return 0; }
  void timer_fired(std::int64_t when, std::int64_t now) noexcept override {
    if (when > now) std::abort();
  }

 private:
  std::int64_t now_ = 3600 * second;
};

std::uint64_t fired = 0;

timer_node* start(soak_world& world, std::int64_t delay) {
  return verge::detail::start_func_timer(
      world.timers(), delay, [] { ++fired; }, 0);
}

/// The processor time of the program.
double now_seconds() {
  return static_cast<double>(verge::bench::read_clock(CLOCK_THREAD_CPUTIME_ID)) /
         static_cast<double>(second);
}

int churn(std::uint64_t pairs) {
  soak_world world;
  random_numbers random(1);
  std::vector<timer_node*> all(10'000);
  for (timer_node*& t : all) t = start(world, random.delay());
  std::size_t first = 0;
  const double begin = now_seconds();
  for (std::uint64_t i = 0; i < pairs; ++i) {
    timer_node*& t = all[random.below(all.size())];
    verge::detail::destroy_timer(*t);
    t = start(world, random.delay());
    if (i == 100'000) first = resident_bytes();
  }
  const std::size_t last = resident_bytes();
  const auto counts = world.engine().counts(0);
  std::printf(
      "%llu pairs in %.0f s; resident after the first 100,000: %zu KiB, at the end: %zu KiB; "
      "entries live %llu, out of date %llu\n",
      static_cast<unsigned long long>(pairs), now_seconds() - begin, first / 1024, last / 1024,
      static_cast<unsigned long long>(counts.live),
      static_cast<unsigned long long>(counts.deleted));
  for (timer_node* t : all) verge::detail::destroy_timer(*t);
  return last <= first + first / 8 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int many(std::uint64_t n) {
  soak_world world;
  random_numbers random(1);
  std::vector<timer_node*> all(n, nullptr);
  const std::size_t before = resident_bytes();
  double begin = now_seconds();
  const auto say = [&](const char* what, std::uint64_t count) {
    const double took = now_seconds() - begin;
    std::printf("%-6s %11llu timers: %6.1f s, %5.0f ns each; resident %.2f GiB\n", what,
                static_cast<unsigned long long>(count), took,
                took * 1e9 / static_cast<double>(count),
                static_cast<double>(resident_bytes()) / (1 << 30));
    std::fflush(stdout);
    begin = now_seconds();
  };
  for (timer_node*& t : all) t = start(world, random.delay());
  std::printf("%.1f bytes per timer\n",
              static_cast<double>(resident_bytes() - before) / static_cast<double>(n));
  say("start", n);
  std::uint64_t stopped = 0;
  for (std::uint64_t i = 0; i < n; i += 2) {
    stopped += verge::detail::stop_timer(all[i]);
  }
  say("stop", stopped);
  while (const std::int64_t next = world.engine().next_exactly(0)) {
    if (next == INT64_MAX) break;
    // In steps of a millisecond: time advances, and some are due.
    world.set_time(std::max(world.now(), next + 1'000'000));
    while (world.engine().check_timers(0, world.now(), true).ran != 0) {
    }
  }
  say("fire", fired);
  for (timer_node* t : all) verge::detail::destroy_timer(*t);
  say("end", n);
  std::printf("%llu stopped, %llu fired\n", static_cast<unsigned long long>(stopped),
              static_cast<unsigned long long>(fired));
  return stopped + fired == n ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  std::uint64_t n = what == "churn" ? 1'000'000'000 : 100'000'000;
  bool right = argc == 2 || argc == 3;
  if (argc == 3) {
    const std::string_view text = argv[2];
    const auto [end, error] = std::from_chars(text.begin(), text.end(), n);
    right = error == std::errc{} && end == text.end() && n >= 1000;
  }
  if (right && what == "churn") return churn(n);
  if (right && what == "many") return many(n);
  std::fprintf(stderr,
               "hybrid_soak: give 'churn [PAIRS]' or 'many [TIMERS]', with a number of 1000 or "
               "more\n");
  return 2;
}
