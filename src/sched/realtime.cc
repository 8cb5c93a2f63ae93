// SPDX-License-Identifier: Apache-2.0

#include <sched/realtime.h>

#include <sched.h>

#include <cerrno>
#include <stdexcept>
#include <string>

namespace verge::detail {

namespace {

/// In nanoseconds, at the priority of a sleeper.
constexpr std::int64_t longest_callback = 1'000'000;

int checked(int priority) {
  const int most = ::sched_get_priority_max(SCHED_FIFO);
  if (priority >= 0 && priority <= most) return priority;
  std::string what = "verge: a real-time priority is 1 to ";
  what.append(std::to_string(most)).append(", or 0 for none, and this one is ");
  throw std::invalid_argument(what.append(std::to_string(priority)));
}

}  // namespace

realtime::realtime(int priority) : priority_(checked(priority)) {}

void realtime::raise_now(state& s) noexcept {
  sched_param param{};
  param.sched_priority = priority_;
  // Threads and processes that it starts are ordinary ones.
  if (::sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param) == 0) {
    granted_.store(true, std::memory_order_relaxed);
    s.since.store(0, std::memory_order_relaxed);
    s.raised.store(true, std::memory_order_relaxed);
  } else {
    error_.store(errno, std::memory_order_relaxed);
  }
}

void realtime::lower(state& s, pid_t thread) noexcept {
  if (!s.raised.exchange(false, std::memory_order_relaxed)) return;
  const sched_param param{};
  ::sched_setscheduler(thread, SCHED_OTHER | SCHED_RESET_ON_FORK, &param);
}

void realtime::begin(state& s, std::int64_t now) noexcept {
  if (!s.raised.load(std::memory_order_relaxed)) return;
  if (s.since.load(std::memory_order_relaxed) != 0) return lower(s, 0);
  s.since.store(now, std::memory_order_relaxed);
}

void realtime::look(state& s, pid_t thread, std::int64_t now) noexcept {
  const std::int64_t since = s.since.load(std::memory_order_relaxed);
  if (since != 0 && now - since > longest_callback) lower(s, thread);
}

}  // namespace verge::detail
