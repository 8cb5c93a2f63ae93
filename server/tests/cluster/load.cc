// SPDX-License-Identifier: Apache-2.0

#include "load.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <utility>

#include "cluster/tube_hash.h"
#include "nodes.h"

namespace verge::cluster_test {

namespace {

using nlohmann::json;

constexpr std::int64_t millisecond = 1'000'000;

std::int64_t now() {
  timespec t{};
  ::clock_gettime(CLOCK_REALTIME, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

constexpr int least_stock = 20;
constexpr int most_stock = 60;

/// The first name that falls into the shard.
std::string tube_in(std::uint32_t shard) {
  for (int i = 0;; ++i) {
    std::string name = "tube" + std::to_string(i);
    if (server::cluster::shard_of_tube(name, load::tubes) == shard) return name;
  }
}

/// What an answer says. A server error says nothing of what was done; an answer that says that the
/// request was wrong is a mistake of this file, which would find nothing then.
result result_of(const std::optional<http_result>& r) {
  if (!r || r->status >= 500) return result::unknown;
  if (r->status < 300) return result::done;
  if (r->status == 404) return result::not_found;
  if (r->body.find("stale-lease") != std::string::npos) return result::refused;
  if (r->status == 409) return result::taken;
  std::fprintf(stderr, "a request was refused: %d %s\n", r->status, r->body.c_str());
  std::abort();
}

}  // namespace

struct load::player {
  player(std::uint64_t seed, choice servers) : random(seed), at(std::move(servers)) {}
  std::uint64_t below(std::uint64_t n) { return random() % n; }
  std::uint16_t port() { return at(random()); }

  std::mt19937_64 random;
  choice at;
  bool takes_all{false};
  std::deque<std::pair<tube_of_test*, std::string>> keys;
  struct lease_to_end {
    std::int64_t at;
    tube_of_test* tube;
    operation of;
  };
  std::deque<lease_to_end> later;
};

load::load(choice sound) : sound_(std::move(sound)) {
  for (std::uint32_t i = 0; i < tubes; ++i) {
    tubes_[i].name = tube_in(i);
    tubes_[i].is_quiet = i % 2 == 1;
  }
}

void load::note(operation o) {
  std::lock_guard held(lock_);
  history_.push_back(std::move(o));
}

std::vector<operation> load::history() {
  std::lock_guard held(lock_);
  return history_;
}

std::vector<std::string> load::tube_names() const {
  std::vector<std::string> all;
  for (const tube_of_test& t : tubes_) all.push_back(t.name);
  return all;
}

void load::put(player& p, tube_of_test& t) {
  operation o;
  o.what = act::put;
  o.key = "k" + std::to_string(next_.fetch_add(1));
  o.body = "body of " + o.key;
  const bool is_short = !t.is_quiet && p.below(2) == 0;
  if (!t.is_quiet && p.below(2) == 0) o.delay = static_cast<std::int64_t>(p.below(1500));
  o.delay *= millisecond;
  o.ttr = static_cast<std::int64_t>(is_short ? 500 + p.below(2500) : 8000 + p.below(4000));
  o.ttr *= millisecond;
  json j{{"body", o.body},
         {"key", o.key},
         {"delay", o.delay / millisecond},
         {"ttr", o.ttr / millisecond}};
  o.begin = now();
  const auto r = ask(p.port(), "POST", "/v1/tubes/" + t.name + "/tasks", j.dump());
  o.end = now();
  o.outcome = result_of(r);
  if (o.outcome == result::done) o.id = json::parse(r->body).at("id");
  t.stock.fetch_add(1);
  p.keys.emplace_back(&t, o.key);
  if (p.keys.size() > 50) p.keys.pop_front();
  note(std::move(o));
}

void load::by_key(player& p, act what) {
  if (p.keys.empty()) return;
  operation o;
  o.what = what;
  const auto& [tube, key] = p.keys[p.below(p.keys.size())];
  if (tube->is_quiet && what == act::reschedule) return;
  o.key = key;
  const std::string target = "/v1/tubes/" + tube->name + "/keys/" + key;
  o.begin = now();
  if (what == act::cancel) {
    o.outcome = result_of(ask(p.port(), "DELETE", target));
    if (o.outcome == result::done) tube->stock.fetch_sub(1);
  } else {
    o.delay = static_cast<std::int64_t>(p.below(1500)) * millisecond;
    o.outcome =
        result_of(ask(p.port(), "PUT", target, json{{"delay", o.delay / millisecond}}.dump()));
  }
  o.end = now();
  note(std::move(o));
}

void load::end_lease(player& p, tube_of_test& t, act what, const operation& of) {
  operation o;
  o.what = what;
  o.id = of.id;
  o.key = of.key;
  o.lease = of.lease;
  const char* const verb = what == act::ack ? "ack" : what == act::release ? "release" : "touch";
  o.begin = now();
  o.outcome = result_of(ask(p.port(), "POST", "/v1/leases/" + of.lease + "/" + verb));
  if (what == act::ack && o.outcome == result::done) t.stock.fetch_sub(1);
  o.end = now();
  note(std::move(o));
}

/// What a client does with a task that it has got.
void load::treat(player& p, tube_of_test& t, const operation& handed_out) {
  const std::uint64_t what = p.takes_all || t.is_quiet ? 0 : p.below(10);
  const auto end_within = [&](std::uint64_t milliseconds) {
    const std::int64_t at = now() + static_cast<std::int64_t>(p.below(milliseconds)) * millisecond;
    p.later.push_back({.at = at, .tube = &t, .of = handed_out});
  };
  if (what < 6) {
    end_lease(p, t, act::ack, handed_out);
  } else if (what < 7) {
    end_lease(p, t, act::release, handed_out);
  } else if (what < 8) {
    end_lease(p, t, act::touch, handed_out);
    end_within(1500);
  } else {
    end_within(4000);  // perhaps too late
  }
}

bool load::reserve(player& p, tube_of_test& t, int most, std::chrono::seconds patience) {
  const std::string target =
      "/v1/tubes/" + t.name + "/reserve?wait=300ms&max=" + std::to_string(most);
  const std::int64_t begin = now();
  const auto r = ask(p.port(), "POST", target, "", patience);
  const std::int64_t end = now();
  if (result_of(r) != result::done) {
    // A server that is not there says so at once.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return false;
  }
  std::vector<operation> got;
  const json answer = json::parse(r->body);
  for (const json& j : answer.at("tasks")) {
    operation& o = got.emplace_back();
    o.what = act::hand_out;
    o.outcome = result::done;
    o.begin = begin;
    o.end = end;
    o.id = j.at("id");
    o.key = j.value("key", "");
    o.lease = j.at("lease");
    o.body = j.at("body");
    o.at_the_end = p.takes_all;
    note(o);
  }
  if (got.empty()) t.stock.store(0);
  for (const operation& o : got) treat(p, t, o);
  return !got.empty();
}

void load::play(std::uint64_t seed, const choice& at, const std::atomic<bool>& ending) {
  constexpr std::chrono::seconds patience(8);
  player p(seed, at);
  while (!ending.load()) {
    if (!p.later.empty() && p.later.front().at <= now()) {
      const player::lease_to_end l = p.later.front();
      p.later.pop_front();
      end_lease(p, *l.tube, p.below(4) == 0 ? act::release : act::ack, l.of);
      continue;
    }
    tube_of_test& t = tubes_[p.below(tubes)];
    const std::uint64_t what = p.below(10);
    if (t.stock.load() < least_stock || (what < 3 && t.stock.load() < most_stock)) {
      put(p, t);
    } else if (what < 4) {
      by_key(p, act::cancel);
    } else if (what < 5) {
      by_key(p, act::reschedule);
    } else {
      reserve(p, t, static_cast<int>(1 + p.below(3)), patience);
    }
  }
}

std::vector<std::thread> load::besiege(std::uint16_t port) {
  std::vector<std::thread> all;
  for (std::uint32_t i = 0; i < tubes; ++i) {
    all.emplace_back([this, i, port] {
      player p(i, [port](std::uint64_t) { return port; });
      reserve(p, tubes_[i], 2, std::chrono::seconds(30));
    });
  }
  return all;
}

/// Every task that was put is removed, perhaps, or taken at the end.
bool load::is_complete() {
  const std::lock_guard held(lock_);
  std::set<std::uint64_t> missing;
  std::map<std::string, std::uint64_t> ids;
  for (const operation& o : history_) {
    if (o.what == act::put && o.outcome == result::done) missing.insert(o.id);
    if (o.id != 0) ids[o.key] = o.id;
  }
  for (const operation& o : history_) {
    const bool removal = o.what == act::ack || o.what == act::cancel;
    const bool may = o.outcome == result::done || o.outcome == result::unknown;
    if ((removal && may) || (o.what == act::hand_out && o.at_the_end)) {
      missing.erase(o.id != 0 ? o.id : ids[o.key]);
    }
  }
  return missing.empty();
}

void load::take_all(int patience) {
  using clock = std::chrono::steady_clock;
  player p(99, sound_);
  p.takes_all = true;
  auto until = clock::now() + std::chrono::seconds(patience);
  while (clock::now() < until && !is_complete()) {
    for (tube_of_test& t : tubes_) {
      if (!reserve(p, t, 100, std::chrono::seconds(8))) continue;
      until = clock::now() + std::chrono::seconds(patience);
    }
  }
}

}  // namespace verge::cluster_test
