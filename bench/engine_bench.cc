// SPDX-License-Identifier: Apache-2.0

// Compares the engines on typical uses of timers. Prints Markdown tables.
//
//   engine_bench [--smallest=TIMERS] [--largest=TIMERS] [--rounds=ROUNDS] [--engines=NAME,NAME]
//                default: 1000, 1000000, 5, processor_heap,hybrid; sizes 1000, 100000, 1000000 ...
//
// Each operation is that of a handle (a callback that fits into the node, the clock read for every
// deadline) on a clockwork with the engine and no scheduler: what a firing makes ready is run at
// once. Deadlines are uniform in 1 to 61 s and n timers are live, unless noted otherwise.
//
//   start+stop    start a new timer, stop and destroy a random earlier one; ns per pair
//   reused        stop a random timer, and start it again by its handle; ns per pair
//   reset         pick a random live timer and give it a new deadline; ns
//   reset later   the same, to 61 s from now: an idle time-out that is postponed; ns
//   fill          n timers from nothing, memory included; ns per timer
//   bytes         the growth of the process over a fill, per timer
//   fire          n timers due within one second, all overdue; ns per callback
//   two threads   start+stop from one thread and from two, each with its own processor and 1,000
//                 or 100,000 timers; million pairs per second
//   each other's  two threads, each stops and restarts timers that the other has started
//   floor         the minimum for any timer: read the time stamp counter, pick a random handle,
//                 and swap a word on the line that it points to; ns. And for two timers, which is
//                 what start+stop touches: the new one's memory was freed at some earlier time
//   two to one    what two threads do in the time of one: the median of the rounds' ratios
//   longest       the longest single start, stop, reset or check of the timers in the above; us. A
//                 thread that loses its core shows here as well: the least of the rounds is shown
//
// Rounds are interleaved: each runs all engines, and the tables show medians over the rounds, so
// that a slow moment of the machine affects all engines.

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <clock/fast_clock.h>
#include <clock/true_clock.h>
#include <verge/detail/timer_functions.h>

#include "bare_host.h"
#include "peers/measure.h"
#include "standalone.h"

namespace {

using verge::detail::clockwork;
using verge::detail::timer_node;

using verge::bench::huge_allocator;
using verge::bench::median;
using verge::bench::option;
using verge::bench::random_numbers;
using verge::bench::resident_bytes;
using verge::bench::second;

thread_local unsigned this_processor = 0;

/// One engine; its clock is the real one plus what is skipped.
class bench_world final : public verge::bench::bare_host {
 public:
  /// `skips`: skip() will be called. Otherwise the timers read the clock as in a runtime.
  bench_world(verge::engine which, unsigned processors, bool skips = false)
      : bare_host(which, !skips) {
    engine().grow(processors);
  }
  ~bench_world() { end(); }
  void skip(std::int64_t d) { skipped_ += d; }

  std::int64_t now() noexcept override { return verge::detail::true_now() + skipped_; }
  std::int64_t cheap_now() noexcept override { return verge::detail::fast_clock::now() + skipped_; }
  unsigned home_processor() noexcept override { return this_processor; }
  void timer_fired(std::int64_t, std::int64_t) noexcept override {}

 private:
  std::int64_t skipped_ = 0;
};

struct callback {
  std::uint64_t* count;
  void operator()() const { ++*count; }
};
std::uint64_t called = 0;

/// Handles to n timers and the operations on them; the memory of the handles is not measured. On
/// separate cache lines: each thread has one.
class alignas(128) handles {
 public:
  handles(bench_world& world, std::size_t n, std::uint64_t seed)
      : timers_(world.timers()), random_(seed), nodes_(n, nullptr) {}
  ~handles() {
    for (timer_node* t : nodes_) {
      if (t != nullptr) verge::detail::destroy_timer(*t);
    }
  }
  handles(const handles&) = delete;
  handles& operator=(const handles&) = delete;

  std::size_t size() const { return nodes_.size(); }
  void fill(std::int64_t from = second, std::int64_t length = 60 * second) {
    for (timer_node*& t : nodes_) t = start(from + random_.within(length));
  }
  void start_stop() {
    timer_node*& t = any();
    timer_node* fresh = start(random_.delay());
    verge::detail::destroy_timer(*t);
    t = fresh;
  }
  void stop_start() {
    timer_node* const t = any();
    verge::detail::stop_timer(t);
    verge::detail::reset_timer_after(t, random_.delay());
  }
  void reset() { verge::detail::reset_timer_after(any(), random_.delay()); }
  void reset_later() { verge::detail::reset_timer_after(any(), 61 * second); }
  /// Stops and restarts a timer of another's.
  void restart_one_of(handles& other) {
    timer_node* t = other.any_but(random_);
    verge::detail::stop_timer(t);
    verge::detail::reset_timer_after(t, random_.delay());
  }

 private:
  timer_node* start(std::int64_t d) {
    return verge::detail::start_func_timer(timers_, d, callback{&called}, 0);
  }
  timer_node*& any() { return nodes_[random_.below(nodes_.size())]; }
  timer_node* any_but(random_numbers& random) { return nodes_[random.below(nodes_.size())]; }

  clockwork& timers_;
  random_numbers random_;
  std::vector<timer_node*, huge_allocator<timer_node*>> nodes_;
};

double read(clockid_t clock) {
  return static_cast<double>(verge::bench::read_clock(clock)) / static_cast<double>(second);
}

/// One thread is measured in processor time; two threads by the clock.
double seconds_of(const std::function<void()>& f, clockid_t clock = CLOCK_THREAD_CPUTIME_ID) {
  const double begin = read(clock);
  f();
  return read(clock) - begin;
}

/// As many operations as take a fraction of a second, but enough to reach all timers.
std::size_t operations_for(std::size_t n) { return std::max<std::size_t>(n, 500'000); }

void fire_all(bench_world& world, std::uint64_t until, double* longest = nullptr) {
  while (called < until) {
    const double begin = longest == nullptr ? 0 : read(CLOCK_THREAD_CPUTIME_ID);
    world.timers().its_engine().check_timers(0, world.now(), true);
    const double took = longest == nullptr ? 0 : (read(CLOCK_THREAD_CPUTIME_ID) - begin) * 1e6;
    if (longest != nullptr) *longest = std::max(*longest, took);
  }
}

/// See above: in place of a timer there is a line with a word. For `lines_each` of them.
double floor_of(std::size_t n, int lines_each) {
  struct alignas(64) line {
    std::atomic<std::uint64_t> word;
  };
  random_numbers random(n);
  std::vector<line, huge_allocator<line>> lines(n);
  std::vector<line*, huge_allocator<line*>> handles(n);
  for (std::size_t i = 0; i < n; ++i) handles[i] = &lines[i];
  for (std::size_t i = n; i > 1; --i) std::swap(handles[i - 1], handles[random.below(i)]);
  const std::size_t k = operations_for(n);
  const auto work = [&] {
    for (std::size_t i = 0; i < k; ++i) {
      const auto now = static_cast<std::uint64_t>(verge::detail::fast_clock::now());
      for (int each = 0; each < lines_each; ++each) {
        auto& word = handles[random.below(n)]->word;
        std::uint64_t was = word.load(std::memory_order_relaxed);
        word.compare_exchange_strong(was, now);
      }
    }
  };
  work();
  return seconds_of(work) * 1e9 / static_cast<double>(k);
}

/// One engine's figures at one number of timers, of one round.
struct figures {
  double fill, bytes, start_stop, reused, reset, reset_later, fire;
  double longest_operation, longest_look;
};

figures measure(verge::engine which, std::size_t n) {
  figures f{};
  {
    bench_world world(which, 1);
    handles all(world, n, n);
    const std::size_t before = resident_bytes();
    f.fill = seconds_of([&] { all.fill(); }) * 1e9 / static_cast<double>(n);
    f.bytes = static_cast<double>(resident_bytes() - before) / static_cast<double>(n);
    const std::size_t k = operations_for(n);
    const auto per = [&](const std::function<void()>& work) {
      // To warm the caches, and until most timers find an entry that they can use again.
      for (int warm = 0; warm < 5; ++warm) work();
      return seconds_of(work) * 1e9 / static_cast<double>(k);
    };
    f.start_stop = per([&] {
      for (std::size_t i = 0; i < k; ++i) all.start_stop();
    });
    f.reused = per([&] {
      for (std::size_t i = 0; i < k; ++i) all.stop_start();
    });
    f.reset_later = per([&] {
      for (std::size_t i = 0; i < k; ++i) all.reset_later();
    });
    f.reset = per([&] {
      for (std::size_t i = 0; i < k; ++i) all.reset();
    });
    for (std::size_t i = 0; i < k; ++i) {
      const double begin = read(CLOCK_THREAD_CPUTIME_ID);
      if (i % 2 == 0) {
        all.start_stop();
      } else {
        all.reset();
      }
      const double took = (read(CLOCK_THREAD_CPUTIME_ID) - begin) * 1e6;
      f.longest_operation = std::max(f.longest_operation, took);
    }
  }
  {
    // Few timers are fired several times over.
    bench_world world(which, 1, true);
    const std::size_t times = std::max<std::size_t>(1, 100'000 / n);
    double took = 0;
    for (std::size_t i = 0; i < times; ++i) {
      handles all(world, n, n + i);
      all.fill(1, second);
      world.skip(2 * second);
      took += seconds_of([&] { fire_all(world, called + n, &f.longest_look); });
    }
    f.fire = took * 1e9 / static_cast<double>(n * times);
  }
  return f;
}

/// Million pairs per second.
double in_threads(verge::engine which, std::size_t n, unsigned threads, bool each_others) {
  bench_world world(which, 2);
  std::vector<std::unique_ptr<handles>> all;
  for (unsigned i = 0; i < threads; ++i) {
    this_processor = i;
    all.push_back(std::make_unique<handles>(world, n, i + 1));
    all.back()->fill();
  }
  this_processor = 0;
  constexpr std::size_t k = 1'000'000;
  const auto work = [&](unsigned i) {
    this_processor = i;
    for (std::size_t j = 0; j < k; ++j) {
      if (each_others) {
        all[i]->restart_one_of(*all[threads - 1 - i]);
      } else {
        all[i]->start_stop();
      }
    }
  };
  const double took = seconds_of(
      [&] {
        std::vector<std::thread> running;
        for (unsigned i = 1; i < threads; ++i) running.emplace_back(work, i);
        work(0);
        for (auto& t : running) t.join();
      },
      CLOCK_MONOTONIC);
  this_processor = 0;
  return static_cast<double>(k) * threads / took * 1e-6;
}

void row(const char* what, const std::vector<std::vector<figures>>& of, double figures::*which,
         bool least = false) {
  std::printf("| %s |", what);
  for (const auto& rounds : of) {
    std::vector<double> values;
    for (const figures& f : rounds) values.push_back(f.*which);
    std::printf(" %.1f |",
                least ? *std::min_element(values.begin(), values.end()) : median(values));
  }
  std::printf("\n");
}

void heading(const std::string& what, const std::vector<verge::engine>& engines) {
  std::printf("\n| %s |", what.c_str());
  for (const auto e : engines) std::printf(" %s |", std::string(verge::name_of(e)).c_str());
  std::printf("\n|---|");
  for (std::size_t i = 0; i < engines.size(); ++i) std::printf("---|");
  std::printf("\n");
}

void run(const std::vector<verge::engine>& engines, std::size_t smallest, std::size_t largest,
         int rounds) {
  for (std::size_t n = 1000; n <= largest; n *= n == 1000 ? 100 : 10) {
    if (n < smallest) continue;
    std::vector<std::vector<figures>> of(engines.size());
    std::vector<double> floors;
    std::vector<double> floors_of_two;
    for (int r = 0; r < rounds; ++r) {
      floors.push_back(floor_of(n, 1));
      floors_of_two.push_back(floor_of(n, 2));
      for (std::size_t e = 0; e < engines.size(); ++e) of[e].push_back(measure(engines[e], n));
    }
    heading(std::to_string(n) + " timers", engines);
    row("start+stop, ns", of, &figures::start_stop);
    row("reused, ns", of, &figures::reused);
    row("reset, ns", of, &figures::reset);
    row("reset later, ns", of, &figures::reset_later);
    row("fill, ns", of, &figures::fill);
    row("bytes per timer", of, &figures::bytes);
    row("fire, ns", of, &figures::fire);
    row("longest operation, us", of, &figures::longest_operation, true);
    row("longest look, us", of, &figures::longest_look, true);
    std::printf("floor: %.1f ns; of two: %.1f ns\n", median(floors), median(floors_of_two));
    std::fflush(stdout);
  }
  heading("million pairs per second", engines);
  for (const std::size_t each : {std::size_t{1000}, std::size_t{100'000}}) {
    struct pairs {
      std::vector<double> one, two, each_others, ratio;
    };
    std::vector<pairs> of(engines.size());
    for (int r = 0; r < rounds; ++r) {
      for (std::size_t e = 0; e < engines.size(); ++e) {
        of[e].one.push_back(in_threads(engines[e], each, 1, false));
        of[e].two.push_back(in_threads(engines[e], each, 2, false));
        of[e].each_others.push_back(in_threads(engines[e], each, 2, true));
        of[e].ratio.push_back(of[e].two.back() / of[e].one.back());
      }
    }
    const auto print = [&](const std::string& what, std::vector<double> pairs::*which) {
      std::printf("| %s, %zu timers each |", what.c_str(), each);
      for (const pairs& p : of) std::printf(" %.2f |", median(p.*which));
      std::printf("\n");
    };
    print("one thread", &pairs::one);
    print("two threads", &pairs::two);
    print("two to one", &pairs::ratio);
    print("two threads, each other's", &pairs::each_others);
  }
}

bool names(std::string_view argument, std::vector<verge::engine>& engines) {
  constexpr std::string_view name = "--engines=";
  if (!argument.starts_with(name)) return false;
  argument.remove_prefix(name.size());
  engines.clear();
  while (!argument.empty()) {
    const auto comma = std::min(argument.find(','), argument.size());
    engines.push_back(verge::engine_named(argument.substr(0, comma)));
    argument.remove_prefix(std::min(comma + 1, argument.size()));
  }
  return !engines.empty();
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t smallest = 1000;
  std::size_t largest = 1'000'000;
  int rounds = 5;
  std::vector<verge::engine> engines = {verge::engine::processor_heap, verge::engine::hybrid};
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    // ./dev bench passes the same arguments to every program; these are for the others.
    if (argument.starts_with("--benchmark_")) continue;
    try {
      if (option(argument, "--smallest=", smallest) || option(argument, "--largest=", largest) ||
          option(argument, "--rounds=", rounds) || names(argument, engines)) {
        continue;
      }
    } catch (const std::exception& e) {
      std::fprintf(stderr, "engine_bench: %s\n", e.what());
      return 2;
    }
    std::fprintf(
        stderr,
        "engine_bench: cannot use '%s'; give --smallest=TIMERS, --largest=TIMERS (1000 or more), "
        "--rounds=ROUNDS and --engines=NAME,NAME, or nothing\n",
        argv[i]);
    return 2;
  }
  run(engines, smallest, largest, rounds);
  return 0;
}
