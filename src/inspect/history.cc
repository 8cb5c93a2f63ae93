// SPDX-License-Identifier: Apache-2.0

#include <inspect/history.h>

#include <algorithm>

namespace verge::detail {

namespace {

std::uint64_t difference(std::uint64_t now, std::uint64_t before) {
  return now > before ? now - before : 0;
}

std::size_t row_of(std::int64_t upper_bound) {
  // Four buckets make a power of two, and their ends lie in (2^n, 2^(n+1)].
  std::size_t row = 0;
  while (row + 1 < history_second::lateness_rows &&
         upper_bound > std::int64_t{1} << (history_second::first_power + row + 1)) {
    ++row;
  }
  return row;
}

}  // namespace

void history::add(const runtime_stats& figures, double now) {
  if (!any_) {
    any_ = true;
    before_ = figures;
    before_at_ = now;
    return;
  }
  history_second s;
  s.length = now - before_at_;
  const processor_stats& a = before_.total;
  const processor_stats& b = figures.total;
  s.fired = difference(b.timers_fired, a.timers_fired);
  s.started = difference(figures.timers_started, before_.timers_started);
  s.stopped = difference(figures.timers_stopped, before_.timers_stopped);
  s.reset = difference(figures.timers_reset, before_.timers_reset);
  s.stolen = difference(b.timers_stolen + b.tasks_stolen, a.timers_stolen + a.tasks_stolen);
  s.wakeups = difference(b.wakeups, a.wakeups);
  s.turns = difference(b.tasks_run, a.tasks_run);
  s.stalls = difference(figures.stalls, before_.stalls);
  for (std::size_t p = 0; p < figures.processors.size(); ++p) {
    const std::int64_t busy =
        figures.processors[p].busy.count() -
        (p < before_.processors.size() ? before_.processors[p].busy.count() : 0);
    const double share = s.length > 0 ? static_cast<double>(busy) / 1e6 / s.length : 0;
    s.busy.push_back(static_cast<unsigned>(std::clamp(share, 0.0, 1000.0)));
  }
  for (std::size_t i = 0; i < lateness_histogram::bucket_count; ++i) {
    s.lateness[row_of(lateness_histogram::upper_bound(i))] +=
        difference(b.lateness[i], a.lateness[i]);
  }
  before_ = figures;
  before_at_ = now;
  std::lock_guard held(lock_);
  s.number = ++count_;
  if (seconds_.size() == kept) seconds_.pop_front();
  seconds_.push_back(std::move(s));
}

std::vector<history_second> history::since(std::uint64_t number) const {
  std::lock_guard held(lock_);
  std::vector<history_second> found;
  for (const history_second& s : seconds_) {
    if (s.number > number) found.push_back(s);
  }
  return found;
}

history_second history::last() const {
  std::lock_guard held(lock_);
  return seconds_.empty() ? history_second{} : seconds_.back();
}

}  // namespace verge::detail
