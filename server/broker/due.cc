// SPDX-License-Identifier: Apache-2.0

// When tasks fall due, and what of that is written: the due marks of broker.h.

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "broker.h"

namespace verge::server {

namespace {

/// How long a due mark may wait for a batch that is written anyway, if no client can know of it.
constexpr std::chrono::seconds most_mark_age{1};

void note_lateness(lateness_figures& f, nanoseconds late) noexcept {
  const auto us = static_cast<std::uint64_t>(late / 1000);
  const auto& bounds = lateness_figures::bounds;
  const auto at = std::lower_bound(bounds.begin(), bounds.end(), us) - bounds.begin();
  ++f.counts[static_cast<std::size_t>(at)];
  f.microseconds += us;
}

}  // namespace

/// Keeps the tube's time in the order of all tubes' times right. A tube in the queue has none
/// there.
void broker::note_due(tube& t) {
  if (t.is_falling) return;
  const bool has = !t.delayed.empty() || t.delayed.is_hungry();
  const wall_time due =
      t.delayed.empty() ? std::numeric_limits<wall_time>::min() : t.delayed.first().fields.due;
  if (t.is_noted && has && t.noted_due == due) return;
  if (t.is_noted) due_.erase({t.noted_due, &t});
  t.is_noted = has;
  t.noted_due = due;
  if (has) due_.insert({due, &t});
}

std::optional<wall_time> broker::next_due() const noexcept {
  if (failed_) return std::nullopt;
  if (!falling_.empty()) return std::numeric_limits<wall_time>::min();
  const auto firing = next_firing();
  if (due_.empty()) return firing;
  return std::min(due_.begin()->first, firing.value_or(due_.begin()->first));
}

/// Tubes whose first task is due join the queue, in the order of that. Returns what is left of how
/// many tasks may be looked at. After a restart the first parts of an index have tasks that have
/// fallen due before: they count as well.
std::size_t broker::queue_due_tubes(std::size_t most) {
  while (most > 0 && !due_.empty() && due_.begin()->first <= wall_) {
    tube& t = *due_.begin()->second;
    if (t.delayed.is_hungry()) {
      most -= std::min(most, read_on(t, t.delayed));
      note_due(t);
      continue;
    }
    due_.erase(due_.begin());
    t.is_noted = false;
    t.is_falling = true;
    falling_.push_back(&t);
  }
  return most;
}

/// Makes tasks ready whose time has come, at most so many. Each tube in the queue gets an equal
/// part of that, and then the next: a storm in one does not hold the others up.
void broker::make_due_tasks_ready(std::size_t most) {
  most = queue_due_tubes(most);
  while (most > 0 && !falling_.empty()) {
    tube& t = *falling_.front();
    falling_.pop_front();
    const std::size_t share = std::max<std::size_t>(most / (falling_.size() + 1), 1);
    const std::size_t done = fall_due(t, share);
    most -= std::min(most, std::max<std::size_t>(done, 1));
    if (done >= share) {
      falling_.push_back(&t);  // there may be more
    } else {
      t.is_falling = false;
      note_due(t);
    }
    serve(t);
  }
}

/// Makes tasks of one tube ready whose time has come, and returns how many: fewer than `most` if
/// there are no more.
std::size_t broker::fall_due(tube& t, std::size_t most) {
  std::size_t done = 0;
  while (done < most) {
    while (t.delayed.is_hungry() && done < most) done += read_on(t, t.delayed);
    if (t.delayed.is_hungry()) break;
    entry* const e = t.delayed.empty() ? nullptr : &t.delayed.first();
    if (e == nullptr || e->fields.due > wall_) break;
    ++done;
    take_out(*e);
    note_lateness(figures_.lateness, wall_ - e->fields.due);
    raise_due_mark(t, due_order_of(e->fields));
    static_cast<void>(server::fall_due(e->fields, wall_));
    put_in(*e);
  }
  return done;
}

void broker::raise_due_mark(tube& t, const due_order& to) {
  if (to <= t.due_mark) return;
  t.due_mark = to;
  if (std::exchange(t.mark_is_raised, true)) return;
  raised_marks_.push_back(&t);
}

/// Marks that have risen are in each batch. If there is none, they are written before a client
/// hears of this round, and otherwise after a while.
void broker::add_due_marks() {
  if (raised_marks_.empty()) return;
  const bool is_written_anyway = !dirty_.empty() || !changed_tubes_.empty() ||
                                 !changed_notes_.empty() || !removed_tubes_.empty() || new_marks_;
  const bool is_told = options_.durable_leases && !replies_.empty();
  if (!is_written_anyway && !is_told && now_ < marks_written_ + most_mark_age) return;
  marks_written_ = now_;
  for (tube* const t : std::exchange(raised_marks_, {})) {
    t->mark_is_raised = false;
    change(*t);
  }
}

std::optional<clock::time_point> broker::next_alarm() const noexcept {
  if (failed_) return std::nullopt;
  const auto next = alarms_.next();
  if (raised_marks_.empty()) return next;
  const clock::time_point mark = marks_written_ + most_mark_age;
  return next ? std::min(*next, mark) : mark;
}

/// The clock was set back, and a task is delayed until a time before the mark of its tube. All
/// marks are lowered to what the clock says, and what has fallen due behind that gets another
/// place, in the same batch. It is in memory, or was when the server was ended: not more than that.
void broker::lower_due_marks() {
  if (std::exchange(is_lowering_, true)) return;
  const bool outer = std::exchange(filling_, true);
  const due_order lowered{.due = due_after(wall_, 1), .id = 0};
  for (const auto& [number, t] : tubes_) {
    if (t->due_mark > lowered) load_fallen(*t, lowered);
  }
  entries_.visit([&](entry& e) {
    const due_order at{.due = e.stored_at.at, .id = e.fields.id};
    if (e.stored_at.kind == place_kind::delayed && e.stored_tube == e.home->number &&
        e.fields.state != task_state::delayed && at > lowered && at <= e.home->due_mark) {
      write_later(e);
    }
    return true;
  });
  for (const auto& [number, t] : tubes_) {
    if (t->due_mark <= lowered) continue;
    t->due_mark = lowered;
    change(*t);
  }
  filling_ = outer;
  is_lowering_ = false;
}

/// Brings tasks into memory that have fallen due, and are in the store behind that place.
void broker::load_fallen(tube& t, const due_order& behind) {
  if (t.delayed.covers(t.due_mark)) return;
  position next = delayed_window_order::at({.due = behind.due, .id = behind.id + 1});
  for (bool more = true; more;) {
    std::vector<stored_task> found = store_.scan(t.number, next, options_.chunk);
    more = found.size() == options_.chunk;
    for (stored_task& s : found) {
      next = {.where = s.where, .id = s.fields.id + 1};
      if (delayed_window_order::of(position{.where = s.where, .id = s.fields.id}) > t.due_mark) {
        return;
      }
      if (entries_.find(s.fields.id) != nullptr) continue;
      entry& e = load(std::move(s));
      if (e.fields.state != task_state::reserved) put_in(e);
    }
  }
}

/// Tasks that have fallen due come first: a client whose wait ends at the same time gets one.
bool broker::advance() {
  if (failed_) return false;
  look_ahead();
  go_on_kicking();
  const bool more_firings = fire_schedules();
  make_due_tasks_ready(options_.chunk);
  for (const tube_number n : std::exchange(unserved_, {})) {
    if (const auto t = tubes_.find(n); t != tubes_.end()) serve(*t->second);
  }
  alarms_.run(now_, options_.chunk);
  resume();
  const auto alarm = alarms_.next();
  return more_firings || !kicks_.empty() || !unserved_.empty() || !resumed_.empty() ||
         (alarm && *alarm <= now_) || !falling_.empty() ||
         (!due_.empty() && due_.begin()->first <= wall_);
}

}  // namespace verge::server
