// SPDX-License-Identifier: Apache-2.0

#include <inspect/report.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <base/code_name.h>
#include <clock/fast_clock.h>
#include <engine/clockwork.h>
#include <inspect/due_counts.h>
#include <inspect/json_writer.h>
#include <node/named_behaviours.h>
#include <verge/detail/wheel_slots.h>
#include <verge/version.h>

namespace verge::detail {

namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

/// What a timer or task is: pointers to constants, so they can be compared.
using work_key = std::tuple<const char*, const char*, const void*>;

std::string name_of(const work_key& k) {
  return name_of_work(std::get<0>(k), std::get<1>(k), std::get<2>(k));
}

void write_percentiles(json_writer& to, std::string_view name, const duration_histogram& h) {
  to.name(name).open('{');
  to.member("count", h.count());
  to.member("p50", seconds(h.percentile(.5)));
  to.member("p99", seconds(h.percentile(.99)));
  to.member("p999", seconds(h.percentile(.999)));
  to.member("max", seconds(h.percentile(1)));
  to.close('}');
}

void write_totals(json_writer& to, const runtime_stats& s) {
  to.name("totals").open('{');
  to.member("pending", s.total.timers_live).member("stopped_in_queue", s.total.timers_deleted);
  to.member("started", s.timers_started).member("stopped", s.timers_stopped);
  to.member("reset", s.timers_reset).member("fired", s.total.timers_fired);
  to.member("timers_stolen", s.total.timers_stolen).member("tasks_stolen", s.total.tasks_stolen);
  to.member("tasks_started", s.tasks_started).member("tasks_live", s.tasks_live);
  to.member("tasks_waiting", s.tasks_waiting).member("turns", s.total.tasks_run);
  to.member("ready", s.total.tasks_queued).member("wakeups", s.total.wakeups);
  to.member("polls", s.polls).member("poll_breaks", s.poll_breaks);
  to.member("poll_rescues", s.poll_rescues).member("monitor_wakeups", s.monitor_wakeups);
  to.member("spare_used", s.spare_used).member("threads", s.threads);
  to.member("timer_bytes", s.timer_bytes).member("stalls", s.stalls);
  to.member("longest_stall", seconds(s.longest_stall.count()));
  to.close('}');
}

void write_processors(json_writer& to, const runtime_stats& s, const live_scheduler& of,
                      const history_second& last, std::int64_t now) {
  const auto states = of.processor_states();
  to.name("processors").open('[');
  for (std::size_t p = 0; p < s.processors.size() && p < states.size(); ++p) {
    const processor_stats& one = s.processors[p];
    to.open('{');
    to.member("runs", states[p].busy);
    to.member("since",
              states[p].busy ? seconds(std::max<std::int64_t>(now - states[p].since, 0)) : 0.0);
    to.member("busy", p < last.busy.size() ? last.busy[p] : 0U);
    to.member("pending", one.timers_live).member("fired", one.timers_fired);
    to.member("timers_stolen", one.timers_stolen).member("tasks_stolen", one.tasks_stolen);
    to.member("turns", one.tasks_run).member("ready", one.tasks_queued);
    to.member("wakeups", one.wakeups);
    to.close('}');
  }
  to.close(']');
}

/// Pending timers by when they are due, and by what they are.
struct pending_view {
  due_counts due;
  std::uint64_t seen{0};
  std::map<const timer_behaviour*, std::uint64_t> by_name;

  void add(const pending_timer& t, std::int64_t now) {
    ++seen;
    ++by_name[t.does];
    due.add(t.due - now);
  }
};

/// The sample is scaled to how many are pending.
double scale_of(const pending_view& v, std::uint64_t pending) {
  return v.seen == 0 ? 0 : static_cast<double>(pending) / static_cast<double>(v.seen);
}

std::uint64_t scaled(std::uint64_t n, double by) {
  return static_cast<std::uint64_t>(std::llround(static_cast<double>(n) * by));
}

void write_due(json_writer& to, const pending_view& v, double scale) {
  to.name("due").open('{');
  to.member("first_power", due_counts::first_power);
  to.member("overdue", scaled(v.due.overdue, scale)).member("sampled", v.seen);
  to.name("counts").open('[');
  for (const std::uint64_t n : v.due.by_power) to.value(scaled(n, scale));
  to.close(']').close('}');
}

struct work_use {
  std::string place;
  std::uint64_t pending{0};
  std::uint64_t fired{0};
  std::uint64_t turns{0};
  std::int64_t time{0};
  bool is_task{false};
};

/// Names of what is pending, what has fired, and what ran lately, by the sample of turns. Timers of
/// one label are together here, wherever they were made.
void write_names(json_writer& to, const pending_view& v, double scale, const runtime_stats& figures,
                 const processor_set& all, std::size_t most) {
  std::map<std::string, work_use> uses;
  for (const auto& [does, n] : v.by_name) {
    work_use& u = uses[detail::name_of(*does)];
    u.pending += scaled(n, scale);
    if (does->place != nullptr) u.place = does->place;
  }
  for (const label_stats& l : figures.labels) {
    work_use& u = uses[l.label.empty() ? l.place : l.label];
    u.fired += l.fired;
    u.place = l.place;
  }
  std::uint64_t turns = 0;
  std::int64_t time = 0;
  all.for_each([&](const processor& p) {
    for (const trace_event& e : p.samples.since(0).events) {
      work_use& u = uses[name_of({e.label, e.written, e.code})];
      ++u.turns;
      u.time += e.value;
      u.is_task = e.what == trace_event::kind::task;
      ++turns;
      time += e.value;
    }
  });
  std::vector<std::pair<std::string, work_use>> sorted(uses.begin(), uses.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second.pending, a.second.fired, a.second.time) >
           std::tie(b.second.pending, b.second.fired, b.second.time);
  });
  if (sorted.size() > most) sorted.resize(most);
  to.name("labels").open('[');
  for (const auto& [name, u] : sorted) {
    to.open('{');
    to.member("name", name).member("place", u.place != name ? u.place : "");
    to.member("task", u.is_task).member("pending", u.pending).member("fired", u.fired);
    to.member("share_of_turns",
              turns != 0 ? static_cast<double>(u.turns) / static_cast<double>(turns) : 0.0);
    to.member("share_of_time",
              time != 0 ? static_cast<double>(u.time) / static_cast<double>(time) : 0.0);
    to.close('}');
  }
  to.close(']');
}

/// Tasks by what they are and what they wait for.
void write_tasks(json_writer& to, const live_scheduler& s, std::size_t sampled, std::size_t most,
                 std::int64_t now) {
  struct group {
    std::uint64_t count{0};
    std::int64_t since{0};
  };
  // What they are, what they wait for, and in which function.
  using wait_key = std::tuple<work_key, const char*, const void*>;
  std::map<wait_key, group> groups;
  std::uint64_t seen = 0;
  s.jobs().for_each(sampled, [&](const job& j) {
    const char* const waits = j.waiting_for.load(std::memory_order_relaxed);
    const std::int64_t since = j.waiting_since.load(std::memory_order_relaxed);
    const void* const in =
        waits != nullptr ? j.waiting_in.load(std::memory_order_relaxed) : nullptr;
    group& g = groups[{{j.label.load(std::memory_order_relaxed), j.written, j.code}, waits, in}];
    ++g.count;
    ++seen;
    if (waits != nullptr && since != 0 && (g.since == 0 || since < g.since)) g.since = since;
  });
  std::vector<std::pair<wait_key, group>> sorted(groups.begin(), groups.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.count > b.second.count; });
  if (sorted.size() > most) sorted.resize(most);
  to.member("tasks_seen", seen);
  to.name("tasks").open('[');
  for (const auto& [key, g] : sorted) {
    const auto& [what, waits, in] = key;
    to.open('{').member("name", name_of(what));
    to.member("waits_for", waits != nullptr ? waits : "");
    to.member("waits_in", in != nullptr ? function_at(in) : "");
    to.member("count", g.count);
    to.member("oldest", g.since != 0 ? seconds(std::max<std::int64_t>(now - g.since, 0)) : 0.0);
    to.close('}');
  }
  to.close(']');
}

/// A slot of a level that has n of 64 bits means so many processors have timers there.
void write_wheel(json_writer& to, timer_engine& engine, unsigned processors, std::int64_t now) {
  std::array<std::array<unsigned, 64>, wheel_view::levels> slots{};
  std::size_t near = 0;
  bool any = false;
  for (unsigned p = 0; p < processors; ++p) {
    wheel_view view;
    if (!engine.shape(p, view)) continue;
    any = true;
    near += view.near;
    for (int level = 0; level < wheel_view::levels; ++level) {
      for (unsigned slot = 0; slot < 64; ++slot) {
        slots[static_cast<std::size_t>(level)][slot] +=
            static_cast<unsigned>(view.used[level] >> slot & 1);
      }
    }
  }
  if (!any) return;
  to.name("wheel").open('{').member("near", near);
  to.name("levels").open('[');
  struct no_chunks {};
  for (int level = 0; level < wheel_view::levels; ++level) {
    const unsigned shift = wheel_slots<no_chunks>::shift_of(level);
    to.open('{').member("slot", seconds(std::int64_t{1} << shift));
    to.member("hand", static_cast<unsigned>(now >> shift & 63));
    std::string used;
    for (const unsigned n : slots[static_cast<std::size_t>(level)]) {
      used += static_cast<char>('0' + std::min(n, 9U));
    }
    to.member("used", used).close('}');
  }
  to.close(']').close('}');
}

void write_stalls(json_writer& to, const std::vector<stall>& stalls, std::int64_t now) {
  to.name("stalls").open('[');
  for (auto s = stalls.rbegin(); s != stalls.rend(); ++s) {
    to.open('{').member("what", s->what).member("label", s->label).member("place", s->place);
    to.member("task", s->is_task).member("thread", s->thread);
    to.member("lasted", seconds(s->lasted.count()));
    to.member("ago", seconds(std::max<std::int64_t>(
                         now - s->since.time_since_epoch().count() - s->lasted.count(), 0)));
    to.name("backtrace").open('[');
    for (const void* const address : s->backtrace) to.value(name_of_code(address));
    to.close(']').close('}');
  }
  to.close(']');
}

void write_history(json_writer& to, const std::vector<history_second>& past) {
  to.name("history").open('[');
  for (const history_second& s : past) {
    to.open('{').member("n", s.number).member("length", s.length);
    to.member("fired", s.fired).member("started", s.started).member("stopped", s.stopped);
    to.member("reset", s.reset).member("stolen", s.stolen).member("wakeups", s.wakeups);
    to.member("turns", s.turns).member("stalls", s.stalls);
    to.name("busy").open('[');
    for (const unsigned b : s.busy) to.value(b);
    to.close(']').name("lateness").open('[');
    for (const std::uint64_t n : s.lateness) to.value(n);
    to.close(']').close('}');
  }
  to.close(']');
}

const char* source_name(processors_from from) {
  switch (from) {
    case processors_from::online:
      return "the machine's cores";
    case processors_from::affinity:
      return "the affinity mask";
    case processors_from::cgroup:
      return "the control group";
    case processors_from::option:
      break;
  }
  return "the program";
}

}  // namespace

inspect_report::inspect_report(runtime& rt)
    : runtime_(rt),
      scheduler_(static_cast<live_scheduler&>(scheduler_of(rt))),
      begun_(fast_clock::now()) {}

std::string inspect_report::write(const history& past, std::uint64_t since) {
  const runtime_stats s = runtime_.stats();
  const std::int64_t now = fast_clock::now();
  pending_view pending;
  scheduler_.timers().sample_pending(sampled_timers, ++seed_ * 7919,
                                     [&](const pending_timer& t) { pending.add(t, now); });
  const double scale = scale_of(pending, s.total.timers_live);

  json_writer to;
  to.open('{').member("verge", version()).member("pid", ::getpid());
  to.member("watched_for", seconds(now - begun_));
  to.member("processors_from", source_name(s.taken_from));
  write_totals(to, s);
  write_percentiles(to, "lateness", s.total.lateness);
  write_percentiles(to, "turns", s.total.turns);
  write_percentiles(to, "ready_waits", s.total.ready_waits);
  write_processors(to, s, scheduler_, past.last(), now);
  write_due(to, pending, scale);
  write_wheel(to, scheduler_.timers().its_engine(), scheduler_.processors(), now);
  write_names(to, pending, scale, s, scheduler_.all_processors(), most_names);
  write_tasks(to, scheduler_, sampled_tasks, most_names, now);
  write_stalls(to, scheduler_.stalls().recent(), now);
  write_history(to, past.since(since));
  to.close('}');
  return to.take();
}

}  // namespace verge::detail
