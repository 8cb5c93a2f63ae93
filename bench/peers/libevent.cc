// SPDX-License-Identifier: Apache-2.0

// libevent: an event for each, from event_new, with a time-out and no descriptor.
//
// Locks only where threads share the base. For lateness the base is made with
// EVENT_BASE_FLAG_PRECISE_TIMER; its clock costs more, so the other workloads go without. One
// thread at a time may run a base's loop: the first does.

#include <event2/event.h>
#include <event2/thread.h>

#include <memory>
#include <stdexcept>

#include "driver.h"
#include "linked.h"

namespace verge::bench {
namespace {

class libevent_adapter : public on_plain_threads {
 public:
  using handle = event*;
  static constexpr bool thread_safe = true;
  static constexpr bool has_loop = true;
  static constexpr const char* no_lateness = nullptr;

  explicit libevent_adapter(const setting& s) {
    if (s.shared) evthread_use_pthreads();
    const std::unique_ptr<event_config, void (*)(event_config*)> config(event_config_new(),
                                                                        &event_config_free);
    int flags = 0;
    if (!s.shared) flags |= EVENT_BASE_FLAG_NOLOCK;
    if (s.precise) flags |= EVENT_BASE_FLAG_PRECISE_TIMER;
    event_config_set_flag(config.get(), flags);
    base_.reset(event_base_new_with_config(config.get()));
    if (base_ == nullptr) throw std::runtime_error("libevent cannot make a base");
  }

  handle start(std::int64_t delay, appointment* a) {
    handle h = evtimer_new(
        base_.get(),
        [](evutil_socket_t, short, void* context) { call(static_cast<appointment*>(context)); }, a);
    reset(h, delay);
    return h;
  }
  void stop(handle& h) {
    if (h != nullptr) event_free(h);
    h = nullptr;
  }
  void reset(handle& h, std::int64_t delay) {
    const std::int64_t us = (delay + microsecond - 1) / microsecond;
    const timeval after{.tv_sec = us / 1'000'000, .tv_usec = us % 1'000'000};
    evtimer_add(h, &after);
  }
  void run_due(unsigned thread) {
    if (thread == 0) event_base_loop(base_.get(), EVLOOP_NONBLOCK);
  }
  void wait() { event_base_loop(base_.get(), EVLOOP_ONCE); }

 private:
  std::unique_ptr<event_base, void (*)(event_base*)> base_{nullptr, &event_base_free};
};

}  // namespace

linked_peer libevent_peer() {
  return {.version = event_get_version(), .run = &driver<libevent_adapter>::run};
}

}  // namespace verge::bench
