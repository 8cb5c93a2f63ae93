// SPDX-License-Identifier: Apache-2.0

#include <sched/monitor.h>

#include <algorithm>
#include <utility>

#include <base/fence.h>
#include <base/runtime_thread.h>
#include <clock/true_clock.h>

namespace verge::detail {

namespace {

constexpr std::int64_t shortest_sleep = 20'000;
/// After this many looks that found nothing the sleeps grow.
constexpr int patience = 50;
/// How long all must be idle before the monitor sleeps until it is woken.
constexpr std::int64_t idle_before_deep_sleep = 100'000'000;

}  // namespace

void monitor::start(watched& what, std::string name) {
  if (off_.load(std::memory_order_relaxed)) return;
  thread_ = start_runtime_thread(std::move(name), [this, &what] { run(what); });
}

/// Until the note is left. Threads that are not workers may free timers meanwhile, and wake no one.
void monitor::deep_sleep(watched& what) noexcept {
  do {
    if (note_.wait_until(true_now() + trim_interval)) return;
    what.trim_memory();
  } while (what.can_trim_memory());
  note_.wait();
}

/// Until the next look. True if it was called.
bool monitor::nap(watched& what, std::int64_t length) noexcept {
  const std::int64_t now = true_now();
  std::int64_t until = now + length;
  if (const std::int64_t by = what.look_by(); by != 0) {
    until = std::min(until, std::max(by, now + shortest_sleep));
  }
  naps_.store(until - now > short_nap, std::memory_order_relaxed);
  const bool called = note_.wait_until(until);
  naps_.store(false, std::memory_order_relaxed);
  return called;
}

void monitor::run(watched& what) noexcept {
  what.monitor_begins();
  std::int64_t sleep = shortest_sleep;
  int quiet = 0;
  std::int64_t idle_since = 0;
  std::int64_t trimmed = true_now();
  while (!what.stopping()) {
    const bool called = nap(what, sleep);
    wakeups_.add();
    const std::int64_t now = true_now();
    if (what.sysmon_look(now)) {
      quiet = 0;
      sleep = shortest_sleep;
    } else if (called) {
      sleep = std::min(sleep, called_sleep);
    } else if (++quiet > patience) {
      sleep = std::min(2 * sleep, longest_sleep);
    }
    what.prepare_memory();
    if (now - trimmed > trim_interval) {
      what.trim_memory();
      trimmed = now;
    }
    if (!what.all_idle()) {
      idle_since = 0;
    } else if (idle_since == 0) {
      idle_since = now;
    } else if (now - idle_since > idle_before_deep_sleep) {
      naps_.store(true, std::memory_order_relaxed);
      full_fence();
      if (what.allows_deep_sleep()) deep_sleep(what);
      naps_.store(false, std::memory_order_relaxed);
      what.sysmon_woke(true_now());
      // Most of what wakes it is over at once, so it backs off without the usual patience.
      idle_since = 0;
      quiet = patience;
      sleep = shortest_sleep;
    }
  }
}

}  // namespace verge::detail
