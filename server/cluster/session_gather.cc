// SPDX-License-Identifier: Apache-2.0

// Commands that are about all shards: each is asked, and what they say is put together.

#include <algorithm>
#include <iterator>
#include <utility>

#include "../broker/schedule.h"
#include "router.h"
#include "session.h"

namespace verge::server::cluster {

namespace {

using namespace std::chrono_literals;

void add(server_view& to, const server_view& v) {
  to.urgent += v.urgent;
  to.ready += v.ready;
  to.reserved += v.reserved;
  to.delayed += v.delayed;
  to.buried += v.buried;
  to.total += v.total;
  for (std::size_t i = 0; i < std::size(to.commands); ++i) to.commands[i] += v.commands[i];
  to.timeouts += v.timeouts;
  to.reserves_without_limit += v.reserves_without_limit;
  // Each shard has the tube that always exists.
  to.tubes += v.tubes - std::min<std::uint64_t>(v.tubes, 1);
  to.producers += v.producers;
  to.workers += v.workers;
  to.waiting += v.waiting;
  to.batches += v.batches;
  to.batched_commands += v.batched_commands;
  to.sync_nanoseconds += v.sync_nanoseconds;
  to.in_memory += v.in_memory;
  to.uptime = std::max(to.uptime, v.uptime);
  for (std::size_t i = 0; i < v.lateness.counts.size(); ++i) {
    to.lateness.counts[i] += v.lateness.counts[i];
  }
  to.lateness.microseconds += v.lateness.microseconds;
}

template <class View>
const View* shown_in(const reply& r) {
  return r.what == answer::shown && r.shown != nullptr ? std::get_if<View>(r.shown.get()) : nullptr;
}

reply shown(view v) {
  reply r;
  r.what = answer::shown;
  r.shown = std::make_shared<const view>(std::move(v));
  return r;
}

reply merge_forecasts(const std::vector<reply>& all) {
  forecast_view sum;
  for (const reply& r : all) {
    const auto* const v = shown_in<forecast_view>(r);
    if (v == nullptr) continue;
    sum.minutes.resize(std::max(sum.minutes.size(), v->minutes.size()));
    for (std::size_t i = 0; i < v->minutes.size(); ++i) sum.minutes[i] += v->minutes[i];
    if (v->known_until) {
      sum.known_until = std::min(*v->known_until, sum.known_until.value_or(*v->known_until));
    }
  }
  return shown(std::move(sum));
}

reply merge_schedules(const std::vector<reply>& all, std::size_t most) {
  auto sum = std::make_shared<schedule_list>();
  for (const reply& r : all) {
    const auto* const v = shown_in<shared_schedules>(r);
    if (v != nullptr) sum->all.insert(sum->all.end(), (*v)->all.begin(), (*v)->all.end());
  }
  std::sort(sum->all.begin(), sum->all.end(),
            [](const auto& a, const auto& b) { return a.what.name < b.what.name; });
  if (sum->all.size() > most + 1) sum->all.resize(most + 1);
  return shown(shared_schedules(std::move(sum)));
}

}  // namespace

/// By shard. One that no server has answers `moved`.
verge::task<std::vector<reply>> session::ask_all(const command& c) {
  const std::uint32_t shards = router_.members().shards();
  std::vector<reply> all(shards);
  std::vector<bool> asked(shards);
  for (std::uint32_t s = 0; s < shards; ++s) {
    lane* const way = lane_to(s);
    all[s].what = answer::moved;
    if (way == nullptr) continue;
    command copy = c;
    way->submit(std::move(copy));
    asked[s] = true;
  }
  for (std::uint32_t s = 0; s < shards; ++s) {
    if (!asked[s]) continue;
    all[s] = co_await reply_of(s, c.what);
    if (all[s].what == answer::moved) drop_lane(s);
  }
  co_return all;
}

/// A name is one schedule's, in whatever shard the last one had its tube.
verge::task<> session::set_schedule(command c) {
  const std::uint32_t home = router_.members().shard_of(c.recurs->tube);
  const clock::time_point begun = clock::now();
  for (;;) {
    lane* const way = lane_to(home);
    if (way != nullptr) {
      command copy = c;
      way->submit(std::move(copy));
      reply r = co_await reply_of(home, c.what);
      if (r.what != answer::moved) {
        command others(verb::remove_schedule);
        others.text = c.recurs->name;
        const std::uint32_t shards = router_.members().shards();
        const bool was_set = r.what == answer::inserted || r.what == answer::replaced;
        for (std::uint32_t s = 0; was_set && s < shards; ++s) {
          lane* const other = s == home ? nullptr : lane_to(s);
          if (other == nullptr) continue;
          command one = others;
          other->submit(std::move(one));
          const reply removed = co_await reply_of(s, verb::peek);
          if (removed.what == answer::moved) drop_lane(s);
        }
        tell(std::move(r));
        co_return;
      }
      drop_lane(home);
    }
    const bool retry = co_await again(begun);
    if (left_) co_return;
    if (retry) continue;
    tell(answer::internal_error, 0, why_not());
    co_return;
  }
}

/// The database knows, also what no server has.
verge::task<> session::show_cluster() {
  try {
    cluster_view v = co_await router_.members().survey();
    tell(shown(std::move(v)));
  } catch (const store_error& e) {
    tell(answer::internal_error, 0, e.what());
  }
}

verge::task<> session::gather(command c) {
  if (c.what == verb::set_schedule) {
    co_await set_schedule(std::move(c));
    co_return;
  }
  membership& m = router_.members();
  const std::vector<reply> all = co_await ask_all(c);
  if (left_) co_return;
  if (std::all_of(all.begin(), all.end(), [](const reply& r) {
        return r.what == answer::moved || r.what == answer::internal_error;
      })) {
    tell(answer::internal_error, 0, why_not());
    co_return;
  }
  const auto is_home = [&](const std::string& tube, std::size_t shard) {
    return m.shard_of(tube) == shard && !tube.starts_with('-');
  };
  server_view sum;
  sum.tubes = 1;
  survey_view survey;
  std::vector<std::string> names;
  for (std::size_t s = 0; s < all.size(); ++s) {
    if (const auto* const v = shown_in<server_view>(all[s])) add(sum, *v);
    if (const auto* const v = shown_in<survey_view>(all[s])) {
      add(sum, v->all);
      survey.now = v->now;
      survey.more |= v->more;
      for (const tube_view& t : v->tubes) {
        if (is_home(t.name, s)) survey.tubes.push_back(t);
      }
    }
    if (const auto* const v = shown_in<std::vector<std::string>>(all[s])) {
      for (const std::string& t : *v) {
        if (is_home(t, s)) names.push_back(t);
      }
    }
  }
  sum.connections = router_.sessions();
  sum.connections_ever = sum.connections;
  sum.draining = router_.is_draining();
  switch (c.what) {
    case verb::stats:
      tell(shown(sum));
      break;
    case verb::survey: {
      std::sort(survey.tubes.begin(), survey.tubes.end(),
                [](const tube_view& a, const tube_view& b) { return a.name < b.name; });
      if (survey.tubes.size() > c.number) {
        survey.tubes.resize(c.number);
        survey.more = true;
      }
      survey.all = sum;
      tell(shown(std::move(survey)));
      break;
    }
    case verb::forecast:
      tell(merge_forecasts(all));
      break;
    case verb::list_tubes:
      std::sort(names.begin(), names.end());
      tell(shown(std::move(names)));
      break;
    case verb::list_schedules:
      tell(merge_schedules(all, c.number));
      break;
    default: {
      // A schedule: the one shard that has it.
      const auto found = std::find_if(all.begin(), all.end(), [](const reply& r) {
        return r.what != answer::not_found && r.what != answer::moved;
      });
      tell(found != all.end() ? *found : all.front());
    }
  }
}

}  // namespace verge::server::cluster
