// SPDX-License-Identifier: Apache-2.0

// Tubes: when they exist, and the commands about them.

#include <algorithm>
#include <chrono>

#include "broker.h"

namespace verge::server {

tube* broker::find_tube(const std::string& name) noexcept {
  const auto found = tubes_by_name_.find(name);
  return found == tubes_by_name_.end() || !is_used(*found->second) ? nullptr : found->second;
}

tube* broker::tube_of(client& c, const command& cmd) noexcept {
  return cmd.tube.empty() ? c.used_ : find_tube(cmd.tube);
}

/// The client watches these tubes and no others.
void broker::watch_only(client& c, const std::vector<std::string>& names) {
  std::vector<tube*> wanted;
  wanted.reserve(names.size());
  for (const std::string& n : names) wanted.push_back(&tube_named(n));
  if (c.watched_ == wanted) return;
  for (tube* w : wanted) ++w->watchers;
  for (tube* w : c.watched_) {
    --w->watchers;
    doubtful_tubes_.push_back(w);
  }
  c.watched_ = std::move(wanted);
}

/// A client watches "default" from the beginning, whether it may touch it or not: what it may not
/// touch is not watched any more. False if nothing is left.
bool broker::watch_allowed(client& c, const command& cmd) {
  const auto forbidden = [&](tube* t) { return !may_touch(cmd, *t); };
  if (std::all_of(c.watched_.begin(), c.watched_.end(), forbidden)) return false;
  for (tube* t : c.watched_) {
    if (!forbidden(t)) continue;
    --t->watchers;
    doubtful_tubes_.push_back(t);
  }
  std::erase_if(c.watched_, forbidden);
  return true;
}

tube& broker::tube_named(const std::string& name) {
  if (const auto found = tubes_by_name_.find(name); found != tubes_by_name_.end()) {
    return *found->second;
  }
  return add_tube(next_tube_++, name);
}

tube& broker::add_tube(tube_number number, const std::string& name) {
  auto made = std::make_unique<tube>();
  tube& t = *made;
  t.number = number;
  t.name = name;
  t.on_disk.number = t.number;
  t.on_disk.name = name;
  tubes_[t.number] = std::move(made);
  tubes_by_name_[name] = &t;
  tubes_in_order_.push_back(&t);
  return t;
}

void broker::change(tube& t) {
  if (t.changed) return;
  t.changed = true;
  changed_tubes_.push_back(&t);
}

/// A tube exists while it has tasks or a client that uses or watches it. The one called "default"
/// always does. It is dropped at the end of a round: what the round removes still needs it.
bool broker::is_used(const tube& t) noexcept {
  return t.users != 0 || t.watchers != 0 || t.tasks() != 0 || t.name == "default";
}

void broker::drop_if_unused(tube& t) {
  if (is_used(t) || t.changed) return;
  if (t.is_noted) due_.erase({t.noted_due, &t});
  if (t.is_falling) std::erase(falling_, &t);
  if (t.mark_is_raised) std::erase(raised_marks_, &t);
  alarms_.stop(t.pause_end);
  if (t.in_store) removed_tubes_.push_back(t.number);
  // The last one takes its place in the list.
  const auto at = std::find(tubes_in_order_.begin(), tubes_in_order_.end(), &t);
  *at = tubes_in_order_.back();
  tubes_in_order_.pop_back();
  tubes_by_name_.erase(t.name);
  tubes_.erase(t.number);
}

void broker::run_tubes(client& c, const command& cmd) {
  switch (cmd.what) {
    case verb::use: {
      tube& t = tube_named(cmd.text);
      ++t.users;
      --c.used_->users;
      doubtful_tubes_.push_back(c.used_);
      c.used_ = &t;
      break;
    }
    case verb::watch: {
      tube& t = tube_named(cmd.text);
      if (std::find(c.watched_.begin(), c.watched_.end(), &t) == c.watched_.end()) {
        c.watched_.push_back(&t);
        ++t.watchers;
      }
      return say(c, answer::watching, c.watched_.size());
    }
    case verb::ignore: {
      const auto at = std::find_if(c.watched_.begin(), c.watched_.end(),
                                   [&](const tube* t) { return t->name == cmd.text; });
      if (at != c.watched_.end()) {
        if (c.watched_.size() < 2) return say(c, answer::not_ignored);
        --(*at)->watchers;
        doubtful_tubes_.push_back(*at);
        *at = c.watched_.back();
        c.watched_.pop_back();
      }
      return say(c, answer::watching, c.watched_.size());
    }
    default:
      break;
  }
  reply r;
  r.what = answer::using_tube;
  r.text = c.used_->name;
  say(c, std::move(r));
}

void broker::run_pause(client& c, const command& cmd) {
  tube* t = find_tube(cmd.text);
  if (t == nullptr) return say(c, answer::not_found);
  ++t->pauses;
  alarms_.stop(t->pause_end);
  t->pause_end = {};
  t->pause = cmd.time;
  t->paused_until = now_ + std::chrono::nanoseconds(cmd.time);
  t->on_disk.pause = cmd.time;
  t->on_disk.paused_until = due_after(wall_, cmd.time);
  if (cmd.time > 0) {
    t->pause_end = alarms_.start(t->paused_until, {&broker::on_pause_end, this, t});
  }
  change(*t);
  say(c, answer::paused);
  serve(*t);
}

}  // namespace verge::server
