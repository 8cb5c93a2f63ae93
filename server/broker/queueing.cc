// SPDX-License-Identifier: Apache-2.0

// Tasks, their windows and their records in the store.

#include <algorithm>
#include <limits>
#include <utility>

#include "broker.h"

namespace verge::server {

namespace {

/// Ids are written down in blocks: a block that was begun is not used after a restart.
constexpr std::uint64_t ids_at_once = 1'000'000;

/// How a task is counted of which only the place is known.
task_state state_by(place_kind kind) noexcept {
  switch (kind) {
    case place_kind::delayed:
      return task_state::delayed;
    case place_kind::buried:
      return task_state::buried;
    case place_kind::ready:
    case place_kind::none:
      break;
  }
  return task_state::ready;
}

}  // namespace

task_id broker::next_id() {
  if (next_id_ >= id_ceiling_) {
    id_ceiling_ = next_id_ + ids_at_once * options_.id_divisor;
    new_marks_ = true;
  }
  return std::exchange(next_id_, next_id_ + options_.id_divisor);
}

entry& broker::create(tube& t, new_task& n) {
  auto made = std::make_unique<entry>();
  entry& e = *made;
  task& f = e.fields;
  f.id = next_id();
  f.tube = t.number;
  f.priority = n.priority;
  f.ttr = n.ttr;
  f.key = std::move(n.key);
  f.max_attempts = n.max_attempts;
  f.backoff = n.backoff;
  f.dead_letter = std::move(n.dead_letter);
  if (!n.url.empty()) {
    f.push = std::make_shared<const push_part>(push_part{.url = std::move(n.url), .answer = {}});
  }
  server::begin(f, wall_, n.due ? delay_until(wall_, *n.due) : n.delay);
  e.home = &t;
  e.body = std::make_shared<const std::string>(std::move(n.body));
  body_bytes_ += e.body->size();
  entries_.insert(std::move(made));
  if (!f.key.empty()) keys_[{t.number, f.key}] = f.id;
  ++t.total;
  ++figures_.total;
  write_later(e);
  put_in(e);
  return e;
}

entry* broker::find(task_id id) {
  if (entry* e = entries_.find(id)) return e->removed ? nullptr : e;
  if (id == 0 || id >= next_id_ || id % options_.id_divisor != options_.id_remainder)
    return nullptr;
  auto s = store_.find(id);
  if (!s) return nullptr;
  entry& e = load(std::move(*s));
  if (e.fields.state != task_state::reserved) put_in(e);
  return &e;
}

entry* broker::find_by_key(tube& t, const std::string& key) {
  if (const auto noted = keys_.find({t.number, key}); noted != keys_.end()) {
    return noted->second == 0 ? nullptr : find(noted->second);
  }
  const auto id = store_.find_key(t.number, key);
  return id ? find(*id) : nullptr;
}

/// Brings a task into memory. It is counted by its state from here on, once it is put in; a lease
/// that has outlasted a restart is in force again.
entry& broker::load(stored_task s) {
  auto made = std::make_unique<entry>();
  entry& e = *made;
  e.fields = std::move(s.fields);
  e.stored_at = s.where;
  e.stored_tube = e.fields.tube;
  e.changed = s.changed;
  e.home = tubes_.at(e.fields.tube).get();
  entries_.insert(std::move(made));
  tube& t = *e.home;
  --t.count(state_by(e.stored_at.kind));
  if (e.stored_at.kind == place_kind::ready && e.stored_at.priority < urgent_below) --t.urgent;
  if (e.fields.state != task_state::reserved) {
    if (due_order_of(e.fields) <= t.due_mark) {
      static_cast<void>(server::fall_due(e.fields, e.fields.due));
    }
    return e;
  }
  const nanoseconds left = std::min(e.fields.lease_end - wall_, e.fields.ttr);
  if (e.fields.bound_to_connection) {
    // It keeps its place in the order, which must not depend on when it is looked at.
    static_cast<void>(give_back(e.fields, e.fields.token, std::max(wall_, e.fields.due)));
    if (e.stored_at.kind == place_kind::buried) write_later(e);
  } else if (left <= 0) {
    ++figures_.timeouts;
    if (expire(e.fields, e.fields.token, wall_) == outcome::dead) {
      bury_or_move(e);
    }
    write_later(e);
  } else {
    e.lease_end = now_ + std::chrono::nanoseconds(left);
    e.lease = alarms_.start(e.lease_end, {&broker::on_lease_end, this, &e});
    ++t.count(task_state::reserved);
  }
  return e;
}

const std::shared_ptr<const std::string>& broker::body_of(entry& e) {
  if (e.body == nullptr) {
    e.body = std::make_shared<const std::string>(store_.body_of(e.fields.id));
    body_bytes_ += e.body->size();
    let_go(e);
  }
  return e.body;
}

/// Out of the window that it is in, before its state changes. A task that is not in memory but for
/// this round is in none.
void broker::take_out(entry& e) noexcept {
  tube& t = *e.home;
  --t.count(e.fields.state);
  if (e.fields.state == task_state::ready && e.fields.priority < urgent_below) --t.urgent;
  if (!e.order.is_linked()) return;
  switch (e.fields.state) {
    case task_state::delayed:
      t.delayed.erase(e);
      break;
    case task_state::ready:
      t.ready.erase(e);
      break;
    case task_state::buried:
      t.buried.erase(e);
      break;
    case task_state::reserved:
      break;
  }
}

/// Into the window of its state, or back to the store.
void broker::put_in(entry& e) {
  tube& t = *e.home;
  ++t.count(e.fields.state);
  switch (e.fields.state) {
    case task_state::delayed:
      // The clock was set back.
      if (due_order_of(e.fields) <= t.due_mark) lower_due_marks();
      place_in(t.delayed, e);
      note_due(t);
      break;
    case task_state::ready:
      if (e.fields.priority < urgent_below) ++t.urgent;
      place_in(t.ready, e);
      if (!filling_) {
        serve(t);
      } else if (!t.waiting.empty()) {
        unserved_.push_back(t.number);
      }
      break;
    case task_state::buried:
      place_in(t.buried, e);
      break;
    case task_state::reserved:
      break;
  }
}

template <class Order>
void broker::place_in(window<Order>& w, entry& e) {
  if (w.covers(Order::of(e))) {
    w.insert(e);
    if (entries_.size() <= options_.most_in_memory || w.size() <= options_.chunk) return;
    entry& last = w.drop_last();
    if (last.unsaved || place_for(last) != last.stored_at) write_later(last);
    let_go(last);
    return;
  }
  if (e.unsaved || place_for(e) != e.stored_at) write_later(e);
  let_go(e);
}

/// Reads the next part of the index. What is in memory already, in whatever state, is known better
/// there. The window may be empty after that: what was read may be ready, or reserved. Returns how
/// many tasks were brought into memory that are not in it.
template <class Order>
std::size_t broker::read_on(tube& t, window<Order>& w) {
  // Nothing is handed out before all that was read is in its window.
  const bool outer = std::exchange(filling_, true);
  std::vector<stored_task> found = store_.scan(t.number, w.next(), options_.chunk);
  if (found.size() < options_.chunk) {
    w.read_all();
  } else {
    const stored_task& last = found.back();
    w.read_up_to(Order::of(position{.where = last.where, .id = last.fields.id + 1}));
  }
  std::size_t elsewhere = 0;
  for (stored_task& s : found) {
    if (entries_.find(s.fields.id) != nullptr) continue;
    entry& e = load(std::move(s));
    if (e.fields.state != state_by(Order::kind)) ++elsewhere;
    if (e.fields.state != task_state::reserved) put_in(e);
  }
  // Those that were about to be in the store only, and may not be there yet.
  for (entry* e : leaving_) {
    if (e->home == &t && !e->removed && !e->order.is_linked() &&
        state_by(Order::kind) == e->fields.state && w.covers(Order::of(*e))) {
      w.insert(*e);
    }
  }
  filling_ = outer;
  return elsewhere;
}

template <class Order>
entry* broker::first_of(tube& t, window<Order>& w) {
  while (w.is_hungry()) read_on(t, w);
  return w.empty() ? nullptr : &w.first();
}

template std::size_t broker::read_on(tube&, window<delayed_window_order>&);

template entry* broker::first_of(tube&, window<delayed_window_order>&);
template entry* broker::first_of(tube&, window<ready_window_order>&);
template entry* broker::first_of(tube&, window<buried_window_order>&);

/// After this round the task need not be in memory, unless it is in a window then.
void broker::let_go(entry& e) {
  if (e.leaving) return;
  e.leaving = true;
  leaving_.push_back(&e);
}

void broker::write_later(entry& e) {
  if (e.dirty) return;
  e.dirty = true;
  dirty_.push_back(&e);
}

void broker::remove(entry& e) {
  take_out(e);
  end_lease(e);
  if (!e.fields.key.empty()) keys_[{e.home->number, e.fields.key}] = 0;
  e.removed = true;
  write_later(e);
  doubtful_tubes_.push_back(e.home);
}

/// No attempt is left. The task is reserved, and out of all windows.
void broker::bury_or_move(entry& e) {
  if (e.fields.dead_letter.empty()) {
    bury_dead(e.fields, next_burial());
    return;
  }
  const std::string destination = e.fields.dead_letter;
  const bool elsewhere = options_.elsewhere && options_.elsewhere(destination);
  tube& to = tube_named(elsewhere ? outbox : destination);
  if (!e.fields.key.empty()) {
    keys_[{e.home->number, e.fields.key}] = 0;
    old_keys_.try_emplace(e.fields.id, e.fields.key);
  }
  doubtful_tubes_.push_back(e.home);
  move_dead(e.fields, to.number, wall_);
  if (elsewhere) e.fields.dead_letter = destination;
  e.home = &to;
}

std::uint64_t broker::next_burial() {
  if (next_burial_ >= burial_ceiling_) {
    burial_ceiling_ = next_burial_ + ids_at_once;
    new_marks_ = true;
  }
  return next_burial_++;
}

/// Where the store has to have the task. A ready task that is in memory, and one that is reserved,
/// may stay in the index of delayed tasks if they have fallen due: there they are found after a
/// restart.
place broker::place_for(const entry& e) const noexcept {
  const task& t = e.fields;
  switch (t.state) {
    case task_state::delayed:
      return {.kind = place_kind::delayed, .priority = 0, .at = t.due};
    case task_state::buried:
      return {.kind = place_kind::buried, .priority = 0, .at = static_cast<std::int64_t>(t.burial)};
    case task_state::ready:
    case task_state::reserved:
      break;
  }
  const bool in_memory = e.order.is_linked() || t.state == task_state::reserved;
  if (in_memory && e.stored_tube == t.tube && e.stored_at.kind == place_kind::delayed &&
      due_order{.due = e.stored_at.at, .id = t.id} <= e.home->due_mark) {
    return e.stored_at;
  }
  return {.kind = place_kind::ready, .priority = t.priority, .at = t.due};
}

void broker::count_place(tube& t, const place& p, std::int64_t by) noexcept {
  const auto n = static_cast<std::uint64_t>(by);
  switch (p.kind) {
    case place_kind::delayed:
      t.on_disk.delayed += n;
      outlook_.count(p.at, by);
      break;
    case place_kind::ready:
      t.on_disk.ready += n;
      if (p.priority < urgent_below) t.on_disk.urgent += n;
      break;
    case place_kind::buried:
      t.on_disk.buried += n;
      break;
    case place_kind::none:
      break;
  }
  change(t);
}

const batch& broker::changes() {
  batch_.clear();
  add_due_marks();
  for (entry* e : dirty_) {
    const bool stored = e->stored_at.kind != place_kind::none;
    if (e->removed) {
      if (stored) {
        const auto old = old_keys_.find(e->fields.id);
        batch_.removals.push_back({.id = e->fields.id,
                                   .tube = e->stored_tube,
                                   .where = e->stored_at,
                                   .changed = e->changed,
                                   .key = old != old_keys_.end() ? old->second : e->fields.key});
        count_place(*tubes_.at(e->stored_tube), e->stored_at, -1);
      }
      continue;
    }
    const place where = place_for(*e);
    e->unsaved = false;
    if (stored) {
      const auto old = old_keys_.find(e->fields.id);
      batch_.updates.push_back(
          {.fields = &e->fields,
           .before = e->stored_at,
           .after = where,
           .tube_before = e->stored_tube,
           .key_before = old != old_keys_.end() ? old->second : e->fields.key});
      e->changed = true;
      if (where == e->stored_at && e->stored_tube == e->fields.tube) continue;
      count_place(*tubes_.at(e->stored_tube), e->stored_at, -1);
    } else {
      batch_.insertions.push_back({.fields = &e->fields, .where = where, .body = *e->body});
    }
    count_place(*e->home, where, 1);
    e->stored_at = where;
    e->stored_tube = e->fields.tube;
  }
  for (tube* t : changed_tubes_) {
    t->on_disk.due_mark = t->due_mark;
    batch_.tubes.push_back(t->on_disk);
    t->in_store = true;
    t->changed = false;
    doubtful_tubes_.push_back(t);
  }
  changed_tubes_.clear();
  std::sort(doubtful_tubes_.begin(), doubtful_tubes_.end());
  doubtful_tubes_.erase(std::unique(doubtful_tubes_.begin(), doubtful_tubes_.end()),
                        doubtful_tubes_.end());
  // Entries that are removed still point to their tube, but only until committed().
  for (tube* t : doubtful_tubes_) drop_if_unused(*t);
  doubtful_tubes_.clear();
  batch_.tubes_removed = std::exchange(removed_tubes_, {});
  for (auto& [name, text] : changed_notes_) {
    if (text) {
      batch_.notes.push_back({name, std::move(*text)});
    } else {
      batch_.notes_removed.push_back(name);
    }
  }
  changed_notes_.clear();
  if (new_marks_) {
    batch_.id_ceiling = id_ceiling_;
    batch_.burial_ceiling = burial_ceiling_;
    new_marks_ = false;
  }
  return batch_;
}

/// What a round has touched, when it is durable: it is forgotten if it need not be in memory.
void broker::settle(entry& e) {
  e.dirty = false;
  e.leaving = false;
  const bool reserved = e.fields.state == task_state::reserved;
  const bool stays = !e.removed && (e.order.is_linked() || reserved);
  // The body of a task that is not handed out soon is the store's.
  const bool soon = stays && (reserved || e.fields.state == task_state::ready);
  if (e.body != nullptr && (!soon || body_bytes_ > options_.body_bytes)) {
    body_bytes_ -= e.body->size();
    e.body.reset();
  }
  if (!stays) entries_.erase(e);
}

void broker::committed() {
  // What the failed round has left behind is not looked at again.
  if (failed_) return deliver();
  for (entry* e : leaving_) {
    if (!e->dirty) settle(*e);
  }
  for (entry* e : dirty_) settle(*e);
  leaving_.clear();
  dirty_.clear();
  keys_.clear();
  old_keys_.clear();
  deliver();
}

}  // namespace verge::server
