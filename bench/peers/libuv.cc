// SPDX-License-Identifier: Apache-2.0

// libuv: a uv_timer_t for each.
//
// A handle's memory may be freed only after uv_close and a turn of the loop, so a stopped timer is
// kept and restarted as the next one, as the documentation allows. The loop's time is that of its
// last turn: it is brought up to date before each operation. It counts in milliseconds and rounds
// down, so a delay is rounded up and gets one more: then it is never early. Where precision counts
// the deadline itself is rounded up instead, for which the clock is read once more.

#include <uv.h>

#include <stdexcept>
#include <vector>

#include "driver.h"
#include "linked.h"

namespace verge::bench {
namespace {

class libuv_adapter : public on_plain_threads {
 public:
  using handle = uv_timer_t*;
  static constexpr bool thread_safe = false;
  static constexpr bool has_loop = true;
  static constexpr const char* no_lateness = nullptr;

  explicit libuv_adapter(const setting& s) : precise_(s.precise) {
    if (uv_loop_init(&loop_) != 0) throw std::runtime_error("libuv cannot make a loop");
  }
  ~libuv_adapter() {
    uv_walk(
        &loop_,
        [](uv_handle_t* h, void*) {
          uv_close(h, [](uv_handle_t* closed) { delete reinterpret_cast<uv_timer_t*>(closed); });
        },
        nullptr);
    uv_run(&loop_, UV_RUN_DEFAULT);
    uv_loop_close(&loop_);
  }
  libuv_adapter(const libuv_adapter&) = delete;
  libuv_adapter& operator=(const libuv_adapter&) = delete;

  handle start(std::int64_t delay, appointment* a) {
    handle h = take();
    h->data = a;
    reset(h, delay);
    return h;
  }
  void stop(handle& h) {
    if (h == nullptr) return;
    uv_timer_stop(h);
    stopped_.push_back(h);
    h = nullptr;
  }
  void reset(handle& h, std::int64_t delay) {
    uv_update_time(&loop_);
    uv_timer_start(
        h, [](uv_timer_t* t) { call(static_cast<appointment*>(t->data)); }, in_loop_time(delay), 0);
  }
  void run_due(unsigned /*thread*/) { uv_run(&loop_, UV_RUN_NOWAIT); }
  void wait() { uv_run(&loop_, UV_RUN_ONCE); }

 private:
  std::uint64_t in_loop_time(std::int64_t delay) const {
    if (!precise_) return milliseconds_up(delay) + 1;
    return milliseconds_up(now() + delay) - uv_now(&loop_);
  }
  static std::uint64_t milliseconds_up(std::int64_t ns) {
    return static_cast<std::uint64_t>((ns + millisecond - 1) / millisecond);
  }
  handle take() {
    if (!stopped_.empty()) {
      handle h = stopped_.back();
      stopped_.pop_back();
      return h;
    }
    auto* h = new uv_timer_t;
    uv_timer_init(&loop_, h);
    return h;
  }

  bool precise_;
  uv_loop_t loop_{};
  std::vector<handle> stopped_;
};

}  // namespace

linked_peer libuv_peer() {
  return {.version = uv_version_string(), .run = &driver<libuv_adapter>::run};
}

}  // namespace verge::bench
