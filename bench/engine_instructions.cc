// SPDX-License-Identifier: Apache-2.0

// The instruction counts of the engines by callgrind: a figure that does not depend on the load of
// the machine.
//
//   valgrind --tool=callgrind engine_instructions ENGINE [LIVE]
//
// makes dumps named start, stop, reset and fire, of a thousand operations each, among 1,000 live
// timers with deadlines of 1 to 61 s, in simulated time. With LIVE it is among that many, and none
// are fired. tests/instructions.sh runs it for all engines and compares with its bounds.

#include <valgrind/callgrind.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <verge/simulation.h>
#include <verge/time.h>

#include "peers/measure.h"

namespace {

using namespace std::chrono_literals;

constexpr std::size_t few = 1000;
constexpr std::size_t most = 10'000'000;
constexpr std::size_t batch = 100;
constexpr std::size_t operations = 1000;

/// Everything during its lifetime is counted, on any thread, and dumped under its name.
class counted {
 public:
  explicit counted(const char* name) : name_(name) { CALLGRIND_ZERO_STATS; }
  ~counted() { CALLGRIND_DUMP_STATS_AT(name_); }
  counted(const counted&) = delete;
  counted& operator=(const counted&) = delete;

 private:
  const char* name_;
};

std::uint64_t called = 0;

class timers {
 public:
  explicit timers(std::size_t live) : live_(live) {
    all_.reserve(live + batch);
    for (std::size_t i = 0; i < live; ++i) start();
  }

  void start_and_stop() {
    for (std::size_t done = 0; done < operations; done += batch) {
      {
        const counted c("start");
        for (std::size_t i = 0; i < batch; ++i) start();
      }
      // The ones to stop are chosen before: moving handles is not the engine's work.
      for (std::size_t i = 0; i < batch; ++i) {
        std::swap(all_[random_.below(live_)], all_[live_ + i]);
      }
      const counted c("stop");
      all_.resize(live_);
    }
  }
  void reset() {
    const counted c("reset");
    for (std::size_t i = 0; i < operations; ++i) {
      all_[random_.below(live_)].reset(std::chrono::nanoseconds(random_.delay()));
    }
  }
  static void fire(verge::simulation& sim) {
    const counted c("fire");
    sim.run_for(62s);
  }

 private:
  void start() {
    all_.push_back(verge::after_func(std::chrono::nanoseconds(random_.delay()), [] { ++called; }));
  }

  const std::size_t live_;
  verge::bench::random_numbers random_{1};
  std::vector<verge::timer> all_;
};

}  // namespace

int main(int argc, char** argv) {
  std::size_t live = few;
  if (argc == 3) live = std::strtoull(argv[2], nullptr, 10);
  if (argc < 2 || argc > 3 || live == 0 || live > most) {
    std::fprintf(stderr, "usage: valgrind --tool=callgrind %s ENGINE [LIVE, from 1 to %zu]\n",
                 argv[0], most);
    return 2;
  }
  try {
    verge::simulation sim{{.engine = verge::engine_named(argv[1])}};
    timers all(live);
    all.start_and_stop();
    all.reset();
    if (argc == 3) return 0;
    timers::fire(sim);
    if (called != live) {
      std::fprintf(stderr, "%llu of %zu timers have fired\n",
                   static_cast<unsigned long long>(called), live);
      return 1;
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "engine_instructions: %s\n", e.what());
    return 2;
  }
  return 0;
}
