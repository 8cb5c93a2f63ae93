// SPDX-License-Identifier: Apache-2.0

#include "session.h"

#include <algorithm>
#include <utility>

#include "router.h"

namespace verge::server::cluster {

namespace {

using namespace std::chrono_literals;

/// How long a command waits for its shard to have an owner: longer than it takes to notice that the
/// last one has crashed.
constexpr auto patience = 25s;
constexpr auto pause_between = 20ms;
/// After that a server that says nothing is given up, whatever the leases say.
constexpr auto longest_answer_time = 40s;
constexpr auto answer_time_of_one_that_left = 1s;
/// Commands that are under way together.
constexpr std::size_t most_together = 256;

bool goes_to_all(verb v) noexcept {
  switch (v) {
    case verb::stats:
    case verb::survey:
    case verb::forecast:
    case verb::list_tubes:
    case verb::set_schedule:
    case verb::remove_schedule:
    case verb::show_schedule:
    case verb::list_schedules:
      return true;
    default:
      return false;
  }
}

/// Those that name a task by its id. Some may name it by its key instead.
bool is_by_id(const command& c) noexcept {
  switch (c.what) {
    case verb::reserve_task:
    case verb::remove:
    case verb::release:
    case verb::bury:
    case verb::touch:
    case verb::give_back:
    case verb::postpone:
    case verb::kick_task:
    case verb::peek:
      return true;
    case verb::cancel:
    case verb::reschedule:
    case verb::stats_task:
      return c.text.empty();
    default:
      return false;
  }
}

bool is_on_lease(verb v) noexcept {
  return v == verb::remove || v == verb::release || v == verb::bury || v == verb::touch;
}

/// Those that can be under way with others: they are answered at once, by one shard.
bool is_passed_on(const command& c) noexcept {
  switch (c.what) {
    case verb::reserve:
    case verb::use:
    case verb::used:
    case verb::watch:
    case verb::ignore:
    case verb::list_watched:
    case verb::auth:
    case verb::drain:
    case verb::backup:
    case verb::arrive:
    case verb::say:
    case verb::quit:
    case verb::show_cluster:
      return false;
    default:
      return !goes_to_all(c.what);
  }
}

command prepared(reply r) {
  command c(verb::say);
  c.prepared = std::move(r);
  return c;
}

}  // namespace

void session::submit(command c) {
  {
    std::lock_guard held(lock_);
    inbox_.push_back({.lane = 0, .what = std::move(c), .said = {}});
  }
  wake();
}

void session::heard(std::uint64_t lane, reply r) {
  std::lock_guard held(lock_);
  inbox_.push_back({.lane = lane, .what = {}, .said = std::move(r)});
}

/// Sorts what has come. What a lane says that was dropped is not heard.
void session::collect() {
  std::deque<event> taken;
  {
    std::lock_guard held(lock_);
    taken.swap(inbox_);
  }
  for (event& e : taken) {
    if (e.lane != 0) {
      const auto found = replies_.find(e.lane);
      if (found != replies_.end()) found->second.push_back(std::move(e.said));
    } else if (e.what.what == verb::leave) {
      left_ = true;
    } else if (e.what.what == verb::half_close) {
      half_closed_ = true;
    } else if (e.what.what != verb::arrive && e.what.what != verb::go_on) {
      work_.push_back(std::move(e.what));
    }
  }
}

verge::task<> session::wait_until(clock::time_point when) {
  alarm_.reset_at(when);
  static_cast<void>(co_await recv(woken_));
}

void session::tell(reply r) { front_->deliver(std::move(r)); }

void session::tell(answer a, std::uint64_t number, std::string text) {
  reply r;
  r.what = a;
  r.number = number;
  r.text = std::move(text);
  tell(std::move(r));
}

verge::task<> session::run(std::shared_ptr<session> self) {
  session& me = *self;
  const std::weak_ptr<session> weak = self;
  me.alarm_ = after_func(24h, [weak] {
    if (const auto s = weak.lock()) s->wake();
  });
  for (;;) {
    me.collect();
    if (me.left_) break;
    if (me.work_.empty() || me.front_->admits(0) == 0) {
      static_cast<void>(co_await recv(me.woken_));
    } else {
      co_await me.execute_first();
      if (!me.left_) me.front_->flush();
    }
  }
  me.leave();
}

verge::task<> session::execute_first() {
  command& c = work_.front();
  if (is_passed_on(c)) {
    if ((c.what != verb::put && c.what != verb::put_many) || !router_.is_draining()) {
      co_await pass_on();
      co_return;
    }
    work_.pop_front();
    tell(answer::draining);
    co_return;
  }
  command taken = std::move(c);
  work_.pop_front();
  if (taken.what == verb::quit) {
    left_ = true;
  } else if (taken.what == verb::reserve) {
    co_await reserve(std::move(taken));
  } else if (taken.what == verb::show_cluster) {
    co_await show_cluster();
  } else if (!run_here(taken)) {
    co_await gather(std::move(taken));
  }
}

/// What needs no shard.
bool session::run_here(command& c) {
  switch (c.what) {
    case verb::use:
      used_ = c.text;
      tell(answer::using_tube, 0, used_);
      return true;
    case verb::used:
      tell(answer::using_tube, 0, used_);
      return true;
    case verb::watch:
      if (std::find(watched_.begin(), watched_.end(), c.text) == watched_.end()) {
        watched_.push_back(c.text);
      }
      tell(answer::watching, watched_.size());
      return true;
    case verb::ignore: {
      const auto at = std::find(watched_.begin(), watched_.end(), c.text);
      if (at != watched_.end() && watched_.size() == 1) {
        tell(answer::not_ignored);
        return true;
      }
      if (at != watched_.end()) watched_.erase(at);
      tell(answer::watching, watched_.size());
      return true;
    }
    case verb::list_watched: {
      reply r;
      r.what = answer::shown;
      std::vector<std::string> shown;
      for (const std::string& t : watched_) {
        if (c.within == nullptr || c.within->covers(t)) shown.push_back(t);
      }
      r.shown = std::make_shared<const view>(std::move(shown));
      tell(std::move(r));
      return true;
    }
    case verb::auth:
      tell(answer::done);
      return true;
    case verb::drain:
      router_.drain(c.number != 0);
      tell(answer::done);
      return true;
    case verb::backup:
      tell(answer::failed, 0,
           "the tasks are in a database: back that up, with pg_dump or pg_basebackup, or copy them "
           "to a directory with `verge move`");
      return true;
    case verb::say:
      tell(std::move(c.prepared));
      return true;
    default:
      return false;
  }
}

std::optional<std::uint32_t> session::shard_of(const command& c) const {
  membership& m = router_.members();
  if (is_by_id(c)) return static_cast<std::uint32_t>(c.number % m.shards());
  if (c.what == verb::pause || c.what == verb::stats_tube) return m.shard_of(c.text);
  return m.shard_of(c.tube.empty() ? used_ : c.tube);
}

/// What the broker is told besides, as it does not know the client.
void session::complete(command& c) const {
  if (is_on_lease(c.what) && c.token == 0) {
    const auto found = held_.find(c.number);
    const bool is_held = found != held_.end() && clock::now() < found->second.end;
    if (is_held) c.token = found->second.token;
  }
  if (c.tube.empty() && !is_by_id(c)) c.tube = used_;
}

/// What a reply says of the client's leases.
void session::follow(const command& c, reply& r) {
  if (r.what == answer::reserved) hold(r);
  if (!is_on_lease(c.what) || c.token != 0) return;
  const auto found = held_.find(c.number);
  if (r.what == answer::stale_lease) r.what = answer::not_found;
  if (found == held_.end()) return;
  if (r.what == answer::touched) {
    found->second.end = clock::now() + std::chrono::nanoseconds(found->second.ttr);
  } else if (r.what != answer::internal_error) {
    held_.erase(found);
  }
}

/// The first command, and those behind it that are about the same shard.
verge::task<> session::pass_on() {
  const clock::time_point begun = clock::now();
  for (;;) {
    const std::uint32_t shard = *shard_of(work_.front());
    std::size_t answered = 0;
    if (lane_to(shard) != nullptr) answered = co_await pass_on_once(shard);
    if (answered != 0 || left_) co_return;
    const bool retry = co_await again(begun);
    if (left_) co_return;
    if (retry) continue;
    work_.pop_front();
    tell(answer::internal_error, 0, why_not());
    co_return;
  }
}

/// How many were answered. Those that were not executed are in front of the others again.
verge::task<std::size_t> session::pass_on_once(std::uint32_t shard) {
  lane& way = *lane_to(shard);
  std::deque<command> sent;
  while (!work_.empty() && sent.size() < most_together && is_passed_on(work_.front()) &&
         shard_of(work_.front()) == shard) {
    sent.push_back(std::move(work_.front()));
    work_.pop_front();
    command copy = sent.back();
    complete(copy);
    way.submit(std::move(copy));
  }
  std::size_t answered = 0;
  std::deque<command> left;
  for (command& c : sent) {
    reply r = co_await reply_of(shard, c.what);
    if (r.what == answer::moved) {
      left.push_back(std::move(c));
      continue;
    }
    follow(c, r);
    if (left.empty()) {
      tell(std::move(r));
      ++answered;
    } else {
      // Its outcome is not known, and one before it was not executed: it is told after that one.
      left.push_back(prepared(std::move(r)));
    }
  }
  if (!left.empty()) drop_lane(shard);
  for (; !left.empty(); left.pop_back()) work_.push_front(std::move(left.back()));
  co_return answered;
}

lane* session::lane_to(std::uint32_t shard) {
  const auto found = routes_.find(shard);
  if (found != routes_.end()) return found->second.way.get();
  route made;
  made.number = router_.next_number();
  made.epoch = router_.members().epoch_of(shard);
  replies_[made.number];
  made.way = router_.open_lane(shard, made.number, weak_from_this());
  if (made.way == nullptr) {
    replies_.erase(made.number);
    return nullptr;
  }
  return (routes_[shard] = std::move(made)).way.get();
}

void session::drop_lane(std::uint32_t shard) {
  const auto found = routes_.find(shard);
  if (found == routes_.end()) return;
  replies_.erase(found->second.number);
  routes_.erase(found);
}

/// Another server has the shard by now, and the one that the lane goes to has said nothing of it:
/// it is stopped, or cannot be reached.
bool session::is_stale(std::uint32_t shard) {
  const auto found = routes_.find(shard);
  return found != routes_.end() && router_.members().epoch_of(shard) != found->second.epoch;
}

std::optional<reply> session::take_reply(std::uint32_t shard) {
  const auto found = routes_.find(shard);
  if (found == routes_.end()) return std::nullopt;
  std::deque<reply>& all = replies_[found->second.number];
  if (all.empty()) return std::nullopt;
  reply r = std::move(all.front());
  all.pop_front();
  return r;
}

/// Commands that come meanwhile wait.
verge::task<reply> session::reply_of(std::uint32_t shard, verb v) {
  const clock::time_point begun = clock::now();
  for (;;) {
    collect();
    if (auto r = take_reply(shard)) co_return std::move(*r);
    const auto longest = left_ ? answer_time_of_one_that_left : longest_answer_time;
    if (!routes_.contains(shard) || is_stale(shard) || clock::now() - begun > longest) {
      // A reply may have come between the two looks.
      collect();
      if (auto r = take_reply(shard)) co_return std::move(*r);
      break;
    }
    co_await wait_until(clock::now() + 500ms);
  }
  reply r;
  r.what = is_repeatable(v) ? answer::moved : answer::internal_error;
  r.text =
      "the server that had the tube has not answered: whether the command was executed is not "
      "known";
  co_return r;
}

/// After a pause, whether a command is to be given again.
verge::task<bool> session::again(clock::time_point begun) {
  membership& m = router_.members();
  const auto waited = clock::now() - begun;
  if (waited > (m.trouble().empty() ? patience : patience_in_trouble)) co_return false;
  m.look();
  co_await sleep(waited < 1s ? pause_between : 10 * pause_between);
  collect();
  co_return true;
}

std::string session::why_not() {
  std::string trouble = router_.members().trouble();
  if (!trouble.empty()) return trouble;
  return "no server has the shard of this tube: see `verge cluster`, and try again";
}

/// Leases that end with the connection end. What cannot be told ends by itself.
void session::leave() {
  if (front_->kind() == client::leases::bound) {
    for (const auto& [id, h] : held_) {
      command c(verb::give_back, id);
      c.token = h.token;
      if (lane* const way = lane_to(*shard_of(c))) way->submit(std::move(c));
    }
  }
  routes_.clear();
  replies_.clear();
  alarm_ = timer();
  router_.forget(front_.get());
  front_->left();
}

}  // namespace verge::server::cluster
