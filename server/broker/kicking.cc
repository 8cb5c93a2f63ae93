// SPDX-License-Identifier: Apache-2.0

// Kicks. One that is about many tasks is done in pieces, a round for each: so its batches are
// small, and so is what is in memory for it. Each piece is atomic with its batch, the whole is not:
// other clients get what has been kicked already, and a crash leaves the rest as it was. It kicks
// no more tasks than there were when it began, and is answered when all is done and durable.

#include <algorithm>
#include <utility>

#include "broker.h"

namespace verge::server {

void broker::run_kick(client& c, const command& cmd) {
  if (cmd.what == verb::kick_task) return run_kick_task(c, cmd);
  tube* const t = tube_of(c, cmd);
  if (t == nullptr) return say(c, answer::not_found);
  if (!may_touch(cmd, *t)) return say(c, answer::denied);
  const bool buried = t->count(task_state::buried) != 0;
  const std::uint64_t there = t->count(buried ? task_state::buried : task_state::delayed);
  pending_kick k;
  k.by = &c;
  k.tube = t->number;
  k.buried = buried;
  k.left = std::min(cmd.number, there);
  kick_some(k, options_.chunk);
  if (k.left == 0) return say(c, answer::kicked, k.kicked);
  c.kicks_ = true;
  kicks_.push_back(std::move(k));
}

void broker::run_kick_task(client& c, const command& cmd) {
  entry* e = find_allowed(cmd);
  if (e == nullptr ||
      (e->fields.state != task_state::buried && e->fields.state != task_state::delayed)) {
    return say(c, answer::not_found);
  }
  tube& t = *e->home;
  kick(*e);
  note_due(t);
  say(c, answer::kicked_task);
}

void broker::kick(entry& e) {
  take_out(e);
  static_cast<void>(server::kick(e.fields, wall_));
  write_later(e);
  put_in(e);
}

void broker::kick_some(pending_kick& k, std::size_t most) {
  const auto found = tubes_.find(k.tube);
  if (found == tubes_.end()) {
    k.left = 0;
    return;
  }
  tube& t = *found->second;
  for (; most > 0 && k.left > 0; --most) {
    entry* const e = k.buried ? first_of(t, t.buried) : first_of(t, t.delayed);
    if (e == nullptr) {
      k.left = 0;
      break;
    }
    kick(*e);
    --k.left;
    ++k.kicked;
  }
  note_due(t);
}

/// The next piece of each kick that goes on.
void broker::go_on_kicking() {
  if (kicks_.empty()) return;
  const std::size_t share = std::max<std::size_t>(options_.chunk / kicks_.size(), 1);
  std::vector<pending_kick> going = std::exchange(kicks_, {});
  for (pending_kick& k : going) {
    kick_some(k, share);
    if (k.left != 0) {
      kicks_.push_back(std::move(k));
      continue;
    }
    k.by->kicks_ = false;
    reply r;
    r.what = answer::kicked;
    r.number = k.kicked;
    if (k.once != nullptr) keep_answer(*k.once, r);
    say(*k.by, std::move(r));
    resume_later(*k.by);
  }
}

/// The store has failed. Some pieces were done, and the others are not.
void broker::stop_kicking() {
  for (const pending_kick& k : std::exchange(kicks_, {})) {
    k.by->kicks_ = false;
    say(*k.by, answer::internal_error);
    resume_later(*k.by);
  }
}

}  // namespace verge::server
