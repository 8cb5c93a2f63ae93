// SPDX-License-Identifier: Apache-2.0

// verge itself: a runtime with the requested engine, and handles, as in a program.
//
// The workload runs as a task of the runtime, as goroutines do on Go's side; callbacks run on
// whichever processor finds them due. There are as many processors as cores, as by default.

#include <algorithm>
#include <chrono>
#include <thread>

#include <verge/runtime.h>
#include <verge/time.h>
#include <verge/version.h>

#include "driver.h"
#include "linked.h"

namespace verge::bench {
namespace {

class verge_adapter {
 public:
  using handle = verge::timer;
  static constexpr bool thread_safe = true;
  static constexpr bool has_loop = false;
  static constexpr const char* no_lateness = nullptr;

  explicit verge_adapter(const setting& s)
      : runtime_({.processors = std::max(std::thread::hardware_concurrency(), s.threads),
                  .engine = which}) {}

  handle start(std::int64_t delay, appointment* a) {
    return verge::after_func(
        std::chrono::nanoseconds(delay), [a] { call(a); }, options);
  }
  void stop(handle& h) { h = handle(); }
  void reset(handle& h, std::int64_t delay) { h.reset(std::chrono::nanoseconds(delay)); }
  void run_due(unsigned /*thread*/) {}

  template <class F>
  void enter(F f) {
    runtime_.run(f);
  }
  template <class F>
  void in_threads(unsigned n, F f) {
    using running = decltype(runtime_.spawn([] {}));
    std::vector<running> others;
    for (unsigned i = 0; i < n; ++i) others.push_back(runtime_.spawn([&f, i] { f(i); }));
    for (running& r : others) r.join();
  }

  /// Of all instances: one process measures one engine and one kind of timers.
  static inline engine which{};
  static inline timer_options options{};

 private:
  runtime runtime_;
};

}  // namespace

linked_peer verge_peer(engine which) {
  return {.version = std::string(version()), .run = [which](const request& r) {
            verge_adapter::which = which;
            verge_adapter::options = {};
            return driver<verge_adapter>::run(r);
          }};
}

linked_peer precise_peer() {
  return {.version = std::string(version()), .run = [](const request& r) {
            if (!r.workload.starts_with("lateness_")) {
              throw unsupported("precise timers differ in lateness only");
            }
            verge_adapter::which = engine::hybrid;
            verge_adapter::options = {.precise = true};
            return driver<verge_adapter>::run(r);
          }};
}

}  // namespace verge::bench
