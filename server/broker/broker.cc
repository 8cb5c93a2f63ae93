// SPDX-License-Identifier: Apache-2.0

// What the broker begins with, the clients that come and leave, and the replies that they get.

#include "broker.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace verge::server {

namespace {

/// What a reply weighs until its client has it: bodies, and names in lists.
std::size_t weight_of(const reply& r) {
  std::size_t bytes = sizeof r + r.text.size();
  const auto add = [&](const handed_out& t) {
    if (t.body != nullptr) bytes += t.body->size();
  };
  add(r.task);
  for (const handed_out& t : r.more) add(t);
  if (r.shown == nullptr) return bytes;
  if (const auto* const names = std::get_if<std::vector<std::string>>(r.shown.get())) {
    for (const std::string& n : *names) bytes += n.size();
  } else if (const auto* const list = std::get_if<list_view>(r.shown.get())) {
    for (const task_view& t : list->tasks) bytes += t.body != nullptr ? t.body->size() : 0;
  }
  return bytes;
}

}  // namespace

broker::broker(store& s, broker_options options) : store_(s), options_(std::move(options)) {}

broker::~broker() {
  for (auto& [c, shared] : clients_) c->held_.clear();
}

void broker::recover(clock::time_point now, wall_time wall) {
  const recovered r = store_.recover();
  begin(now, wall);
  start_ = now;
  // The first from there on that is of this shard.
  const std::uint64_t beyond = r.id_ceiling % options_.id_divisor;
  next_id_ =
      r.id_ceiling + (options_.id_remainder + options_.id_divisor - beyond) % options_.id_divisor;
  if (next_id_ == 0) next_id_ = options_.id_divisor;
  id_ceiling_ = next_id_;
  next_burial_ = r.burial_ceiling;
  burial_ceiling_ = r.burial_ceiling;
  for (const note& n : r.notes) {
    recover_push(n);
    recover_schedule(n);
    recover_once(n);
    recover_limit(n);
  }
  for (const tube_record& record : r.tubes) next_tube_ = std::max(next_tube_, record.number + 1);
  // The one that always exists is the first in the list, whether the store knows it or not.
  const auto is_default = [](const tube_record& t) { return t.name == "default"; };
  std::vector<tube_record> records = r.tubes;
  std::stable_partition(records.begin(), records.end(), is_default);
  if (records.empty() || !is_default(records.front())) {
    static_cast<void>(tube_named("default"));
  }
  for (const tube_record& record : records) {
    tube* const t = &add_tube(record.number, record.name);
    t->on_disk = record;
    t->due_mark = record.due_mark;
    t->in_store = true;
    t->count(task_state::delayed) = record.delayed;
    t->count(task_state::ready) = record.ready;
    t->count(task_state::buried) = record.buried;
    t->urgent = record.urgent;
    if (record.delayed != 0) t->delayed.forget();
    if (record.ready != 0) t->ready.forget();
    if (record.buried != 0) t->buried.forget();
    const nanoseconds left = std::min(record.paused_until - wall, record.pause);
    if (left > 0) {
      t->pause = record.pause;
      t->paused_until = now + std::chrono::nanoseconds(left);
      t->pause_end = alarms_.start(t->paused_until, {&broker::on_pause_end, this, t});
    }
    note_due(*t);
    doubtful_tubes_.push_back(t);
  }
}

void broker::begin(clock::time_point now, wall_time wall) noexcept {
  stepped_back_ = stepped_back_ || wall < wall_;
  now_ = now;
  wall_ = wall;
}

void broker::join(client& c) {
  c.joined_ = true;
  if (c.leases_ == client::leases::internal) return;
  tube& t = tube_named("default");
  c.used_ = &t;
  ++t.users;
  c.watched_.push_back(&t);
  ++t.watchers;
  ++figures_.connections;
  ++figures_.connections_ever;
}

/// What the client holds is ready again; what it waits for is not waited for any more.
void broker::leave(client& c) {
  if (c.left_) return;
  c.behind_.clear();
  stop_waiting(c);
  if (c.resumed_) std::erase(resumed_, &c);
  if (c.kicks_) std::erase_if(kicks_, [&](const pending_kick& k) { return k.by == &c; });
  // After a failure nothing is given back: no other client may get it, and the process ends.
  if (failed_) c.held_.clear();
  while (!c.held_.empty()) {
    entry& e = c.held_.front();
    take_out(e);
    end_lease(e);
    static_cast<void>(give_back(e.fields, e.fields.token, wall_));
    write_lease(e);
    put_in(e);
  }
  if (c.used_ != nullptr) {
    --c.used_->users;
    doubtful_tubes_.push_back(c.used_);
    --figures_.connections;
  }
  for (tube* t : c.watched_) {
    --t->watchers;
    doubtful_tubes_.push_back(t);
  }
  c.watched_.clear();
  if (c.puts_) --figures_.producers;
  if (c.works_) --figures_.workers;
  c.left_ = true;
  // Replies of this round may still name it.
  if (const auto found = clients_.find(&c); found != clients_.end()) {
    left_.push_back(std::move(found->second));
    clients_.erase(found);
  }
}

void broker::say(client& c, reply r) {
  const std::size_t bytes = weight_of(r);
  c.said_ += bytes;
  round_bytes_ += bytes;
  replies_.emplace_back(&c, std::move(r));
}

void broker::say(client& c, answer a, std::uint64_t number) {
  reply r;
  r.what = a;
  r.number = number;
  say(c, std::move(r));
}

void broker::deliver() {
  std::vector<client*> to_flush;
  for (auto& [c, r] : replies_) {
    if (!c->to_flush_) {
      c->to_flush_ = true;
      c->said_ = 0;
      to_flush.push_back(c);
    }
    c->deliver(std::move(r));
  }
  replies_.clear();
  round_bytes_ = 0;
  for (client* c : to_flush) {
    c->to_flush_ = false;
    c->flush();
  }
  for (const shared_client& c : left_) c->left();
  left_.clear();
}

void broker::fail(const std::string& why, answer of_round) {
  failed_ = true;
  for (auto& [c, r] : replies_) {
    r = {};
    r.what = of_round;
    // What happened to a disk is for the log: it names paths.
    if (options_.shared) r.text = why;
  }
  for (auto& [c, shared] : clients_) {
    if (!c->waits_) continue;
    stop_waiting(*c);
    say(*c, options_.shared ? answer::moved : answer::internal_error);
  }
  stop_kicking();
  resume();
  deliver();
}

void broker::note_commit(std::uint64_t commands, std::uint64_t took) noexcept {
  ++figures_.batches;
  figures_.batched_commands += commands;
  figures_.sync_nanoseconds += took;
}

void broker::close_books() {
  id_ceiling_ = next_id_;
  burial_ceiling_ = next_burial_;
  new_marks_ = true;
}

}  // namespace verge::server
