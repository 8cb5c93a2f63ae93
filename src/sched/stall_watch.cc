// SPDX-License-Identifier: Apache-2.0

#include <sched/stall_watch.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include <base/code_name.h>
#include <base/log.h>
#include <base/probes.h>

namespace verge {

std::string to_string(const stall& s) {
  char text[96];
  std::snprintf(text, sizeof text, " has held a processor for %.0f ms, on thread %d",
                static_cast<double>(s.lasted.count()) / 1e6, s.thread);
  std::string line = s.is_task ? "task " : "callback ";
  line += s.what;
  if (!s.place.empty() && s.place != s.what) {
    line += " (";
    line += s.place;
    line += ')';
  }
  line += text;
  const char* before = ": ";
  for (const void* const address : s.backtrace) {
    line += std::exchange(before, " < ");
    line += detail::name_of_code(address);
  }
  if (s.unreported != 0) {
    line += "; stalls that were not reported since the last: ";
    line += std::to_string(s.unreported);
  }
  return line;
}

void log_stall(const stall& s) { detail::log(log_level::warning, "%s", to_string(s).c_str()); }

namespace detail {

void stall_watch::set(std::int64_t after, handler report) {
  after_ = std::max<std::int64_t>(after, 0);
  report_ = std::move(report);
  if (report_) capture();
}

void stall_watch::capture() noexcept {
  if (thread_probe::install()) captures_.store(true, std::memory_order_relaxed);
}

void stall_watch::look_locked(worker& w, std::int64_t now) noexcept {
  const std::uint32_t turn = w.turn.load(std::memory_order_relaxed);
  auto& seen = w.seen;
  if (turn % 2 == 0) {
    seen = {};
    return;
  }
  if (seen.turn != turn) {
    seen = {.turn = turn, .since = now, .counted = false};
    return;
  }
  const std::int64_t lasted = now - seen.since;
  if (lasted < after_) return;
  longest_.store(std::max(longest(), lasted), std::memory_order_relaxed);
  if (std::exchange(seen.counted, true)) return;
  count_.add();
  VERGE_PROBE2(stall, w.thread_id.load(std::memory_order_relaxed), lasted);
  if (!captures()) return;
  if (current_.thread != 0 || (last_report_ != 0 && now - last_report_ < between_reports)) {
    ++unreported_;
    return;
  }
  current_ = {.thread = w.thread_id.load(std::memory_order_relaxed),
              .turn = turn,
              .since = seen.since,
              .asked = 0};
}

void stall_watch::finish_look(std::int64_t now) noexcept {
  if (current_.thread == 0) return;
  if (current_.asked == 0) {
    if (thread_probe::ask(current_.thread)) {
      current_.asked = now;
    } else if (now - current_.since > after_ + patience) {
      report(current_, nullptr, now);  // another runtime asks, or the thread has ended
    }
    return;
  }
  thread_probe::answer answer;
  if (thread_probe::take(answer)) {
    // It may have returned meanwhile.
    report(current_, answer.turn == current_.turn ? &answer : nullptr, now);
  } else if (now - current_.asked > patience) {
    const bool any = thread_probe::give_up(answer);
    report(current_, any && answer.turn == current_.turn ? &answer : nullptr, now);
  }
}

void stall_watch::end() noexcept {
  if (current_.thread == 0 || current_.asked == 0) return;
  thread_probe::answer unused;
  thread_probe::give_up(unused);
  current_ = {};
}

void stall_watch::report(const found& f, const thread_probe::answer* answer,
                         std::int64_t now) noexcept {
  try {
    stall s;
    s.what = "?";
    s.thread = f.thread;
    s.since = clock::time_point(std::chrono::nanoseconds(f.since));
    s.lasted = std::chrono::nanoseconds(now - f.since);
    s.unreported = unreported_;
    if (answer != nullptr) {
      s.is_task = answer->is_task;
      if (answer->label != nullptr) s.label = answer->label;
      if (answer->place != nullptr) s.place = answer->place;
      const std::string type = name_of_work(nullptr, answer->written, answer->code);
      if (answer->is_task) s.place = type;
      s.what = !s.label.empty() ? s.label : !s.place.empty() ? s.place : type;
      s.backtrace.assign(answer->frames, answer->frames + answer->count);
    }
    {
      std::lock_guard held(lock_);
      if (recent_.size() == most_recent) recent_.pop_front();
      recent_.push_back(s);
    }
    if (report_) report_(s);
  } catch (...) {
    log(log_level::warning, "%s",
        "a stall could not be reported: no memory, or on_stall has thrown");
  }
  unreported_ = 0;
  last_report_ = now;
  current_ = {};
}

std::vector<stall> stall_watch::recent() const {
  std::lock_guard held(lock_);
  return {recent_.begin(), recent_.end()};
}

}  // namespace detail

}  // namespace verge
