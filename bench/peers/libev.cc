// SPDX-License-Identifier: Apache-2.0

// libev: an ev_timer for each.
//
// The loop's time is that of its last turn: it is brought up to date before each operation. A
// time-out is extended with ev_timer_again, which its documentation calls the most efficient; that
// makes the timer a repeating one, so its callback stops it.

#include <ev.h>

#include <stdexcept>
#include <string>

#include "driver.h"
#include "linked.h"

namespace verge::bench {
namespace {

class libev_adapter : public on_plain_threads {
 public:
  using handle = ev_timer*;
  static constexpr bool thread_safe = false;
  static constexpr bool has_loop = true;
  static constexpr const char* no_lateness = nullptr;

  explicit libev_adapter(const setting& /*s*/) : loop_(ev_loop_new(EVFLAG_AUTO)) {
    if (loop_ == nullptr) throw std::runtime_error("libev cannot make a loop");
  }
  ~libev_adapter() { ev_loop_destroy(loop_); }
  libev_adapter(const libev_adapter&) = delete;
  libev_adapter& operator=(const libev_adapter&) = delete;

  handle start(std::int64_t delay, appointment* a) {
    auto* h = new ev_timer;
    ev_now_update(loop_);
    ev_timer_init(h, &libev_adapter::due, seconds(delay), 0.);
    h->data = a;
    ev_timer_start(loop_, h);
    return h;
  }
  void stop(handle& h) {
    if (h == nullptr) return;
    ev_timer_stop(loop_, h);
    delete h;
    h = nullptr;
  }
  void reset(handle& h, std::int64_t delay) {
    ev_now_update(loop_);
    h->repeat = seconds(delay);
    ev_timer_again(loop_, h);
  }
  void run_due(unsigned /*thread*/) { ev_run(loop_, EVRUN_NOWAIT); }
  void wait() { ev_run(loop_, EVRUN_ONCE); }

 private:
  static void due(struct ev_loop* loop, ev_timer* t, int /*events*/) {
    ev_timer_stop(loop, t);
    call(static_cast<appointment*>(t->data));
  }
  static double seconds(std::int64_t delay) { return static_cast<double>(delay) * 1e-9; }

  struct ev_loop* loop_;
};

}  // namespace

linked_peer libev_peer() {
  return {.version = std::to_string(ev_version_major()) + "." + std::to_string(ev_version_minor()),
          .run = &driver<libev_adapter>::run};
}

}  // namespace verge::bench
