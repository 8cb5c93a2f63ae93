// SPDX-License-Identifier: Apache-2.0

// Reserving over several shards.

#include <algorithm>
#include <utility>

#include "router.h"
#include "session.h"

namespace verge::server::cluster {

namespace {

using namespace std::chrono_literals;

constexpr auto look_again = 500ms;
constexpr auto retry_pause = 50ms;
constexpr auto patience_at_the_end = 2s;
/// In the last second of a lease its client is not left waiting, as the broker has it.
constexpr auto safety_margin = 1s;

clock::time_point after(clock::time_point now, nanoseconds d) noexcept {
  const auto most = clock::time_point::max() - now;
  return now + std::min<clock::duration>(most, std::chrono::nanoseconds(d));
}

command reserve_at(const std::vector<std::string>& tubes, const command& c,
                   std::optional<nanoseconds> limit) {
  command one(verb::reserve, c.number);
  one.watch = tubes;
  one.limit = limit;
  one.within = c.within;
  return one;
}

}  // namespace

/// A shard that has some of the tubes.
struct session::stop {
  std::uint32_t shard{0};
  std::vector<std::string> tubes;
  bool is_local{false};
  bool asked{false};  ///< and not answered yet
  bool done{false};
};

std::vector<session::stop> session::stops(const command& c) {
  membership& m = router_.members();
  std::map<std::uint32_t, stop> by_shard;
  const std::vector<std::string> named{c.tube};
  for (const std::string& t : c.tube.empty() ? watched_ : named) {
    if (c.within != nullptr && !c.within->covers(t)) continue;
    stop& s = by_shard[m.shard_of(t)];
    s.shard = m.shard_of(t);
    s.tubes.push_back(t);
  }
  std::vector<stop> all;
  for (auto& [shard, s] : by_shard) {
    s.is_local = m.local(shard) != nullptr;
    all.push_back(std::move(s));
  }
  if (all.empty()) return all;
  // Beginning with another one each time, those that are here first.
  const auto turn = static_cast<std::ptrdiff_t>(router_.next_number() % all.size());
  std::rotate(all.begin(), all.begin() + turn, all.end());
  std::stable_partition(all.begin(), all.end(), [](const stop& s) { return s.is_local; });
  return all;
}

verge::task<> session::reserve(command c) {
  // What was not touched for long is another client's by now.
  std::erase_if(held_, [now = clock::now()](const auto& h) { return h.second.end + 1min < now; });
  std::vector<stop> all = stops(c);
  if (all.empty()) {
    tell(answer::denied);
    co_return;
  }
  if (all.size() > 1) {
    const bool found = co_await try_in_turn(all, c);
    if (found) co_return;
  }
  co_await wait_at_all(all, c);
}

/// True if a task was handed out.
verge::task<bool> session::try_in_turn(std::vector<stop>& all, const command& c) {
  for (stop& s : all) {
    lane* const way = lane_to(s.shard);
    if (way == nullptr) continue;
    way->submit(reserve_at(s.tubes, c, 0));
    const reply r = co_await reply_of(s.shard, verb::reserve);
    if (r.what == answer::moved) drop_lane(s.shard);
    if (r.what != answer::reserved) continue;
    if (left_) {
      put_back(s.shard, r);
    } else {
      hold(r);
      tell(r);
    }
    co_return true;
  }
  co_return left_;
}

void session::ask(stop& at, const command& c, std::optional<clock::time_point> end) {
  lane* const way = lane_to(at.shard);
  if (way == nullptr) {
    router_.members().look();
    return;
  }
  std::optional<nanoseconds> limit;
  if (end) {
    limit = std::max<nanoseconds>(std::chrono::nanoseconds(*end - clock::now()).count(), 0);
  }
  way->submit(reserve_at(at.tubes, c, limit));
  at.asked = true;
}

void session::listen(stop& at, std::vector<std::pair<std::uint32_t, reply>>& got) {
  if (!at.asked) return;
  auto r = take_reply(at.shard);
  if (!r) {
    if (!is_stale(at.shard)) return;
    r.emplace().what = answer::moved;
  }
  at.asked = false;
  if (r->what == answer::moved) {
    drop_lane(at.shard);
    router_.members().look();
    return;
  }
  at.done = true;
  if (r->what != answer::timed_out) got.emplace_back(at.shard, std::move(*r));
}

verge::task<> session::wait_at_all(std::vector<stop>& all, const command& c) {
  const clock::time_point begun = clock::now();
  std::optional<clock::time_point> end;
  if (c.limit) end = after(begun, *c.limit);
  std::optional<clock::time_point> soon = first_lease_end();
  if (soon) *soon -= safety_margin;
  const std::optional<clock::time_point> wait_end =
      soon && (!end || *soon < *end) ? std::optional(std::max(*soon, begun)) : end;
  std::vector<std::pair<std::uint32_t, reply>> got;
  bool asked = false;  // a reserve that does not wait asks, too
  bool ending = false;
  clock::time_point ended{};
  const auto any = [&](auto what) { return std::any_of(all.begin(), all.end(), what); };
  for (;;) {
    const clock::time_point now = clock::now();
    collect();
    for (stop& s : all) listen(s, got);
    const bool over = asked && wait_end && *wait_end <= now;
    if (!ending && (!got.empty() || left_ || half_closed_ || over)) {
      ending = true;
      ended = now;
      for (stop& s : all) {
        lane* const way = s.asked ? lane_to(s.shard) : nullptr;
        if (way != nullptr) way->submit(command(verb::give_up));
      }
    }
    if (!ending) {
      for (stop& s : all) {
        if (!s.asked && !s.done) ask(s, c, wait_end);
      }
      asked = true;
    }
    if (!any([](const stop& s) { return s.asked; })) {
      if (ending || !any([](const stop& s) { return !s.done; })) break;
      // No server has any of them.
      if (now - begun > patience_in_trouble && !router_.members().trouble().empty()) break;
    }
    // A server that says nothing does not keep its client: what it may hand out ends by itself.
    if (ending && now - ended > patience_at_the_end) break;
    const bool missing = !ending && any([](const stop& s) { return !s.asked && !s.done; });
    clock::time_point wake_at = now + (missing ? retry_pause : look_again);
    if (!ending && wait_end) wake_at = std::min(wake_at, std::max(*wait_end, now + 1ms));
    co_await wait_until(wake_at);
  }
  for (stop& s : all) {
    if (s.asked) drop_lane(s.shard);
  }
  for (std::size_t i = left_ ? 0 : 1; i < got.size(); ++i) put_back(got[i].first, got[i].second);
  if (left_) co_return;
  if (!got.empty()) {
    hold(got.front().second);
    tell(std::move(got.front().second));
  } else if (any([](const stop& s) { return !s.done; }) && !router_.members().trouble().empty()) {
    tell(answer::internal_error, 0, why_not());
  } else {
    const bool late = end && *end <= clock::now();
    tell(soon && !late && !half_closed_ ? answer::deadline_soon : answer::timed_out);
  }
}

/// As if it had not been handed out. What cannot be told is ready again when its lease ends.
void session::put_back(std::uint32_t shard, const reply& r) {
  if (r.what != answer::reserved) return;
  lane* const way = lane_to(shard);
  if (way == nullptr) return;
  const auto one = [&](const handed_out& t) {
    command c(verb::postpone, t.id);
    c.token = t.token;
    way->submit(std::move(c));
  };
  one(r.task);
  for (const handed_out& t : r.more) one(t);
  // Its replies are not waited for: the next command gets a lane of its own.
  drop_lane(shard);
}

void session::hold(const reply& r) {
  if (r.what != answer::reserved || front_->kind() != client::leases::bound) return;
  const auto one = [this](const handed_out& t) {
    const nanoseconds ttr = t.fields != nullptr ? t.fields->ttr : 0;
    held_[t.id] = {.token = t.token, .ttr = ttr, .end = after(clock::now(), ttr)};
  };
  one(r.task);
  for (const handed_out& t : r.more) one(t);
}

/// Those that have ended are not held any more.
std::optional<clock::time_point> session::first_lease_end() const noexcept {
  std::optional<clock::time_point> first;
  const clock::time_point now = clock::now();
  for (const auto& [id, h] : held_) {
    if (h.end > now && (!first || h.end < *first)) first = h.end;
  }
  return first;
}

}  // namespace verge::server::cluster
