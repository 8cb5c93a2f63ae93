// SPDX-License-Identifier: Apache-2.0

// What is shown: tasks, tubes, the server.

#include <algorithm>
#include <chrono>
#include <limits>

#include "broker.h"

namespace verge::server {

task_view broker::view_of(entry& e) {
  task_view v;
  v.fields = e.fields;
  v.tube = e.home->name;
  v.age = std::max<nanoseconds>(wall_ - e.fields.created, 0);
  if (e.fields.state == task_state::reserved) {
    v.time_left = std::chrono::nanoseconds(e.lease_end - now_).count();
    v.fields.lease_end = due_after(wall_, std::max<nanoseconds>(v.time_left, 0));
  } else if (e.fields.state == task_state::delayed) {
    v.time_left = e.fields.due - wall_;
  }
  v.time_left = std::max<nanoseconds>(v.time_left, 0);
  return v;
}

tube_view broker::view_of(tube& t) {
  tube_view v;
  // Looking at the first ones may find that they are leased: the counts come after that.
  v.oldest_ready = oldest_ready(t);
  v.name = t.name;
  v.urgent = t.urgent;
  v.ready = t.count(task_state::ready);
  v.reserved = t.count(task_state::reserved);
  v.delayed = t.count(task_state::delayed);
  v.buried = t.count(task_state::buried);
  v.total = t.total;
  v.using_it = t.users;
  v.waiting = t.waiting.size();
  v.watching = t.watchers;
  v.pause = t.pause;
  if (is_paused(t)) v.pause_left = std::chrono::nanoseconds(t.paused_until - now_).count();
  v.deletes = t.deletes;
  v.pauses = t.pauses;
  v.reserves = t.reserves;
  v.most_tasks = limit_of(t.name);
  if (const push_settings* const p = push_of(t.name)) {
    v.pushes = true;
    v.push_disabled = !p->disabled.empty();
  }
  return v;
}

/// The first of each priority is the oldest of it. With more priorities than are looked at, the
/// oldest of the most urgent ones.
nanoseconds broker::oldest_ready(tube& t) {
  constexpr int most_priorities = 64;
  if (t.count(task_state::ready) == 0 || first_of(t, t.ready) == nullptr) return 0;
  wall_time oldest = wall_;
  auto at = t.ready.begin();
  for (int i = 0; i < most_priorities && at != t.ready.end(); ++i) {
    oldest = std::min(oldest, at->fields.due);
    if (at->fields.priority == std::numeric_limits<std::uint32_t>::max()) break;
    at = t.ready.from({.priority = at->fields.priority + 1,
                       .due = std::numeric_limits<wall_time>::min(),
                       .id = 0});
  }
  return wall_ - oldest;
}

server_view broker::view_of_all() {
  server_view v = figures_;
  for (const tube* t : tubes_in_order_) {
    if (!is_used(*t)) continue;
    ++v.tubes;
    v.urgent += t->urgent;
    v.delayed += t->counts[0];
    v.ready += t->counts[1];
    v.reserved += t->counts[2];
    v.buried += t->counts[3];
  }
  const store_figures f = store_.figures();
  v.bytes_written = f.bytes_written;
  v.disk_bytes = f.disk_bytes;
  v.in_memory = entries_.size();
  v.uptime = std::chrono::duration_cast<std::chrono::seconds>(now_ - start_).count();
  v.draining = draining_;
  return v;
}

void broker::run_show(client& c, const command& cmd) {
  view shown;
  switch (cmd.what) {
    case verb::stats_task: {
      entry* e = find_named(c, cmd);
      if (e == nullptr) return say(c, answer::not_found);
      task_view v = view_of(*e);
      if (cmd.with_body) v.body = body_of(*e);
      shown = std::move(v);
      break;
    }
    case verb::survey:
      shown = survey(cmd);
      break;
    case verb::forecast:
      shown = forecast(cmd.number);
      break;
    case verb::show_cluster:
      shown = cluster_view();
      break;
    case verb::list_tasks: {
      tube* t = tube_of(c, cmd);
      if (t == nullptr || !may_touch(cmd, *t)) return say(c, answer::not_found);
      switch (cmd.state) {
        case task_state::delayed:
          shown = list(*t, t->delayed, cmd);
          break;
        case task_state::buried:
          shown = list(*t, t->buried, cmd);
          break;
        case task_state::ready:
          shown = list(*t, t->ready, cmd);
          break;
        case task_state::reserved:
          shown = list_reserved(*t, cmd);
          break;
      }
      break;
    }
    case verb::stats_tube: {
      tube* t = find_tube(cmd.text);
      if (t == nullptr) return say(c, answer::not_found);
      shown = view_of(*t);
      break;
    }
    case verb::stats:
      shown = view_of_all();
      break;
    default: {
      std::vector<std::string> names;
      const auto& tubes = cmd.what == verb::list_tubes ? tubes_in_order_ : c.watched_;
      for (const tube* t : tubes) {
        if (is_used(*t) && may_touch(cmd, *t)) names.push_back(t->name);
      }
      shown = std::move(names);
    }
  }
  reply r;
  r.what = answer::shown;
  r.shown = std::make_shared<const view>(std::move(shown));
  say(c, std::move(r));
}

}  // namespace verge::server
