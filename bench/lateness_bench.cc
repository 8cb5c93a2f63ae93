// SPDX-License-Identifier: Apache-2.0

// How late timers are, and what that costs: a thousand a second, one at a time.
//
//   lateness_bench [--firings=N] [--rounds=ROUNDS] [--busy=THREADS]     default: 2000, 3, 0
//
//   bare       a loop of epoll_pwait2 with a timer slack of 1 ns: what the kernel gives
//   ordinary   after_func, reset by its callback
//   precise    the same with timer_options{.precise = true}
//   realtime   both in a runtime with runtime_options{.realtime = 10}, where the process may
//
// Each line has the lateness at the callback in microseconds, the share below 1 us, and the
// processor time of the process, in the kernel too, per firing and as a share of one core. `busy`
// threads compute meanwhile; their time is not counted. Rounds are interleaved and all are printed.

#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <semaphore>
#include <string_view>
#include <thread>
#include <vector>

#include <verge/runtime.h>
#include <verge/time.h>

#include "peers/kernel_sleeper.h"
#include "peers/measure.h"
#include "standalone.h"

namespace {

using verge::bench::millisecond;
using verge::bench::now;
using verge::bench::option;

/// The times at which timers are due do not fall into step with the kernel's ticks.
std::int64_t due_after(std::size_t i) {
  return now() + millisecond + static_cast<std::int64_t>(i * 7919 % 1000);
}

/// Threads that compute, and how much processor time they have had.
class busy_threads {
 public:
  explicit busy_threads(int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this] {
        while (!end_.load(std::memory_order_relaxed)) {
          for (int n = 0; n < 100'000; ++n) std::atomic_signal_fence(std::memory_order_seq_cst);
        }
        used_ += verge::bench::read_clock(CLOCK_THREAD_CPUTIME_ID);
      });
    }
  }
  ~busy_threads() { end(); }
  busy_threads(const busy_threads&) = delete;
  busy_threads& operator=(const busy_threads&) = delete;

  /// Ends them. Returns their processor time.
  std::int64_t end() {
    end_ = true;
    for (auto& t : threads_) t.join();
    threads_.clear();
    return used_;
  }

 private:
  std::vector<std::thread> threads_;
  std::atomic<bool> end_{false};
  std::atomic<std::int64_t> used_{0};
};

template <class F>
void measure(const char* what, int busy, F f) {
  busy_threads others(busy);
  const std::int64_t begin = now();
  const std::int64_t used_before = verge::bench::processor_time();
  std::vector<std::int64_t> late = f();
  const std::int64_t wall = now() - begin;
  const std::int64_t theirs = others.end();
  const std::int64_t used = verge::bench::processor_time() - used_before - theirs;
  std::sort(late.begin(), late.end());
  const auto n = static_cast<double>(late.size());
  const auto at = [&](double share) {
    return static_cast<double>(late[static_cast<std::size_t>(share * (n - 1))]) / 1e3;
  };
  const auto below = std::lower_bound(late.begin(), late.end(), 1000) - late.begin();
  std::printf("| %-18s | %8.2f | %8.2f | %9.2f | %9.0f | %5.1f %% | %6.1f | %5.2f %% |%s\n", what,
              at(0.5), at(0.9), at(0.99), at(1), 100.0 * static_cast<double>(below) / n,
              static_cast<double>(used) / n / 1e3,
              100.0 * static_cast<double>(used) / static_cast<double>(wall),
              late.front() < 0 ? " EARLY" : "");
  std::fflush(stdout);
}

std::vector<std::int64_t> bare(std::size_t firings) {
  const verge::bench::kernel_sleeper kernel;
  std::vector<std::int64_t> late;
  for (std::size_t i = 0; i < firings; ++i) {
    const std::int64_t due = due_after(i);
    kernel.sleep_until(due);
    late.push_back(now() - due);
  }
  return late;
}

/// A timer whose callback arms it again.
class chain {
 public:
  chain(verge::runtime& rt, std::size_t firings, bool precise)
      : firings_(firings), options_{.precise = precise}, due_(due_after(0)) {
    late_.reserve(firings);
    timer_ = verge::after_func(
        rt, at(due_), [this] { fire(); }, options_);
  }
  std::vector<std::int64_t> wait() {
    done_.acquire();
    return late_;
  }

 private:
  static verge::time_point at(std::int64_t t) {
    return verge::time_point(std::chrono::nanoseconds(t));
  }
  void fire() {
    late_.push_back(now() - due_);
    if (late_.size() == firings_) return done_.release();
    due_ = due_after(late_.size());
    timer_.reset_at(at(due_), options_);
  }

  const std::size_t firings_;
  const verge::timer_options options_;
  std::int64_t due_;
  std::vector<std::int64_t> late_;
  std::binary_semaphore done_{0};
  verge::timer timer_;
};

void run(std::size_t firings, int rounds, int busy) {
  ::prctl(PR_SET_TIMERSLACK, 1);
  verge::runtime plain;
  verge::runtime realtime{{.realtime = 10}};
  std::printf("| lateness, us | p50 | p90 | p99 | most | below 1 | us each | of a core |\n");
  std::printf("|---|---:|---:|---:|---:|---:|---:|---:|\n");
  for (int r = 0; r < rounds; ++r) {
    measure("bare", busy, [&] { return bare(firings); });
    measure("ordinary", busy, [&] { return chain(plain, firings, false).wait(); });
    measure("precise", busy, [&] { return chain(plain, firings, true).wait(); });
    measure("ordinary, realtime", busy, [&] { return chain(realtime, firings, false).wait(); });
    measure("precise, realtime", busy, [&] { return chain(realtime, firings, true).wait(); });
  }
  const auto s = plain.stats();
  std::printf("a thread aims early by %.0f us, and waited awake for %.1f us of each timer\n",
              static_cast<double>(s.precise_lead.count()) / 1e3,
              static_cast<double>(s.precise_waits.count()) / 1e3 /
                  static_cast<double>(firings * static_cast<std::size_t>(rounds)));
  if (!realtime.stats().realtime) std::printf("real-time priority was refused\n");
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t firings = 2000;
  int rounds = 3;
  int busy = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    // ./dev bench passes the same arguments to every program; these are for the others.
    if (argument.starts_with("--benchmark_")) continue;
    try {
      if (option(argument, "--firings=", firings) || option(argument, "--rounds=", rounds) ||
          option(argument, "--busy=", busy)) {
        continue;
      }
    } catch (const std::exception& e) {
      std::fprintf(stderr, "lateness_bench: %s\n", e.what());
      return 2;
    }
    std::fprintf(stderr,
                 "lateness_bench: cannot use '%s'; give --firings=N, --rounds=ROUNDS and "
                 "--busy=THREADS, or nothing\n",
                 argv[i]);
    return 2;
  }
  run(std::max<std::size_t>(firings, 1), rounds, busy);
  return 0;
}
