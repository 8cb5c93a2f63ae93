// SPDX-License-Identifier: Apache-2.0

// What a runtime does, in words.

#include <verge/dump.h>

#include <algorithm>
#include <cstdio>
#include <ostream>
#include <string>
#include <vector>

#include <base/code_name.h>
#include <clock/fast_clock.h>
#include <node/named_behaviours.h>
#include <sched/runtime_core.h>
#include <sched/waiting_threads.h>

namespace verge {

namespace {

std::string duration_text(std::int64_t ns) {
  char text[32];
  const auto value = static_cast<double>(ns);
  if (ns >= 10'000'000'000) {
    std::snprintf(text, sizeof text, "%.0f s", value / 1e9);
  } else if (ns >= 1'000'000'000) {
    std::snprintf(text, sizeof text, "%.1f s", value / 1e9);
  } else if (ns >= 1'000'000) {
    std::snprintf(text, sizeof text, "%.1f ms", value / 1e6);
  } else {
    std::snprintf(text, sizeof text, "%.1f us", value / 1e3);
  }
  return text;
}

struct task_line {
  const char* label;
  const char* written;
  const void* code;
  const char* waiting_for;
  std::int64_t since;
  const void* waiting_in;
};

void write_processors(std::ostream& out, const detail::live_scheduler& s, std::int64_t now) {
  for (const auto& [id, busy, since, queued] : s.processor_states()) {
    out << "processor " << id << ": " << (busy ? "runs" : "idle");
    if (busy) out << ", since " << duration_text(std::max<std::int64_t>(now - since, 0));
    if (queued != 0) out << ", " << queued << " ready";
    out << '\n';
  }
}

void write_wait(std::ostream& out, const char* waiting_for, std::int64_t since, const void* code,
                std::int64_t now) {
  out << "waits for " << waiting_for;
  if (since != 0) out << ", since " << duration_text(std::max<std::int64_t>(now - since, 0));
  if (code != nullptr) out << ", in " << detail::function_at(code);
  out << '\n';
}

/// Those of the whole process: a thread belongs to no runtime.
void write_threads(std::ostream& out, std::size_t most, std::int64_t now) {
  for (const detail::waiting_thread_view& t : detail::waiting_threads(most)) {
    out << "thread " << t.thread << ": ";
    write_wait(out, t.waiting_for, t.since, t.code, now);
  }
}

void write_tasks(std::ostream& out, const detail::live_scheduler& s, std::size_t most,
                 std::int64_t now) {
  std::vector<task_line> tasks;
  s.jobs().for_each(most, [&](const detail::job& j) {
    tasks.push_back({.label = j.label.load(std::memory_order_relaxed),
                     .written = j.written,
                     .code = j.code,
                     .waiting_for = j.waiting_for.load(std::memory_order_relaxed),
                     .since = j.waiting_since.load(std::memory_order_relaxed),
                     .waiting_in = j.waiting_in.load(std::memory_order_relaxed)});
  });
  const std::uint64_t live = s.jobs().live();
  out << live << (live == 1 ? " task" : " tasks") << '\n';
  for (const task_line& t : tasks) {
    out << "task " << detail::name_of_work(t.label, t.written, t.code) << ": ";
    if (t.waiting_for == nullptr) {
      out << "runs, or is ready\n";
      continue;
    }
    write_wait(out, t.waiting_for, t.since, t.waiting_in, now);
  }
  if (live > tasks.size()) out << "and " << live - tasks.size() << " more tasks\n";
}

void write_timers(std::ostream& out, detail::clockwork& timers, std::uint64_t pending,
                  std::size_t most, std::int64_t now) {
  using detail::pending_timer;
  std::vector<pending_timer> next;
  const auto later = [](const pending_timer& a, const pending_timer& b) { return a.due < b.due; };
  timers.for_each_pending([&](const pending_timer& t) {
    if (most == 0 || (next.size() == most && next.front().due <= t.due)) return;
    if (next.size() == most) {
      std::pop_heap(next.begin(), next.end(), later);
      next.pop_back();
    }
    next.push_back(t);
    std::push_heap(next.begin(), next.end(), later);
  });
  std::sort(next.begin(), next.end(), later);
  out << pending << (pending == 1 ? " timer pending\n" : " timers pending\n");
  for (const pending_timer& t : next) {
    const std::int64_t left = t.due - now;
    out << "timer " << (left >= 0 ? "in " : "late by ") << duration_text(std::abs(left)) << ": "
        << detail::name_of(*t.does);
    if (t.does->label != nullptr && t.does->place != nullptr) out << " (" << t.does->place << ')';
    out << '\n';
  }
}

}  // namespace

void write_dump(std::ostream& out, runtime& rt, dump_options options) {
  auto& s = static_cast<detail::live_scheduler&>(detail::scheduler_of(rt));
  s.refuse_if_lost();
  const runtime_stats figures = rt.stats();
  const std::int64_t now = detail::fast_clock::now();
  write_processors(out, s, now);
  write_tasks(out, s, options.tasks, now);
  write_threads(out, options.tasks, now);
  write_timers(out, s.timers(), figures.total.timers_live, options.timers, now);
}

void label_task(const char* label) noexcept {
  if (detail::job* const j = detail::current_job()) {
    j->label.store(label, std::memory_order_relaxed);
    if (detail::worker* const w = detail::this_thread.as_worker; w != nullptr && w->notes) {
      w->ran.label = label;
    }
  }
}

}  // namespace verge
