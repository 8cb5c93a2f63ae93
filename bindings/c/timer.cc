// Timers of a runtime.

#include <verge/time.h>

#include <chrono>
#include <memory>

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

/// Starts a timer with `start(runtime or nullptr, options, callable)`, which returns its handle.
template <class Start>
int start_timer(verge_timer** timer, verge_callback callback, void* argument,
                verge_callback destroy, const verge_timer_options* options, Start&& start) {
  return guarded([&] {
    require(timer != nullptr);
    const auto given = read_options(options);
    require(given.slack >= 0);
    *timer = call::start(callback, argument, destroy, [&](const call& c) {
      auto* rt = given.runtime != nullptr ? &given.runtime->it : nullptr;
      // Allocated first: what may fail after the start would have to stop the timer.
      auto handle = std::make_unique<verge_timer>(verge::timer());
      start(*handle, rt, given, c);
      return handle.release();
    });
    return 0;
  });
}

}  // namespace

extern "C" {

int verge_after(verge_timer** timer, int64_t delay, verge_callback callback, void* argument,
                verge_callback destroy, const verge_timer_options* options) {
  const auto start = [&](verge_timer& t, verge::runtime* rt, const verge_timer_options& o,
                         const call& c) {
    const auto how = options_of(o);
    t.once = rt != nullptr ? verge::after_func(*rt, nanoseconds(delay), c, how)
                           : verge::after_func(nanoseconds(delay), c, how);
  };
  return start_timer(timer, callback, argument, destroy, options, start);
}

int verge_at(verge_timer** timer, int64_t when, verge_callback callback, void* argument,
             verge_callback destroy, const verge_timer_options* options) {
  const auto start = [&](verge_timer& t, verge::runtime* rt, const verge_timer_options& o,
                         const call& c) {
    const auto how = options_of(o);
    const auto at = verge::c::time_of(when);
    t.once = rt != nullptr ? verge::after_func(*rt, at, c, how) : verge::after_func(at, c, how);
  };
  return start_timer(timer, callback, argument, destroy, options, start);
}

int verge_every(verge_timer** timer, int64_t period, verge_callback callback, void* argument,
                verge_callback destroy, const verge_timer_options* options) {
  const auto start = [&](verge_timer& t, verge::runtime* rt, const verge_timer_options& o,
                         const call& c) {
    require(o.missed_ticks >= VERGE_SKIP && o.missed_ticks <= VERGE_DELAY);
    const auto missed = static_cast<verge::missed_ticks>(o.missed_ticks);
    const auto how = options_of(o);
    t.periodic = rt != nullptr ? verge::every(*rt, nanoseconds(period), c, missed, how)
                               : verge::every(nanoseconds(period), c, missed, how);
  };
  return start_timer(timer, callback, argument, destroy, options, start);
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
    return static_cast<int>(timer->once ? timer->once.reset(nanoseconds(delay))
                                        : timer->periodic.reset(nanoseconds(delay)));
  });
}

int verge_timer_reset_at(verge_timer* timer, int64_t when) {
  return guarded([&] {
    require(timer != nullptr && timer->once);
    return static_cast<int>(timer->once.reset_at(verge::c::time_of(when)));
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
