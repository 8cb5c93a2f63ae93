// SPDX-License-Identifier: Apache-2.0

// What the verbs do.

#include <chrono>
#include <utility>

#include "broker.h"

namespace verge::server {

void broker::execute(const std::shared_ptr<client>& from, command cmd) {
  client& c = *from;
  if (c.left_) return;
  if (!c.joined_) {
    clients_[&c] = from;
    join(c);
  }
  if (cmd.what == verb::arrive) return;
  if (cmd.what == verb::leave) return leave(c);
  if (cmd.what == verb::half_close) {
    c.half_closed_ = true;
    if (!c.waits_) return;
    stop_waiting(c);
    say(c, answer::timed_out);
    return resume();
  }
  if (cmd.what == verb::give_up) {
    if (!c.waits_) return;
    stop_waiting(c);
    say(c, answer::timed_out);
    return resume();
  }
  if (cmd.what == verb::go_on) {
    c.stalled_ = false;
    resume_later(c);
    return resume();
  }
  if (is_busy(c) || !c.behind_.empty()) {
    c.behind_.push_back(std::move(cmd));
    return;
  }
  if (!may_say(c)) {
    c.behind_.push_back(std::move(cmd));
    return resume_later(c);
  }
  run(c, cmd);
  resume();
}

/// Whether its next command has to wait for something.
bool broker::is_busy(const client& c) noexcept { return c.waits_ || c.kicks_ || c.stalled_; }

/// Whether there is room for another reply: in this round, and with the client.
bool broker::may_say(client& c) noexcept {
  if (failed_) return true;
  if (is_round_full()) return false;
  c.stalled_ = c.admits(c.said_) == 0;
  return !c.stalled_;
}

/// What the client has sent meanwhile comes next.
void broker::resume_later(client& c) {
  if (c.resumed_ || c.stalled_ || c.behind_.empty()) return;
  c.resumed_ = true;
  resumed_.push_back(&c);
}

/// Runs what clients have sent while they waited. What the round has no room for is left for the
/// next one.
void broker::resume() {
  while (!resumed_.empty() && (failed_ || !is_round_full())) {
    client& c = *resumed_.back();
    resumed_.pop_back();
    c.resumed_ = false;
    while (!is_busy(c) && !c.behind_.empty()) {
      if (!may_say(c)) {
        resume_later(c);
        break;
      }
      command next = std::move(c.behind_.front());
      c.behind_.pop_front();
      run(c, next);
    }
  }
}

void broker::run(client& c, command& cmd) {
  if (failed_ && cmd.what != verb::say) {
    return say(c, options_.shared ? answer::moved : answer::internal_error);
  }
  if (cmd.once != nullptr) return run_once(c, cmd);
  ++figures_.commands[static_cast<std::size_t>(cmd.what)];
  switch (cmd.what) {
    case verb::put:
    case verb::put_many:
      return run_put(c, cmd);
    case verb::reserve:
      return run_reserve(c, cmd);
    case verb::reserve_task:
      return run_reserve_task(c, cmd);
    case verb::remove:
    case verb::release:
    case verb::bury:
    case verb::touch:
    case verb::give_back:
      return run_on_lease(c, cmd);
    case verb::kick:
    case verb::kick_task:
      return run_kick(c, cmd);
    case verb::peek:
    case verb::peek_ready:
    case verb::peek_delayed:
    case verb::peek_buried:
      return run_peek(c, cmd);
    case verb::cancel:
    case verb::reschedule:
      return run_by_key(c, cmd);
    case verb::use:
    case verb::used:
    case verb::watch:
    case verb::ignore:
      return run_tubes(c, cmd);
    case verb::pause:
      return run_pause(c, cmd);
    case verb::set_push:
    case verb::clear_push:
    case verb::show_push:
      return run_push(c, cmd);
    case verb::limit:
      return run_limit(c, cmd);
    case verb::set_schedule:
    case verb::remove_schedule:
    case verb::show_schedule:
    case verb::list_schedules:
      return run_schedule(c, cmd);
    case verb::follow_push:
      return follow_push(c);
    case verb::undelivered:
    case verb::postpone:
      return run_undelivered(c, cmd);
    case verb::stats:
    case verb::stats_task:
    case verb::stats_tube:
    case verb::survey:
    case verb::list_tasks:
    case verb::forecast:
    case verb::show_cluster:
    case verb::list_tubes:
    case verb::list_watched:
      return run_show(c, cmd);
    case verb::auth:
      return say(c, answer::done);
    case verb::drain:
      draining_ = cmd.number != 0;
      return say(c, answer::done);
    case verb::backup: {
      reply r;
      try {
        store_.backup(cmd.text);
      } catch (const store_error& e) {
        r.what = answer::failed;
        r.text = e.what();
      }
      return say(c, std::move(r));
    }
    case verb::say:
      for (; cmd.number > 0; --cmd.number) static_cast<void>(next_id());
      return say(c, std::move(cmd.prepared));
    case verb::quit:
      return leave(c);
    case verb::arrive:
    case verb::give_up:
    case verb::half_close:
    case verb::go_on:
    case verb::leave:
      break;
  }
}

void broker::run_put(client& c, command& cmd) {
  if (!c.puts_ && c.leases_ != client::leases::internal) {
    c.puts_ = true;
    ++figures_.producers;
  }
  if (draining_) return say(c, answer::draining);
  tube& t = cmd.tube.empty() ? *c.used_ : tube_named(cmd.tube);
  if (&t != c.used_) doubtful_tubes_.push_back(&t);
  if (!may_touch(cmd, t)) return say(c, answer::denied);
  if (lacks_push(t, cmd)) return say(c, answer::no_push);
  if (is_full(t, cmd)) return say(c, answer::tube_full);
  if (cmd.what == verb::put) return say(c, put(t, cmd.tasks.front()));
  reply r;
  r.what = answer::inserted_many;
  r.number = next_id_;
  r.each.reserve(cmd.tasks.size());
  for (new_task& n : cmd.tasks) {
    const reply one = put(t, n);
    r.each.emplace_back(one.what, one.number);
  }
  r.text = std::to_string(cmd.tasks.size());
  say(c, std::move(r));
}

reply broker::put(tube& t, new_task& n) {
  reply r;
  r.what = answer::inserted;
  if (!n.key.empty()) {
    if (entry* e = find_by_key(t, n.key)) {
      r.number = e->fields.id;
      if (n.mode == if_exists::keep) {
        r.what = answer::kept;
        return r;
      }
      if (n.mode == if_exists::refuse) {
        r.what = answer::exists;
        return r;
      }
      if (e->fields.state == task_state::reserved) {
        r.what = answer::taken;
        return r;
      }
      remove(*e);
      r.what = answer::replaced;
    }
  }
  r.number = create(t, n).fields.id;
  return r;
}

void broker::run_reserve(client& c, const command& cmd) {
  if (!c.works_ && c.leases_ != client::leases::internal) {
    c.works_ = true;
    ++figures_.workers;
  }
  if (!cmd.limit) ++figures_.reserves_without_limit;
  if (!cmd.watch.empty()) {
    watch_only(c, cmd.watch);
  } else if (!cmd.tube.empty()) {
    watch_only(c, {cmd.tube});
  }
  if (cmd.within != nullptr && !watch_allowed(c, cmd)) return say(c, answer::denied);
  wait(c, cmd.limit, cmd.number);
}

void broker::run_reserve_task(client& c, const command& cmd) {
  if (!c.works_) {
    c.works_ = true;
    ++figures_.workers;
  }
  entry* e = find_allowed(cmd);
  if (e == nullptr || e->fields.state == task_state::reserved) return say(c, answer::not_found);
  reply r;
  r.what = answer::reserved;
  tube& t = *e->home;
  lease(c, *e, true, r.task);
  note_due(t);
  say(c, std::move(r));
}

/// Delete, release, bury, touch: what the holder of a lease does.
void broker::run_on_lease(client& c, const command& cmd) {
  entry* e = find_allowed(cmd);
  if (e == nullptr) return say(c, answer::not_found);
  lease_token token = cmd.token;
  if (token == 0 && e->holder == &c) token = e->fields.token;
  if (cmd.what == verb::remove) {
    // Without a lease a task can be removed that no client has; a lease that has ended is refused.
    const bool has_ended = cmd.token != 0 && e->fields.state != task_state::reserved;
    if (has_ended || may_remove(e->fields, token) != outcome::done) {
      return say(c, cmd.token != 0 ? answer::stale_lease : answer::not_found);
    }
    tube& t = *e->home;
    ++t.deletes;
    remove(*e);
    note_due(t);
    return say(c, answer::deleted);
  }
  if (e->fields.state != task_state::reserved || e->fields.token != token) {
    return say(c, cmd.token != 0 ? answer::stale_lease : answer::not_found);
  }
  if (cmd.what == verb::touch) {
    static_cast<void>(server::touch(e->fields, token, wall_));
    e->lease_end = now_ + std::chrono::nanoseconds(e->fields.ttr);
    alarms_.reset(e->lease, e->lease_end);
    if (options_.durable_leases && !e->fields.bound_to_connection) write_later(*e);
    return say(c, answer::touched);
  }
  const std::uint32_t priority = cmd.keep_priority ? e->fields.priority : cmd.priority;
  take_out(*e);
  end_lease(*e);
  if (cmd.what == verb::give_back) {
    static_cast<void>(server::give_back(e->fields, token, wall_));
  } else if (cmd.what == verb::bury) {
    static_cast<void>(server::bury(e->fields, token, priority, next_burial()));
  } else if (server::release(e->fields, token, priority, wall_, cmd.time) == outcome::dead) {
    bury_or_move(*e);
  }
  write_later(*e);
  say(c, cmd.what == verb::bury ? answer::buried : answer::released);
  put_in(*e);
}

void broker::run_peek(client& c, const command& cmd) {
  entry* e = nullptr;
  tube* const about = cmd.what == verb::peek ? c.used_ : tube_of(c, cmd);
  if (about == nullptr) return say(c, answer::not_found);
  tube& t = *about;
  if (cmd.what != verb::peek && !may_touch(cmd, t)) return say(c, answer::denied);
  switch (cmd.what) {
    case verb::peek:
      e = find_allowed(cmd);
      break;
    case verb::peek_ready:
      e = first_of(t, t.ready);
      break;
    case verb::peek_delayed:
      e = first_of(t, t.delayed);
      break;
    default:
      e = first_of(t, t.buried);
      break;
  }
  if (e == nullptr) return say(c, answer::not_found);
  reply r;
  r.what = answer::found;
  r.task = {.id = e->fields.id, .token = 0, .body = body_of(*e), .fields = nullptr};
  say(c, std::move(r));
}

void broker::add_wanted_keys(client& c, const command& cmd, std::vector<key_name>& to) {
  const bool is_put = cmd.what == verb::put || cmd.what == verb::put_many;
  const bool is_named = cmd.what == verb::cancel || cmd.what == verb::reschedule;
  const tube* const t = (is_put || is_named) ? tube_of(c, cmd) : nullptr;
  if (t == nullptr) return;
  if (is_named && !cmd.text.empty()) to.push_back({.tube = t->number, .key = cmd.text});
  for (const new_task& n : cmd.tasks) {
    if (is_put && !n.key.empty()) to.push_back({.tube = t->number, .key = n.key});
  }
}

bool broker::may_touch(const command& cmd, const tube& t) noexcept {
  return cmd.within == nullptr || cmd.within->covers(t.name);
}

entry* broker::find_allowed(const command& cmd) {
  entry* e = find(cmd.number);
  return e == nullptr || may_touch(cmd, *e->home) ? e : nullptr;
}

/// By its id, or by its key in the tube.
entry* broker::find_named(client& c, const command& cmd) {
  if (cmd.text.empty()) return find_allowed(cmd);
  tube* const t = tube_of(c, cmd);
  return t == nullptr || !may_touch(cmd, *t) ? nullptr : find_by_key(*t, cmd.text);
}

void broker::run_by_key(client& c, const command& cmd) {
  entry* e = find_named(c, cmd);
  if (e == nullptr) return say(c, answer::not_found);
  tube& t = *e->home;
  if (e->fields.state == task_state::reserved) return say(c, answer::taken, e->fields.id);
  const task_id id = e->fields.id;
  if (cmd.what == verb::cancel) {
    remove(*e);
    note_due(t);
    return say(c, answer::cancelled, id);
  }
  take_out(*e);
  const nanoseconds delay = cmd.due ? delay_until(wall_, *cmd.due) : cmd.time;
  static_cast<void>(server::reschedule(e->fields, wall_, delay));
  write_later(*e);
  put_in(*e);
  note_due(t);
  say(c, answer::rescheduled, id);
}

}  // namespace verge::server
