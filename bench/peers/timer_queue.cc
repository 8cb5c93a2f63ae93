// SPDX-License-Identifier: Apache-2.0

// verge::timer_queue: the queue of the hybrid engine alone, for existing event loops.

#include <verge/clock.h>
#include <verge/queue.h>
#include <verge/version.h>

#include "driver.h"
#include "linked.h"

namespace verge::bench {
namespace {

class timer_queue_adapter : public on_plain_threads {
 public:
  struct callback {
    appointment* a;
    void operator()() const { call(a); }
  };
  using queue = basic_timer_queue<callback, clock>;
  using handle = queue::id;
  static constexpr bool thread_safe = false;
  static constexpr bool has_loop = true;
  static constexpr const char* no_lateness = "a queue without a clock: its loop decides";

  explicit timer_queue_adapter(const setting& /*s*/) {}

  handle start(std::int64_t delay, appointment* a) { return queue_.start(after(delay), {a}); }
  void stop(handle& h) { queue_.stop(h); }
  void reset(handle& h, std::int64_t delay) {
    if (!queue_.reset(h, after(delay))) h = start(delay, nullptr);
  }
  void run_due(unsigned /*thread*/) { queue_.run(clock::now()); }
  void wait() { run_due(0); }

 private:
  static clock::time_point after(std::int64_t delay) {
    return clock::fast_now() + std::chrono::nanoseconds(delay);
  }

  queue queue_;
};

}  // namespace

linked_peer timer_queue_peer() {
  return {.version = std::string(version()), .run = &driver<timer_queue_adapter>::run};
}

}  // namespace verge::bench
