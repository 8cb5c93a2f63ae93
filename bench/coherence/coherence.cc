// SPDX-License-Identifier: Apache-2.0

// How many cache lines an operation on timers fetches from other cores, for any number of cores,
// counted on a machine that has few.
//
//   coherence [--engines=NAME,..] [--cores=N,..] [--hot] [--check]
//
// The cores take turns, on one thread; the engines are compiled so that every access of theirs is
// told to a model of private caches (caches.h has what that is and what it is not), except those to
// the stack and to thread_local variables, which each core would have for itself. Each core has a
// processor of its own and a hundred timers there.
//
//   put off      reset an own timer to a later time
//   start+stop   start a timer, stop and destroy an earlier one of its own
//   neighbour's  stop a timer that the next core has put off last, and start it again
//   sleep        read the first time of every processor, as a worker does before it sleeps, after
//                each core has started a timer that comes first
//   steal        look at every processor's run queue, after each core has run a task
//   again        the sum of both, once more by the same core, when nothing has changed
//
// The last three are per look and not per core: such a look costs at most so much for each
// processor that has changed since this core looked last, and nothing for the others.
//
// --hot shows the code that causes most transfers. --check fails if hybrid exceeds its bounds.

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <latch>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <clock/fast_clock.h>
#include <clock/true_clock.h>
#include <engine/hybrid.h>
#include <memory/thread_slot.h>
#include <verge/detail/timer_functions.h>
#include <verge/runtime.h>

#include "../bare_host.h"
#include "caches.h"
#include "run_queues.h"

namespace {

using verge::coherence::caches;
using verge::detail::timer_node;

constexpr std::int64_t second = 1'000'000'000;
constexpr std::size_t timers_per_core = 100;
constexpr unsigned own_at_a_turn = 64;

thread_local unsigned this_processor = 0;

class world final : public verge::bench::bare_host {
 public:
  world(verge::engine which, unsigned processors) : bare_host(which, true) {
    engine().grow(processors);
  }
  ~world() { end(); }

  std::int64_t now() noexcept override { return verge::detail::true_now(); }
  std::int64_t cheap_now() noexcept override { return verge::detail::fast_clock::now(); }
  unsigned home_processor() noexcept override { return this_processor; }
  void timer_fired(std::int64_t, std::int64_t) noexcept override {}
};

/// The cores, which take turns on one thread: that is a core's thread while it has the core's
/// number among the threads (memory/thread_slot.h). The threads from which it has these numbers do
/// nothing.
class crew {
 public:
  explicit crew(unsigned n) : slots_(n), here_(n + 1) {
    for (unsigned i = 0; i < n; ++i) {
      threads_.emplace_back([this, i] {
        slots_[i] = verge::detail::take_thread_slot();
        here_.arrive_and_wait();
        over_.wait(false);
      });
    }
    here_.arrive_and_wait();
  }
  ~crew() {
    over_ = true;
    over_.notify_all();
    for (auto& t : threads_) t.join();
  }
  crew(const crew&) = delete;
  crew& operator=(const crew&) = delete;

  /// f(core) for each core, one after the other. Accesses count if `counted`.
  void each(bool counted, const std::function<void(unsigned)>& f) {
    const std::uint32_t own = verge::detail::this_thread_slot;
    for (unsigned i = 0; i < slots_.size(); ++i) {
      verge::detail::this_thread_slot = slots_[i];
      this_processor = i;
      if (counted) verge::coherence::this_core = static_cast<int>(i);
      f(i);
      verge::coherence::this_core = -1;
    }
    verge::detail::this_thread_slot = own;
  }

 private:
  std::vector<std::uint32_t> slots_;
  std::latch here_;
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

struct figures {
  double put_off, start_stop, neighbour, sleep, steal, again;
};

/// Its own line, and its own choice of timers: the harness adds no sharing.
struct alignas(128) core_state {
  std::vector<timer_node*> timers;
  std::size_t next = 0;
  timer_node*& any() { return timers[next++ % timers.size()]; }
};

void report_hot(const caches& model, const char* what, std::uint64_t operations) {
  std::map<std::string, std::uint64_t> by_name;
  for (const auto& [code, n] : model.by_code()) {
    Dl_info info{};
    const bool known = ::dladdr(code, &info) != 0 && info.dli_sname != nullptr;
    by_name[known ? info.dli_sname : "?"] += n;
  }
  std::vector<std::pair<std::uint64_t, std::string>> sorted;
  for (const auto& [name, n] : by_name) sorted.emplace_back(n, name);
  std::sort(sorted.rbegin(), sorted.rend());
  std::printf("  %s, transfers per operation by code:\n", what);
  for (std::size_t i = 0; i < sorted.size() && i < 5; ++i) {
    std::printf("    %8.3f  %s\n",
                static_cast<double>(sorted[i].first) / static_cast<double>(operations),
                sorted[i].second.c_str());
  }
}

figures measure(verge::engine which, unsigned cores, bool hot) {
  caches model;
  verge::coherence::current = &model;
  world w(which, cores);
  std::vector<core_state> all(cores);
  figures got{};
  {
    crew threads(cores);
    const auto start = [&](std::int64_t delay) {
      return verge::detail::start_func_timer(
          w.timers(), delay, [] {}, 0);
    };
    // Everything once, not counted as figures but told to the model: caches are warm.
    threads.each(true, [&](unsigned i) {
      for (std::size_t n = 0; n < timers_per_core; ++n) {
        all[i].timers.push_back(start(second * static_cast<std::int64_t>(20 + n)));
      }
    });
    // Long enough for the looks at the sums of all threads to come up twice (engine/hybrid.h),
    // where only own timers are used in many operations at a turn: these meet no other core's.
    const auto long_enough = static_cast<unsigned>(
        2 * verge::detail::hybrid::stops_per_look(cores, cores) / own_at_a_turn + 1);
    // `before` is made by all cores before each round, and not counted.
    const auto count = [&](const char* what, const std::function<void(unsigned)>& operation,
                           const std::function<void(unsigned)>& before = nullptr) {
      const unsigned rounds = before ? 20 : long_enough;
      std::uint64_t transfers = 0;
      for (unsigned r = 0; r < rounds + 5; ++r) {
        if (before) threads.each(true, before);
        if (r <= 5 || before) model.begin();
        threads.each(true, operation);
        if (r >= 5 && before) transfers += model.transfers();
      }
      if (!before) transfers = model.transfers();
      const std::uint64_t operations = std::uint64_t{rounds} * cores * (before ? 1 : own_at_a_turn);
      if (hot) report_hot(model, what, before ? cores : operations);
      return static_cast<double>(transfers) / static_cast<double>(operations);
    };
    got.put_off = count("put off", [&](unsigned i) {
      for (unsigned n = 0; n < own_at_a_turn; ++n) {
        verge::detail::reset_timer_after(all[i].any(), 150 * second);
      }
    });
    const auto start_stop = [&](unsigned i) {
      for (unsigned n = 0; n < own_at_a_turn; ++n) {
        timer_node*& t = all[i].any();
        timer_node* const fresh = start(160 * second);
        verge::detail::destroy_timer(*t);
        t = fresh;
      }
    };
    got.start_stop = count("start+stop", start_stop);
    // The owner has used it last.
    got.neighbour = count(
        "neighbour's",
        [&](unsigned i) {
          core_state& other = all[(i + 1) % cores];
          timer_node* const t = other.timers[other.next % timers_per_core];
          verge::detail::stop_timer(t);
          verge::detail::reset_timer_after(t, 170 * second);
        },
        [&](unsigned i) {
          ++all[i].next;
          verge::detail::reset_timer_after(all[i].timers[all[i].next % timers_per_core],
                                           180 * second);
        });
    // One look in a round, by each core in turn, and the same once more.
    constexpr unsigned rounds = 20;
    std::uint64_t again = 0;
    const auto looks = [&](const std::function<void(unsigned, unsigned)>& change,
                           const std::function<void(unsigned)>& look) {
      std::uint64_t first = 0;
      for (unsigned r = 0; r < rounds; ++r) {
        threads.each(true, [&](unsigned i) { change(i, r); });
        for (std::uint64_t* sum : {&first, &again}) {
          const std::uint64_t before = model.transfers();
          threads.each(true, [&](unsigned i) {
            if (i == r % cores) look(i);
          });
          *sum += model.transfers() - before;
        }
      }
      return static_cast<double>(first) / rounds;
    };
    got.sleep = looks(
        [&](unsigned i, unsigned r) {
          all[i].timers.push_back(start(15 * second - second / 100 * static_cast<std::int64_t>(r)));
        },
        [&](unsigned) {
          for (unsigned p = 0; p < cores; ++p) w.engine().next_when(p);
        });
    verge::coherence::run_queues queues(cores);
    got.steal = looks([&](unsigned i, unsigned) { queues.run_a_task(i); },
                      [&](unsigned i) { queues.steal(i); });
    got.again = static_cast<double>(again) / rounds;
    threads.each(false, [&](unsigned i) {
      for (timer_node* t : all[i].timers) verge::detail::destroy_timer(*t);
    });
  }
  return got;
}

std::vector<std::string_view> parts(std::string_view list) {
  std::vector<std::string_view> all;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    all.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return all;
}

/// What the documents promise of the default engine.
bool within_bounds(const std::map<unsigned, figures>& by_cores) {
  bool good = true;
  const auto hold = [&](bool condition, const char* what, unsigned cores, double is) {
    if (condition) return;
    std::printf("NOT HELD: %s at %u cores: %.3f\n", what, cores, is);
    good = false;
  };
  for (const auto& [cores, f] : by_cores) {
    hold(f.put_off <= 0.1, "put off an own timer: at most 0.1", cores, f.put_off);
    hold(f.start_stop <= 0.1, "start and stop an own timer: at most 0.1", cores, f.start_stop);
    hold(f.neighbour <= 1.2, "stop and restart a neighbour's: at most 1.2", cores, f.neighbour);
    const double others = cores - 1;
    hold(f.sleep <= 1.1 * others, "before a sleep: at most 1.1 for each that changed", cores,
         f.sleep);
    hold(f.steal <= 2.2 * others, "to steal: at most 2.2 for each that changed", cores, f.steal);
    hold(f.again <= 0.1, "the same look again: nothing", cores, f.again);
  }
  if (by_cores.contains(8) && by_cores.contains(64)) {
    const double growth = by_cores.at(64).neighbour / by_cores.at(8).neighbour;
    hold(growth <= 1.1, "growth from 8 to 64: at most a tenth", 64, growth);
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  // Not the simple wheel: its span is shorter than the delays here.
  constexpr std::array engines{verge::engine::hybrid, verge::engine::processor_heap,
                               verge::engine::sharded_heap, verge::engine::global_heap,
                               verge::engine::timing_wheel};
  std::vector<unsigned> cores{1, 2, 8, 64, 256};
  std::string_view only;
  bool hot = false;
  bool check = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view a = argv[i];
    if (a == "--hot") {
      hot = true;
    } else if (a == "--check") {
      check = true;
    } else if (a.starts_with("--engines=")) {
      only = a.substr(10);
    } else if (a.starts_with("--cores=")) {
      cores.clear();
      for (const std::string_view n : parts(a.substr(8))) {
        unsigned value = 0;
        std::from_chars(n.data(), n.data() + n.size(), value);
        if (value < 1 || value > verge::coherence::most_cores) {
          std::fprintf(stderr, "coherence: --cores takes numbers from 1 to 256\n");
          return 2;
        }
        cores.push_back(value);
      }
    } else {
      std::fprintf(stderr, "coherence: there is no option '%s'\n", argv[i]);
      return 2;
    }
  }
  bool good = true;
  std::printf("| engine | cores | put off | start+stop | neighbour's | sleep | steal | again |\n");
  std::printf("|---|---:|---:|---:|---:|---:|---:|---:|\n");
  for (const verge::engine e : engines) {
    const std::vector<std::string_view> chosen = parts(only);
    if (!only.empty() && std::find(chosen.begin(), chosen.end(), name_of(e)) == chosen.end()) {
      continue;
    }
    std::map<unsigned, figures> by_cores;
    for (const unsigned n : cores) {
      const figures f = by_cores[n] = measure(e, n, hot);
      std::printf("| %s | %u | %.3f | %.3f | %.3f | %.1f | %.1f | %.1f |\n",
                  std::string(name_of(e)).c_str(), n, f.put_off, f.start_stop, f.neighbour, f.sleep,
                  f.steal, f.again);
      std::fflush(stdout);
    }
    if (check && e == verge::engine::hybrid) good = within_bounds(by_cores);
  }
  return good ? 0 : 1;
}
