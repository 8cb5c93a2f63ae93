// SPDX-License-Identifier: Apache-2.0

// Timers of a runtime.

#include <verge/time.h>

#include <chrono>
#include <memory>
#include <utility>

#include "boundary.h"
#include "objects.h"

using std::chrono::nanoseconds;
using verge::c::call;
using verge::c::guarded;
using verge::c::read_options;
using verge::c::require;

namespace {

verge::timer_options options_of(const verge_timer_options& given) {
  return {.slack = nanoseconds(given.slack), .precise = given.precise != 0};
}

/// Longer than anything runs: the delay of a timer that is made and not started yet.
constexpr nanoseconds unset = nanoseconds::max();

/// Makes a timer with `make(timer, runtime or nullptr, callable)`, which is not due, and starts it
/// with `start(timer)`. The caller's pointer is set in between: the callback may use it.
template <class Make, class Start>
int start_timer(verge_timer** timer, verge_callback callback, void* argument,
                verge_callback destroy, const verge_timer_options* options, Make&& make,
                Start&& start) {
  return guarded([&] {
    require(timer != nullptr);
    const auto given = read_options(options);
    require(given.slack >= 0);
    require(given.missed_ticks >= VERGE_SKIP && given.missed_ticks <= VERGE_DELAY);
    call::start(callback, argument, destroy, [&](const call& c) {
      auto handle = std::make_unique<verge_timer>();
      handle->options = options_of(given);
      make(*handle, given.runtime != nullptr ? &given.runtime->it : nullptr,
           static_cast<verge::missed_ticks>(given.missed_ticks), c);
      verge_timer* const before = std::exchange(*timer, handle.get());
      try {
        start(*handle);
      } catch (...) {
        *timer = before;
        throw;
      }
      return handle.release();  // NOLINT: *timer owns it, and the callback may have freed it
    });
    return 0;
  });
}

void make_once(verge_timer& t, verge::runtime* rt, verge::missed_ticks /*policy*/, const call& c) {
  t.once = rt != nullptr ? verge::after_func(*rt, unset, c) : verge::after_func(unset, c);
}

void make_periodic(verge_timer& t, verge::runtime* rt, verge::missed_ticks policy, const call& c) {
  t.periodic = rt != nullptr ? verge::every(*rt, unset, c, policy, t.options)
                             : verge::every(unset, c, policy, t.options);
}

}  // namespace

extern "C" {

int verge_after(verge_timer** timer, int64_t delay, verge_callback callback, void* argument,
                verge_callback destroy, const verge_timer_options* options) {
  return start_timer(timer, callback, argument, destroy, options, make_once,
                     [&](verge_timer& t) { t.once.reset(nanoseconds(delay), t.options); });
}

int verge_at(verge_timer** timer, int64_t when, verge_callback callback, void* argument,
             verge_callback destroy, const verge_timer_options* options) {
  return start_timer(timer, callback, argument, destroy, options, make_once,
                     [&](verge_timer& t) { t.once.reset_at(verge::c::time_of(when), t.options); });
}

int verge_every(verge_timer** timer, int64_t period, verge_callback callback, void* argument,
                verge_callback destroy, const verge_timer_options* options) {
  return start_timer(timer, callback, argument, destroy, options, make_periodic,
                     [&](verge_timer& t) { t.periodic.reset(nanoseconds(period)); });
}

int verge_timer_stop(verge_timer* timer) {
  return guarded([&] {
    require(timer != nullptr);
    return static_cast<int>(timer->once ? timer->once.stop() : timer->periodic.stop());
  });
}

int verge_timer_reset(verge_timer* timer, int64_t delay) {
  return guarded([&] {
    require(timer != nullptr);
    return static_cast<int>(timer->once ? timer->once.reset(nanoseconds(delay), timer->options)
                                        : timer->periodic.reset(nanoseconds(delay)));
  });
}

int verge_timer_reset_at(verge_timer* timer, int64_t when) {
  return guarded([&] {
    require(timer != nullptr && timer->once);
    return static_cast<int>(timer->once.reset_at(verge::c::time_of(when), timer->options));
  });
}

int verge_timer_detach(verge_timer* timer) {
  return guarded([&] {
    require(timer != nullptr);
    if (timer->once) {
      timer->once.detach();
    } else {
      timer->periodic.detach();
    }
    delete timer;
    return 0;
  });
}

void verge_timer_free(verge_timer* timer) { delete timer; }

}  // extern "C"
