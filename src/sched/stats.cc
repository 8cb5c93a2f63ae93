// SPDX-License-Identifier: Apache-2.0

// The figures of a runtime.

#include <algorithm>

#include <sched/labels.h>
#include <sched/runtime_core.h>

namespace verge {

namespace {

void add(processor_stats& sum, const processor_stats& p) noexcept {
  sum.timers_live += p.timers_live;
  sum.timers_deleted += p.timers_deleted;
  sum.timers_fired += p.timers_fired;
  sum.timers_stolen += p.timers_stolen;
  sum.tasks_run += p.tasks_run;
  sum.tasks_queued += p.tasks_queued;
  sum.tasks_stolen += p.tasks_stolen;
  sum.wakeups += p.wakeups;
  sum.busy += p.busy;
  sum.lateness += p.lateness;
  sum.turns += p.turns;
  sum.ready_waits += p.ready_waits;
}

processor_stats as_stats(const detail::processor& p, const detail::timer_counts& timers) noexcept {
  return {.timers_live = timers.live,
          .timers_deleted = timers.deleted,
          .timers_fired = p.timers_fired.read(),
          .timers_stolen = p.timers_stolen.read(),
          .tasks_run = p.tasks_run.read(),
          .tasks_queued = p.queue.size(),
          .tasks_stolen = p.tasks_stolen.read(),
          .wakeups = p.wakeups.read(),
          .lateness = p.lateness.read(),
          .turns = p.turns.read(),
          .ready_waits = p.ready_waits.read()};
}

}  // namespace

runtime_stats runtime::stats() const {
  detail::live_scheduler& s = core_->scheduler;
  s.refuse_if_lost();
  detail::timer_engine& e = core_->timers->its_engine();
  runtime_stats all;
  all.taken_from = core_->taken_from.load(std::memory_order_relaxed);
  all.limits = core_->limits;
  const detail::processor_set& processors = s.all_processors();
  const unsigned made = processors.made();
  for (unsigned p = 0; p < made; ++p) {
    processor_stats one = as_stats(processors[p], e.counts(p));
    one.busy = std::chrono::nanoseconds(s.held_for(processors[p]));
    add(all.total, one);
    // A retired processor counts in the sum only.
    if (p < s.processors()) all.processors.push_back(one);
  }
  std::uint64_t awake = 0;
  for (unsigned p = 0; p < made; ++p) awake += processors[p].waited_awake.read();
  all.precise_waits = std::chrono::nanoseconds(awake);
  all.precise_lead = std::chrono::nanoseconds(s.precise_lead());
  all.realtime = s.priority().granted();
  all.realtime_error = s.priority().error();
  const unsigned spares = processors.spares_made();
  for (unsigned i = 0; i < spares; ++i) add(all.total, as_stats(processors.spare(i), {}));
  all.total.timers_fired += s.foreign().timers_fired();
  all.total.lateness += s.foreign().lateness();
  const detail::timer_totals timers = core_->timers->totals();
  all.timers_started = timers.started;
  all.timers_stopped = timers.stopped;
  all.timers_reset = timers.reset;
  all.tasks_started = s.jobs().begun();
  all.tasks_live = s.jobs().live();
  // What is queued may also be callbacks; each processor that is held runs something or looks.
  const std::uint64_t ready = all.total.tasks_queued + s.running();
  all.tasks_waiting = all.tasks_live - std::min(all.tasks_live, ready);
  const auto net = s.net()->statistics();
  all.poll_breaks = net.breaks_written;
  all.polls = net.blocking_polls;
  all.monitor_wakeups = s.monitor_wakeups();
  all.spare_used = s.spare_used();
  all.poll_rescues = s.poll_rescues();
  all.stalls = s.stalls().count();
  all.longest_stall = std::chrono::nanoseconds(s.stalls().longest());
  all.threads = s.workers_started();
  all.labels = detail::labels_of(s, all.total.timers_live);
  all.timer_bytes = e.bytes() + core_->timers->memory().bytes_held;
  return all;
}

}  // namespace verge
