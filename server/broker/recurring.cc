// SPDX-License-Identifier: Apache-2.0

// Recurring tasks: schedules, and their firing.

#include <utility>

#include "broker.h"
#include "schedule.h"

namespace verge::server {

namespace {

/// The names of notes that are schedules: this, and the schedule's name.
constexpr std::string_view schedule_notes = "schedule/";
/// How many times to come are shown of one schedule.
constexpr std::size_t foreseen = 5;

std::string note_of_schedule(const std::string& schedule) {
  return std::string(schedule_notes).append(schedule);
}

}  // namespace

/// A schedule with its timetable. Without one it never fires: its time zone is not known here.
struct broker::recurrence {
  schedule s;
  std::optional<calendar::timetable> times;
  std::string fault;  ///< why there is no timetable
};

void broker::recover_schedule(const note& n) {
  if (!n.name.starts_with(schedule_notes)) return;
  auto made = std::make_shared<recurrence>();
  made->s = parse_schedule_note(n.text);
  made->times = calendar::timetable::parse(made->s.when, made->s.zone, made->fault);
  look_back(*made);
  arm(*made);
  schedules_[made->s.name] = std::move(made);
}

/// Notes when it fires next.
void broker::arm(const recurrence& r) {
  if (r.times && r.s.next != 0) firings_.insert({r.s.next, r.s.name});
}

/// If the clock was set back, times that were passed over may come again.
void broker::look_back(recurrence& r) {
  if (!r.times || (r.s.next != 0 && r.s.next <= wall_)) return;
  r.s.next = next_unfired(r.s.stretches, *r.times, wall_).value_or(0);
}

void broker::disarm(const recurrence& r) { firings_.erase({r.s.next, r.s.name}); }

std::optional<wall_time> broker::next_firing() const noexcept {
  if (draining_ || firings_.empty()) return std::nullopt;
  return firings_.begin()->first;
}

/// Puts a task for each time that has come. True if there is more to do at once.
bool broker::fire_schedules() {
  if (std::exchange(stepped_back_, false)) {
    for (const auto& [name, r] : schedules_) {
      disarm(*r);
      look_back(*r);
      arm(*r);
    }
  }
  std::size_t fired = 0;
  while (!draining_ && !firings_.empty() && firings_.begin()->first <= wall_) {
    if (fired >= options_.chunk) return true;
    recurrence& r = *schedules_.at(firings_.begin()->second);
    firings_.erase(firings_.begin());
    schedule& s = r.s;
    tube& t = tube_named(s.tube);
    doubtful_tubes_.push_back(&t);
    for (const wall_time nominal : due_times(*r.times, s, wall_)) {
      new_task n = s.what;
      n.key = key_of_firing(s.name, nominal);
      n.mode = if_exists::keep;
      n.due = nominal;
      static_cast<void>(put(t, n));
      note_fired(s.stretches, *r.times, nominal);
      s.last = nominal;
      ++s.fired;
      ++fired;
    }
    s.next = next_unfired(s.stretches, *r.times, wall_).value_or(0);
    arm(r);
    write_note(note_of_schedule(s.name), schedule_note(s));
  }
  return false;
}

/// With this many times to come of each.
void broker::show_schedules(client& c, answer a, const std::vector<const recurrence*>& which,
                            std::size_t upcoming) {
  auto list = std::make_shared<schedule_list>();
  for (const recurrence* const r : which) {
    schedule_view v{.what = r->s, .fault = r->fault, .upcoming = {}};
    wall_time at = r->times ? r->s.next : 0;
    for (std::size_t i = 0; at != 0 && i < upcoming; ++i) {
      v.upcoming.push_back(at);
      at = r->times->next(at).value_or(0);
    }
    list->all.push_back(std::move(v));
  }
  reply r;
  r.what = a;
  r.shown = std::make_shared<const view>(shared_schedules(std::move(list)));
  say(c, std::move(r));
}

void broker::run_schedule(client& c, const command& cmd) {
  const auto may = [&](const schedule& s) {
    return cmd.within == nullptr || cmd.within->covers(s.tube);
  };
  if (cmd.what == verb::list_schedules) {
    std::vector<const recurrence*> some;
    // One more than asked for says that there are more.
    for (auto i = schedules_.upper_bound(cmd.text);
         i != schedules_.end() && some.size() <= cmd.number; ++i) {
      if (may(i->second->s)) some.push_back(i->second.get());
    }
    return show_schedules(c, answer::shown, some, 1);
  }
  if (cmd.what == verb::set_schedule) return set_schedule(c, cmd);
  const auto found = schedules_.find(cmd.text);
  if (found == schedules_.end() || !may(found->second->s)) return say(c, answer::not_found);
  if (cmd.what == verb::remove_schedule) {
    disarm(*found->second);
    write_note(note_of_schedule(cmd.text), std::nullopt);
    schedules_.erase(found);
    return say(c, answer::done);
  }
  show_schedules(c, answer::shown, {found->second.get()}, foreseen);
}

/// A schedule that is set again with the same times keeps its place in them: a time that has come
/// is not lost, and none is fired twice.
void broker::set_schedule(client& c, const command& cmd) {
  auto made = std::make_shared<recurrence>();
  made->s = *cmd.recurs;
  schedule& s = made->s;
  const auto may = [&](const std::string& tube) {
    return cmd.within == nullptr || cmd.within->covers(tube);
  };
  if (!may(s.tube) || (!s.what.dead_letter.empty() && !may(s.what.dead_letter))) {
    return say(c, answer::denied);
  }
  if (!s.what.url.empty() && push_of(s.tube) == nullptr) return say(c, answer::no_push);
  const auto found = schedules_.find(s.name);
  if (found != schedules_.end() && !may(found->second->s.tube)) return say(c, answer::denied);
  const bool is_new = found == schedules_.end();
  if (is_new && schedules_.size() >= most_schedules) {
    reply r;
    r.what = answer::failed;
    r.text = "there are too many schedules";
    return say(c, std::move(r));
  }
  made->times = calendar::timetable::parse(s.when, s.zone, made->fault);
  if (!made->times) {
    reply r;
    r.what = answer::failed;
    r.text = made->fault;
    return say(c, std::move(r));
  }
  s.next = made->times->next(wall_).value_or(0);
  if (!is_new) {
    const schedule& old = found->second->s;
    s.fired = old.fired;
    s.last = old.last;
    if (old.when == s.when && old.zone == s.zone) {
      s.stretches = old.stretches;
      s.next = old.next;
      look_back(*made);
    }
    disarm(*found->second);
  }
  schedules_[s.name] = made;
  arm(*made);
  write_note(note_of_schedule(s.name), schedule_note(s));
  show_schedules(c, is_new ? answer::inserted : answer::replaced, {made.get()}, foreseen);
}

}  // namespace verge::server
