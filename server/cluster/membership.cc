// SPDX-License-Identifier: Apache-2.0

#include "membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "../postgres/fault.h"
#include "../postgres/schema.h"
#include "lag.h"
#include "tube_hash.h"

namespace verge::server::cluster {

namespace {

using namespace std::chrono_literals;

/// Looks that are asked for are not made more often than this.
constexpr auto shortest_pause = 50ms;

postgres::layout prepare_tables(const membership_options& o) {
  postgres::link l(o.database);
  return postgres::prepare(l, o.shards);
}

std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace

membership::membership(runtime& rt, membership_options options)
    : runtime_(rt),
      options_(std::move(options)),
      links_(options_.database),
      layout_(prepare_tables(options_)),
      leases_(options_.database, options_.times) {
  options_.me.name = random_name();
  // The limits of a receiver are over all shards.
  options_.push.house = std::make_shared<push::push_house>(runtime_, options_.push);
}

void membership::start(std::string peer, std::string tasks, std::string http) {
  options_.me.peer = std::move(peer);
  options_.me.tasks = std::move(tasks);
  options_.me.http = std::move(http);
  keeping_ = runtime_.spawn([this] { return keep(); });
  static_cast<void>(recv(first_look_).wait());
}

void membership::leave() {
  leaving_.store(true);
  look();
  static_cast<void>(recv(left_).wait());
}

void membership::stop() {
  stopping_.store(true);
  look();
  keeping_.join();
}

void membership::look() noexcept { static_cast<void>(woken_.try_send(true)); }

std::uint32_t membership::shard_of(std::string_view tube) const noexcept {
  return shard_of_tube(tube, layout_.shards);
}

std::shared_ptr<shard_service> membership::local(std::uint32_t shard) {
  std::lock_guard held(lock_);
  const auto found = mine_.find(shard);
  if (found == mine_.end() || found->second->has_failed()) return nullptr;
  return found->second;
}

std::string membership::peer_of(std::uint32_t shard) {
  std::lock_guard held(lock_);
  if (shard >= known_.shards.size()) return {};
  const shard_record& s = known_.shards[shard];
  if (s.owner.empty() || s.owner == options_.me.name) return {};
  const auto owner = std::find_if(known_.nodes.begin(), known_.nodes.end(),
                                  [&](const node_record& n) { return n.name == s.owner; });
  return owner == known_.nodes.end() ? std::string() : owner->peer;
}

std::int64_t membership::epoch_of(std::uint32_t shard) {
  std::lock_guard held(lock_);
  return shard < known_.shards.size() ? known_.shards[shard].epoch : 0;
}

std::string membership::trouble() {
  std::lock_guard held(lock_);
  return trouble_;
}

roster membership::known() {
  std::lock_guard held(lock_);
  return known_;
}

verge::task<cluster_view> membership::survey() {
  const postgres::pool::loan at = links_.take();
  const roster all = co_await read(*at);
  const lags behind = co_await read_lags(*at);
  cluster_view v;
  v.answers = options_.me.name;
  std::map<std::string, std::uint64_t> counts;
  for (const shard_record& s : all.shards) {
    cluster_view::shard& one = v.shards.emplace_back();
    one.number = s.shard;
    one.epoch = s.epoch;
    if (s.left > 0ms) one.owner = s.owner;
    one.lease_left = std::chrono::nanoseconds(s.left).count();
    if (const auto found = behind.find(s.shard); found != behind.end()) {
      one.lag = std::chrono::nanoseconds(found->second).count();
    }
    ++counts[one.owner];
  }
  for (const node_record& n : all.nodes) {
    v.servers.push_back({.name = n.name,
                         .tasks = n.tasks,
                         .http = n.http,
                         .peer = n.peer,
                         .up = std::chrono::nanoseconds(n.up).count(),
                         .shards = counts[n.name]});
  }
  co_return v;
}

void membership::clock_stepped() noexcept {
  for (const shared_service& s : all_mine()) s->clock_stepped();
}

std::vector<membership::shared_service> membership::all_mine() {
  std::lock_guard held(lock_);
  std::vector<shared_service> all;
  for (const auto& [shard, service] : mine_) all.push_back(service);
  return all;
}

membership::shared_service membership::forget(std::uint32_t shard) {
  std::lock_guard held(lock_);
  auto node = mine_.extract(shard);
  return node.empty() ? nullptr : std::move(node.mapped());
}

void membership::note_trouble(const std::string& why) {
  std::lock_guard held(lock_);
  trouble_ = why;
}

std::vector<std::string> membership::other_peers() {
  std::lock_guard held(lock_);
  std::vector<std::string> all;
  for (const node_record& n : known_.nodes) {
    if (n.name != options_.me.name) all.push_back(n.peer);
  }
  return all;
}

verge::task<> membership::keep() {
  alarm_ = after_func(options_.times.renewal(), [this] { look(); });
  while (!stopping_.load()) {
    std::string why;
    try {
      co_await beat();
    } catch (const std::exception& e) {
      why = e.what();
    }
    note_trouble(why);
    static_cast<void>(first_look_.try_send(true));
    if (has_left_) static_cast<void>(left_.try_send(true));
    if (leaving_.load() && !why.empty()) {
      // The database does not answer: the leases end by themselves.
      co_await drop(all_mine(), false);
      has_left_ = true;
      continue;
    }
    if (stopping_.load()) break;
    co_await sleep(shortest_pause);
    alarm_.reset(why.empty() ? until_next_look() : std::chrono::nanoseconds(500ms));
    static_cast<void>(co_await recv(woken_));
  }
  alarm_ = timer();
}

/// The next renewal, the end of a lease that another server does not renew, or soon if there is a
/// free shard that could not be taken.
std::chrono::nanoseconds membership::until_next_look() {
  std::lock_guard held(lock_);
  std::chrono::nanoseconds next = options_.times.renewal();
  if (some_left_) next = std::min<std::chrono::nanoseconds>(next, 200ms);
  for (const shard_record& s : known_.shards) {
    if (mine_.contains(s.shard) || s.left <= 0ms) continue;
    next = std::min<std::chrono::nanoseconds>(next, s.left + 10ms);
  }
  return next;
}

verge::task<> membership::beat() {
  if (leaving_.load()) {
    if (!has_left_) {
      co_await leases_.leave(options_.me.name);
      co_await drop(all_mine(), true);
      if (tell) tell(other_peers());
      has_left_ = true;
    }
    // Commands of its clients are passed on to the servers that have the shards now.
    roster now = co_await leases_.read();
    std::lock_guard guard(lock_);
    known_ = std::move(now);
    co_return;
  }
  std::vector<held_shard> held;
  for (const shared_service& s : all_mine()) {
    if (!s->has_failed()) held.push_back(s->which());
  }
  const auto asked = since_boot();
  lease_table::beat_result found = co_await leases_.beat(options_.me, held);
  {
    std::lock_guard guard(lock_);
    known_ = std::move(found.all);
  }
  std::vector<shared_service> lost;
  for (const shared_service& s : all_mine()) {
    const bool renewed = std::find(found.renewed.begin(), found.renewed.end(), s->which().shard) !=
                         found.renewed.end();
    if (renewed && !s->has_failed()) {
      s->trust_from(asked);
    } else {
      lost.push_back(s);
    }
  }
  co_await drop(std::move(lost), false);
  // Those that have shards for this server need not wait for their next look.
  if (!std::exchange(has_come_, true) && tell) tell(other_peers());
  co_await hand_over();
  co_await take_free();
}

/// Shards that are placed here, and that no server has.
verge::task<> membership::take_free() {
  std::vector<std::uint32_t> wanted;
  {
    std::lock_guard held(lock_);
    for (const shard_record& s : known_.shards) {
      if (mine_.contains(s.shard)) continue;
      const node_record* const place = place_of(s.shard, known_.nodes);
      if (place == nullptr || place->name != options_.me.name) continue;
      if (s.left <= 0ms || s.owner.empty() || s.owner == options_.me.name) {
        wanted.push_back(s.shard);
      }
    }
  }
  some_left_ = false;
  if (wanted.empty()) co_return;
  const auto asked = since_boot();
  const std::vector<held_shard> taken = co_await leases_.take(options_.me.name, wanted);
  some_left_ = taken.size() < wanted.size();
  for (const held_shard& h : taken) serve(h, asked);
  // The others pass commands on at once.
  if (tell) tell(other_peers());
}

void membership::serve(const held_shard& h, std::chrono::nanoseconds asked) {
  broker_options options = options_.broker;
  options.id_remainder = h.shard;
  options.id_divisor = layout_.shards;
  options.shared = true;
  options.seed ^= static_cast<std::uint64_t>(h.epoch) * 0x9e3779b97f4a7c15U;
  options.token_key.second ^= static_cast<std::uint64_t>(h.epoch);
  options.elsewhere = [this, mine = h.shard](const std::string& tube) {
    return shard_of(tube) != mine;
  };
  const auto made = std::make_shared<shard_service>(runtime_, commits_, h, options_.times, options,
                                                    options_.push);
  made->trust_from(asked);
  made->start([this](const std::string&) { look(); }, *everywhere);
  std::lock_guard held(lock_);
  mine_[h.shard] = made;
  if (h.shard < known_.shards.size()) {
    known_.shards[h.shard] = {.shard = h.shard,
                              .epoch = h.epoch,
                              .owner = options_.me.name,
                              .left = options_.times.length};
  }
}

/// A test of the checker lets a server take the word of another one for what it has.
std::shared_ptr<shard_service> membership::local_for_peer(std::uint32_t shard) {
  auto found = local(shard);
  if (found == nullptr && postgres::faulty("hint-trusted") && !leaving_.load()) {
    serve({.shard = shard, .epoch = epoch_of(shard)}, since_boot());
    found = local(shard);
  }
  return found;
}

/// Shards that are placed on another server, which is there and waits for them.
verge::task<> membership::hand_over() {
  std::vector<shared_service> moving;
  std::vector<std::string> to;
  {
    std::lock_guard held(lock_);
    for (const auto& [shard, service] : mine_) {
      const node_record* const place = place_of(shard, known_.nodes);
      if (place == nullptr || place->name == options_.me.name) continue;
      moving.push_back(service);
      to.push_back(place->peer);
    }
  }
  if (moving.empty()) co_return;
  co_await drop(std::move(moving), true);
  if (tell) tell(to);
}

/// They are closed all at the same time: each waits for its last batch.
verge::task<> membership::drop(std::vector<shared_service> which, bool give_up) {
  if (which.empty()) co_return;
  std::vector<held_shard> ended;
  for (const shared_service& s : which) {
    static_cast<void>(forget(s->which().shard));
    ended.push_back(s->which());
  }
  std::vector<join_handle<>> closing;
  closing.reserve(which.size());
  for (const shared_service& s : which) closing.push_back(go(&shard_service::close, s.get()));
  for (join_handle<>& h : closing) co_await h;
  if (!give_up) co_return;
  co_await leases_.give_up(ended);
  std::lock_guard held(lock_);
  for (const held_shard& h : ended) {
    if (h.shard < known_.shards.size()) known_.shards[h.shard].owner.clear();
  }
}

}  // namespace verge::server::cluster
