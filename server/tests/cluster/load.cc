#include "load.h"

#include <chrono>
#include <ctime>
#include <deque>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "nodes.h"

namespace verge::cluster_test {

namespace {

using nlohmann::json;

constexpr int tubes = 6;
constexpr std::int64_t millisecond = 1'000'000;

std::int64_t now() {
  timespec t{};
  ::clock_gettime(CLOCK_REALTIME, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

std::string tube_named(std::uint64_t n) { return "tube" + std::to_string(n % tubes); }

std::string seconds(std::int64_t ns) { return std::to_string(ns / millisecond) + "ms"; }

/// What an answer says. A server error says nothing of what was done.
result result_of(const std::optional<http_result>& r) {
  if (!r || r->status >= 500) return result::unknown;
  if (r->status < 300) return result::done;
  if (r->status == 404) return result::not_found;
  return r->body.find("stale-lease") != std::string::npos ? result::refused : result::taken;
}

}  // namespace

struct load::player {
  explicit player(std::uint64_t seed) : random(seed) {}
  std::uint64_t below(std::uint64_t n) { return random() % n; }

  std::mt19937_64 random;
  std::deque<std::pair<std::string, std::string>> keys;  ///< tube and key
  std::deque<std::pair<std::int64_t, operation>> later;  ///< leases to end then
};

void load::note(operation o) {
  std::lock_guard held(lock_);
  history_.push_back(std::move(o));
}

std::vector<operation> load::history() {
  std::lock_guard held(lock_);
  return history_;
}

std::size_t load::size() {
  std::lock_guard held(lock_);
  return history_.size();
}

void load::put(player& p) {
  operation o;
  o.what = act::put;
  const std::string tube = tube_named(p.below(tubes));
  o.key = "k" + std::to_string(next_.fetch_add(1));
  o.body = "body of " + o.key;
  o.delay = p.below(2) == 0 ? 0 : static_cast<std::int64_t>(p.below(1500)) * millisecond;
  o.ttr = static_cast<std::int64_t>(500 + p.below(2500)) * millisecond;
  json j{{"body", o.body}, {"key", o.key}, {"delay", seconds(o.delay)}, {"ttr", seconds(o.ttr)}};
  o.begin = now();
  const auto r = ask(port_(p.random()), "POST", "/v1/tubes/" + tube + "/tasks", j.dump());
  o.end = now();
  o.outcome = result_of(r);
  if (o.outcome == result::done) o.id = json::parse(r->body).at("id");
  p.keys.emplace_back(tube, o.key);
  if (p.keys.size() > 50) p.keys.pop_front();
  note(std::move(o));
}

void load::by_key(player& p, act what) {
  if (p.keys.empty()) return;
  operation o;
  o.what = what;
  const auto& [tube, key] = p.keys[p.below(p.keys.size())];
  o.key = key;
  const std::string target = "/v1/tubes/" + tube + "/keys/" + key;
  o.begin = now();
  if (what == act::cancel) {
    o.outcome = result_of(ask(port_(p.random()), "DELETE", target));
  } else {
    o.delay = static_cast<std::int64_t>(p.below(1500)) * millisecond;
    o.outcome =
        result_of(ask(port_(p.random()), "PUT", target, json{{"delay", seconds(o.delay)}}.dump()));
  }
  o.end = now();
  note(std::move(o));
}

void load::end_lease(player& p, act what, const operation& of) {
  operation o;
  o.what = what;
  o.id = of.id;
  o.key = of.key;
  o.lease = of.lease;
  const char* const verb = what == act::ack ? "ack" : what == act::release ? "release" : "touch";
  o.begin = now();
  o.outcome = result_of(ask(port_(p.random()), "POST", "/v1/leases/" + of.lease + "/" + verb));
  o.end = now();
  note(std::move(o));
}

void load::reserve(player& p, const std::string& tube, int most, bool at_the_end) {
  const std::int64_t begin = now();
  const auto r = ask(port_(p.random()), "POST",
                     "/v1/tubes/" + tube + "/reserve?wait=300ms&max=" + std::to_string(most));
  const std::int64_t end = now();
  if (result_of(r) != result::done) {
    // A server that is not there says so at once.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return;
  }
  for (const json& t : json::parse(r->body).at("tasks")) {
    operation o;
    o.what = act::hand_out;
    o.outcome = result::done;
    o.begin = begin;
    o.end = end;
    o.id = t.at("id");
    o.key = t.value("key", "");
    o.lease = t.at("lease");
    o.body = t.at("body");
    o.at_the_end = at_the_end;
    note(o);
    const std::uint64_t choice = at_the_end ? 0 : p.below(10);
    if (choice < 6) {
      end_lease(p, act::ack, o);
    } else if (choice < 7) {
      end_lease(p, act::release, o);
    } else if (choice < 8) {
      end_lease(p, act::touch, o);
      p.later.emplace_back(now() + static_cast<std::int64_t>(p.below(1500)) * millisecond, o);
    } else {
      // Perhaps too late.
      p.later.emplace_back(now() + static_cast<std::int64_t>(p.below(4000)) * millisecond, o);
    }
  }
}

void load::play(std::uint64_t seed, const std::atomic<bool>& ending) {
  player p(seed);
  while (!ending.load()) {
    if (!p.later.empty() && p.later.front().first <= now()) {
      const operation o = p.later.front().second;
      p.later.pop_front();
      end_lease(p, p.below(4) == 0 ? act::release : act::ack, o);
      continue;
    }
    switch (p.below(10)) {
      case 0:
      case 1:
      case 2:
      case 3:
        put(p);
        break;
      case 4:
        by_key(p, act::cancel);
        break;
      case 5:
        by_key(p, act::reschedule);
        break;
      default:
        reserve(p, tube_named(p.below(tubes)), static_cast<int>(1 + p.below(3)), false);
    }
  }
}

void load::take_all(int limit) {
  player p(99);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(limit);
  std::uint64_t turn = 0;
  while (std::chrono::steady_clock::now() < until) {
    for (int i = 0; i < tubes; ++i) reserve(p, tube_named(turn++), 100, true);
    std::set<std::uint64_t> missing;
    const std::vector<operation> all = history();
    for (const operation& o : all) {
      if (o.what == act::put && o.outcome == result::done) missing.insert(o.id);
    }
    std::map<std::string, std::uint64_t> ids;
    for (const operation& o : all) {
      if (o.id != 0) ids[o.key] = o.id;
    }
    for (const operation& o : all) {
      const bool removal = o.what == act::ack || o.what == act::cancel;
      const bool may = o.outcome == result::done || o.outcome == result::unknown;
      if ((removal && may) || (o.what == act::hand_out && o.at_the_end)) {
        missing.erase(o.id != 0 ? o.id : ids[o.key]);
      }
    }
    if (missing.empty()) return;
  }
}

}  // namespace verge::cluster_test
