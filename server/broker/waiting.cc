// SPDX-License-Identifier: Apache-2.0

// Leases, and clients that wait for a task.

#include <algorithm>
#include <array>
#include <chrono>

#include "broker.h"
#include "keyed_hash.h"

namespace verge::server {

namespace {

/// In the last second of a lease its client is not left waiting for another task.
constexpr std::chrono::nanoseconds safety_margin = std::chrono::seconds(1);

clock::time_point after(clock::time_point now, nanoseconds d) noexcept {
  const auto most = clock::time_point::max() - now;
  return now + std::min<clock::duration>(most, std::chrono::nanoseconds(d));
}

}  // namespace

/// No two leases that this process gives have the same message.
lease_token broker::new_token(const entry& e) noexcept {
  const lease_token token = keyed_hash(
      options_.token_key, std::array{e.fields.id, std::uint64_t{e.fields.reserves}, ++leases_});
  return token != 0 ? token : 1;
}

/// The first of all ready tasks in the tubes that the client watches.
entry* broker::best_for(client& c) {
  entry* best = nullptr;
  for (tube* t : c.watched_) {
    if (is_paused(*t)) continue;
    entry* e = first_of(*t, t->ready);
    if (e == nullptr) continue;
    if (best == nullptr || ready_order_of(e->fields) < ready_order_of(best->fields)) best = e;
  }
  return best;
}

void broker::lease(client& c, entry& e, bool any_state, handed_out& to) {
  take_out(e);
  const lease_token token = new_token(e);
  static_cast<void>(server::reserve(e.fields, token, wall_, any_state));
  ++e.home->reserves;
  e.fields.bound_to_connection = c.leases_ != client::leases::by_token;
  put_in(e);
  write_lease(e);
  e.lease_end = after(now_, e.fields.ttr);
  e.lease = alarms_.start(e.lease_end, {&broker::on_lease_end, this, &e});
  to = {.id = e.fields.id, .token = token, .body = body_of(e), .fields = nullptr};
  if (e.fields.bound_to_connection) {
    e.holder = &c;
    c.held_.push_back(e);
  }
  if (c.leases_ != client::leases::bound) to.fields = std::make_shared<const task>(e.fields);
}

/// A reservation, or its end: written now, or when the task leaves memory.
void broker::write_lease(entry& e) {
  if (options_.durable_leases) {
    write_later(e);
  } else {
    e.unsaved = true;
  }
}

void broker::end_lease(entry& e) noexcept {
  alarms_.stop(e.lease);
  e.lease = {};
  if (e.holder == nullptr) return;
  e.holder->held_.erase(e.holder->held_.iterator_to(e));
  e.holder = nullptr;
}

bool broker::hand_out(client& c) {
  entry* e = best_for(c);
  if (e == nullptr) return false;
  reply r;
  r.what = answer::reserved;
  r.number = std::min<std::uint64_t>(c.wants_, 1);
  lease(c, *e, false, r.task);
  // Of several, as many as the client has room for.
  const std::size_t most = c.wants_ > 1 ? c.admits(c.said_) : 0;
  std::size_t bytes = r.task.body->size();
  while (r.number < c.wants_ && bytes < most && (e = best_for(c)) != nullptr) {
    ++r.number;
    lease(c, *e, false, r.more.emplace_back());
    bytes += r.more.back().body->size();
  }
  say(c, std::move(r));
  return true;
}

/// Ready tasks go to the clients that wait, the first to come first.
void broker::serve(tube& t) {
  while (!t.waiting.empty() && !is_paused(t) && first_of(t, t.ready) != nullptr) {
    if (is_round_full()) return unserved_.push_back(t.number);
    client& c = *t.waiting.begin()->second;
    stop_waiting(c);
    hand_out(c);
  }
}

std::optional<clock::time_point> broker::first_lease_end(client& c) noexcept {
  std::optional<clock::time_point> first;
  if (c.leases_ == client::leases::internal) return first;  // it does one thing with each
  for (const entry& e : c.held_) {
    if (!first || e.lease_end < *first) first = e.lease_end;
  }
  return first;
}

void broker::wait(client& c, std::optional<nanoseconds> limit, std::uint64_t wants) {
  c.wants_ = wants;
  if (hand_out(c)) return;
  const auto lease_end = first_lease_end(c);
  if (lease_end && *lease_end - safety_margin <= now_) {
    // A paused tube's tasks count as well: they are ready, only not handed out.
    const bool something_ready = std::any_of(
        c.watched_.begin(), c.watched_.end(),
        [](const tube* t) { return t->counts[static_cast<std::size_t>(task_state::ready)] != 0; });
    if (!something_ready) return say(c, answer::deadline_soon);
  }
  if ((limit && *limit <= 0) || c.half_closed_) return say(c, answer::timed_out);
  c.waits_ = true;
  c.wait_until_ = limit ? after(now_, *limit) : clock::time_point::max();
  c.wait_number_ = next_wait_++;
  for (tube* t : c.watched_) t->waiting.insert({c.wait_number_, &c});
  ++figures_.waiting;
  clock::time_point wake = c.wait_until_;
  if (lease_end) wake = std::min(wake, std::max(now_, *lease_end - safety_margin));
  if (wake != clock::time_point::max()) {
    c.wait_end_ = alarms_.start(wake, {&broker::on_wait_end, this, &c});
  }
}

/// The reply is said right after. What the client has sent meanwhile comes next.
void broker::stop_waiting(client& c) {
  if (!c.waits_) return;
  c.waits_ = false;
  alarms_.stop(c.wait_end_);
  c.wait_end_ = {};
  --figures_.waiting;
  for (tube* t : c.watched_) t->waiting.erase({c.wait_number_, &c});
  resume_later(c);
}

void broker::on_wait_end(broker& b, void* about) {
  client& c = *static_cast<client*>(about);
  c.wait_end_ = {};
  const bool late = c.wait_until_ <= b.now_;
  b.stop_waiting(c);
  b.say(c, late ? answer::timed_out : answer::deadline_soon);
}

void broker::on_lease_end(broker& b, void* about) {
  entry& e = *static_cast<entry*>(about);
  ++b.figures_.timeouts;
  b.take_out(e);
  e.lease = {};
  b.end_lease(e);
  if (expire(e.fields, e.fields.token, b.wall_) == outcome::dead) {
    b.bury_or_move(e);
    b.write_later(e);
  } else if (e.fields.state == task_state::delayed) {
    b.write_later(e);
  } else {
    b.write_lease(e);
  }
  b.put_in(e);
}

void broker::on_pause_end(broker& b, void* about) {
  tube& t = *static_cast<tube*>(about);
  t.pause_end = {};
  t.paused_until = {};
  t.pause = 0;
  t.on_disk.paused_until = 0;
  t.on_disk.pause = 0;
  b.change(t);  // or a clock that is set back would let it begin again at a restart
  b.serve(t);
}

}  // namespace verge::server
