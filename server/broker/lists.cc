// SPDX-License-Identifier: Apache-2.0

// Lists: a page of tubes, a page of tasks, and how many tasks fall due when.

#include <algorithm>
#include <limits>

#include "broker.h"

namespace verge::server {

namespace {

/// A page of tasks ends early when its bodies have this many bytes.
constexpr std::size_t most_body_bytes = 4U << 20;
/// A forecast looks at about so many tasks, of all tubes: it holds everything else up.
constexpr std::size_t most_foreseen = 50'000;
constexpr std::size_t least_of_a_tube = 10;

/// A task of a page, in memory or in the store alone.
template <class Key>
struct listed {
  Key at;
  entry* in_memory{nullptr};
  task stored;
};

template <class Order>
typename Order::key key_of(const list_position& p) {
  return Order::of(
      position{.where = {.kind = Order::kind, .priority = p.priority, .at = p.at}, .id = p.id});
}

/// What was reserved over a connection before a restart is ready now.
bool is_in(const task& t, place_kind kind) noexcept {
  switch (t.state) {
    case task_state::delayed:
      return kind == place_kind::delayed;
    case task_state::ready:
      return kind == place_kind::ready;
    case task_state::buried:
      return kind == place_kind::buried;
    case task_state::reserved:
      break;
  }
  return kind == place_kind::ready && t.bound_to_connection;
}

}  // namespace

survey_view broker::survey(const command& cmd) {
  survey_view v;
  v.now = wall_;
  std::vector<tube*> chosen;
  for (tube* t : tubes_in_order_) {
    if (is_used(*t) && t->name > cmd.text && may_touch(cmd, *t)) chosen.push_back(t);
  }
  const auto by_name = [](const tube* a, const tube* b) { return a->name < b->name; };
  const std::size_t n = std::min<std::size_t>(cmd.number, chosen.size());
  std::partial_sort(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(n), chosen.end(),
                    by_name);
  v.more = n < chosen.size();
  for (std::size_t i = 0; i < n; ++i) v.tubes.push_back(view_of(*chosen[i]));
  v.all = view_of_all();
  return v;
}

/// First what the window has, then what is about to leave memory, then what the store has behind
/// the window. What is in memory is known better there, so the store's record of it is not looked
/// at.
template <class Order>
list_view broker::list(tube& t, window<Order>& w, const command& cmd) {
  using key = typename Order::key;
  static_cast<void>(first_of(t, w));
  const key from = cmd.from ? key_of<Order>(*cmd.from) : Order::of(beginning_of(Order::kind));
  const std::size_t wanted = cmd.number + 1;
  std::vector<listed<key>> found;
  for (auto i = w.from(from); i != w.end() && found.size() < wanted; ++i) {
    found.push_back({.at = Order::of(*i), .in_memory = &*i, .stored = {}});
  }
  for (entry* e : leaving_) {
    if (e->home != &t || e->removed || e->order.is_linked() || !is_in(e->fields, Order::kind) ||
        Order::of(*e) < from) {
      continue;
    }
    found.push_back({.at = Order::of(*e), .in_memory = e, .stored = {}});
  }
  position next = w.next();
  if (Order::of(next) < from) next = Order::at(from);
  for (bool more = !w.is_complete(); more && found.size() < wanted + leaving_.size();) {
    std::vector<stored_task> page = store_.scan(t.number, next, wanted);
    more = page.size() == wanted;
    if (!page.empty()) next = {.where = page.back().where, .id = page.back().fields.id + 1};
    for (stored_task& s : page) {
      if (entries_.find(s.fields.id) != nullptr || !is_in(s.fields, Order::kind)) continue;
      found.push_back({.at = Order::of(position{.where = s.where, .id = s.fields.id}),
                       .in_memory = nullptr,
                       .stored = std::move(s.fields)});
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.at < b.at; });

  list_view v;
  std::size_t bytes = 0;
  for (listed<key>& l : found) {
    if (v.tasks.size() == cmd.number || bytes >= most_body_bytes) {
      const position at = Order::at(l.at);
      v.next = {.priority = at.where.priority, .at = at.where.at, .id = at.id};
      break;
    }
    entry alone;
    if (l.in_memory == nullptr) {
      alone.fields = std::move(l.stored);
      alone.home = &t;
    }
    show_in(v, l.in_memory != nullptr ? *l.in_memory : alone, cmd, bytes);
  }
  return v;
}

void broker::show_in(list_view& page, entry& e, const command& cmd, std::size_t& bytes) {
  task_view shown = view_of(e);
  if (cmd.with_body) {
    shown.body = e.body != nullptr
                     ? e.body
                     : std::make_shared<const std::string>(store_.body_of(e.fields.id));
    bytes += shown.body->size();
  }
  page.tasks.push_back(std::move(shown));
}

/// Leases that are in force are in memory, in no order but that of their ends: they are listed by
/// id.
list_view broker::list_reserved(tube& t, const command& cmd) {
  static_cast<void>(first_of(t, t.ready));  // a lease that has outlasted a restart is seen now
  std::uint64_t left = t.count(task_state::reserved);
  std::vector<entry*> found;
  if (left != 0) {
    entries_.visit([&](entry& e) {
      if (e.home != &t || e.removed || e.fields.state != task_state::reserved) return true;
      if (!cmd.from || e.fields.id >= cmd.from->id) found.push_back(&e);
      return --left != 0;
    });
  }
  const std::size_t n = std::min<std::size_t>(found.size(), cmd.number + 1);
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(n), found.end(),
                    [](entry* a, entry* b) { return a->fields.id < b->fields.id; });
  list_view v;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (v.tasks.size() == cmd.number || bytes >= most_body_bytes) {
      v.next = {.priority = 0, .at = 0, .id = found[i]->fields.id};
      break;
    }
    show_in(v, *found[i], cmd, bytes);
  }
  return v;
}

template list_view broker::list(tube&, window<delayed_window_order>&, const command&);
template list_view broker::list(tube&, window<ready_window_order>&, const command&);
template list_view broker::list(tube&, window<buried_window_order>&, const command&);

/// Takes what a census has counted, and begins one if there is something to count. In a round,
/// before what it changes is written: the store is as the last round has left it.
void broker::look_ahead() {
  if (census_ != nullptr && census_->is_done()) {
    outlook_.end(census_->counted());
    has_census_ = census_->counted().has_value();
    census_.reset();
  }
  if (!has_census_ || census_ != nullptr) return;
  const auto range = outlook_.wants(wall_);
  if (!range) return;
  std::vector<tube_number> tubes;
  for (const tube* t : tubes_in_order_) {
    if (t->on_disk.delayed != 0) tubes.push_back(t->number);
  }
  census_ = store_.take_census(std::move(tubes), *range);
  has_census_ = census_ != nullptr;
  if (!has_census_) return;
  outlook_.begin(*range);
  if (!census_->is_done()) {
    begun_census_ = census_;
    return;
  }
  outlook_.end(census_->counted());
  census_.reset();
}

/// Tasks that have fallen due may still be counted in this minute: if memory has all of it, memory
/// knows better.
forecast_view broker::forecast(std::size_t minutes) {
  look_ahead();
  const wall_time from = wall_ / minute * minute;
  forecast_view v;
  v.minutes = outlook_.ahead(wall_, minutes);
  if (v.minutes.empty()) return forecast_of_windows(from, minutes);
  const forecast_view near = forecast_of_windows(from, 1);
  if (!near.known_until) v.minutes.front() = near.minutes.front();
  if (v.minutes.size() == minutes) return v;
  v.known_until = due_after(from, static_cast<nanoseconds>(v.minutes.size()) * minute);
  v.minutes.resize(minutes);
  return v;
}

/// By what is in memory.
forecast_view broker::forecast_of_windows(wall_time from, std::size_t minutes) {
  forecast_view v;
  v.minutes.resize(minutes);
  const wall_time end = due_after(from, static_cast<nanoseconds>(minutes) * minute);
  const auto known_until = [&](wall_time until) {
    if (until < end) v.known_until = std::min(until, v.known_until.value_or(until));
  };
  std::vector<tube*> tubes;
  for (tube* t : tubes_in_order_) {
    if (t->count(task_state::delayed) != 0) tubes.push_back(t);
  }
  // What small tubes leave of their share is for the large ones.
  std::sort(tubes.begin(), tubes.end(), [](tube* a, tube* b) {
    return a->count(task_state::delayed) < b->count(task_state::delayed);
  });
  std::size_t left = most_foreseen;
  for (std::size_t i = 0; i < tubes.size(); ++i) {
    tube* const t = tubes[i];
    static_cast<void>(first_of(*t, t->delayed));
    const std::size_t most = std::max(left / (tubes.size() - i), least_of_a_tube);
    std::size_t seen = 0;
    for (const entry& e : t->delayed) {
      if (e.fields.due >= end) break;
      if (++seen > most) {
        known_until(e.fields.due);
        break;
      }
      const nanoseconds ahead = std::max<nanoseconds>(e.fields.due - from, 0);
      ++v.minutes[static_cast<std::size_t>(ahead / minute)];
    }
    left -= std::min(left, seen);
    if (!t->delayed.is_complete()) known_until(t->delayed.next().where.at);
  }
  return v;
}

}  // namespace verge::server
