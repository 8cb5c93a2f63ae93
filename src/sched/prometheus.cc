// SPDX-License-Identifier: Apache-2.0

// A runtime's figures as text, for Prometheus.

#include <cstdint>
#include <cstdio>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <verge/metrics.h>
#include <verge/version.h>

namespace verge {

namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

class exposition {
 public:
  explicit exposition(std::ostream& out) : out_(out) {}

  void head(std::string_view name, std::string_view type, std::string_view help) {
    out_ << "# HELP verge_" << name << ' ' << help << "\n# TYPE verge_" << name << ' ' << type
         << '\n';
  }
  void sample(std::string_view name, std::string_view labels, const std::string& value) {
    out_ << "verge_" << name;
    if (!labels.empty()) out_ << '{' << labels << '}';
    out_ << ' ' << value << '\n';
  }
  void one(std::string_view name, std::string_view type, const std::string& value,
           std::string_view help) {
    head(name, type, help);
    sample(name, "", value);
  }

 private:
  std::ostream& out_;
};

struct processor_figure {
  const char* name;
  const char* type;
  std::uint64_t processor_stats::*value;
  const char* help;
};
constexpr processor_figure processor_figures[] = {
    {"timers_pending", "gauge", &processor_stats::timers_live, "Timers that are pending."},
    {"timers_left_in_queue", "gauge", &processor_stats::timers_deleted,
     "Timers that were stopped and are still in the queue."},
    {"timers_fired_total", "counter", &processor_stats::timers_fired,
     "Timers fired by the processor, also for others."},
    {"timers_stolen_total", "counter", &processor_stats::timers_stolen,
     "Those of them that belonged to another processor."},
    {"tasks_run_total", "counter", &processor_stats::tasks_run,
     "How often a task or callback was run or resumed."},
    {"tasks_queued", "gauge", &processor_stats::tasks_queued, "Tasks that wait to run."},
    {"tasks_stolen_total", "counter", &processor_stats::tasks_stolen,
     "How often the processor took ready tasks from another's queue."},
    {"wakeups_total", "counter", &processor_stats::wakeups,
     "How often a thread was woken for the processor."},
};

struct runtime_figure {
  const char* name;
  const char* type;
  std::uint64_t runtime_stats::*value;
  const char* help;
};
constexpr runtime_figure runtime_figures[] = {
    {"timers_started_total", "counter", &runtime_stats::timers_started,
     "Timers that were started, or reset while they were not pending."},
    {"timers_stopped_total", "counter", &runtime_stats::timers_stopped,
     "Timers that were stopped while they were pending."},
    {"timers_reset_total", "counter", &runtime_stats::timers_reset,
     "Timers that were reset while they were pending."},
    {"tasks_started_total", "counter", &runtime_stats::tasks_started, "Tasks that were started."},
    {"tasks_live", "gauge", &runtime_stats::tasks_live, "Tasks that have not ended."},
    {"tasks_waiting", "gauge", &runtime_stats::tasks_waiting,
     "Tasks that are neither ready nor running: about so many."},
    {"polls_total", "counter", &runtime_stats::polls, "How often a thread slept in the poller."},
    {"poll_breaks_total", "counter", &runtime_stats::poll_breaks,
     "How often the poller was woken for an earlier timer."},
    {"poll_rescues_total", "counter", &runtime_stats::poll_rescues,
     "How often the monitor woke a poller that slept past a timer."},
    {"monitor_wakeups_total", "counter", &runtime_stats::monitor_wakeups,
     "How often the monitor ran."},
    {"spare_processors_total", "counter", &runtime_stats::spare_used,
     "How often a spare processor started, as all others were stuck."},
    {"stalls_total", "counter", &runtime_stats::stalls,
     "Callbacks and turns of tasks that have held a processor for too long."},
    {"threads_started_total", "counter", &runtime_stats::threads,
     "Worker threads that were started."},
};

/// The text of a label of Prometheus', in quotes.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out += '"';
}

void write_labels(exposition& to, const std::vector<label_stats>& labels) {
  const auto all = [&](const char* name, const char* type, std::uint64_t label_stats::*value,
                       const char* help) {
    to.head(name, type, help);
    for (const label_stats& l : labels) {
      to.sample(name, "label=" + quoted(l.label) + ",place=" + quoted(l.place),
                std::to_string(l.*value));
    }
  };
  all("label_timers_pending", "gauge", &label_stats::pending,
      "Timers that are pending, by label and by the place where they were made: about so many.");
  all("label_timers_fired_total", "counter", &label_stats::fired,
      "Timers that have fired, by label and place.");
}

/// By powers of two from 1 us to 17 s: four buckets of the histogram each.
void write_histogram(exposition& to, const std::string& name, const duration_histogram& late,
                     std::string_view help) {
  constexpr std::int64_t first = std::int64_t{1} << 10;
  constexpr std::int64_t last = std::int64_t{1} << 34;
  to.head(name, "histogram", help);
  std::uint64_t seen = 0;
  double sum = 0;
  for (std::size_t b = 0; b < lateness_histogram::bucket_count; ++b) {
    const std::int64_t end = lateness_histogram::upper_bound(b);
    seen += late[b];
    sum += static_cast<double>(late[b]) * seconds(end);
    // The last bucket has no end.
    const bool power = (end & (end - 1)) == 0 && b + 1 < lateness_histogram::bucket_count;
    if (power && end >= first && end <= last) {
      to.sample(name + "_bucket", "le=\"" + number(seconds(end)) + "\"", std::to_string(seen));
    }
  }
  to.sample(name + "_bucket", "le=\"+Inf\"", std::to_string(seen));
  to.sample(name + "_sum", "", number(sum));
  to.sample(name + "_count", "", std::to_string(seen));
}

const char* name_of(processors_from from) {
  switch (from) {
    case processors_from::online:
      return "online";
    case processors_from::affinity:
      return "affinity";
    case processors_from::cgroup:
      return "cgroup";
    case processors_from::option:
      break;
  }
  return "option";
}

}  // namespace

void write_prometheus(std::ostream& out, const runtime_stats& figures) {
  exposition to(out);
  to.head("info", "gauge", "The library's version.");
  to.sample("info", "version=\"" + std::string(version()) + "\"", "1");
  to.one("processors", "gauge", std::to_string(figures.processors.size()),
         "How many tasks run at a time.");
  to.head("processors_info", "gauge", "What the number of processors was counted from.");
  to.sample("processors_info",
            std::string("from=\"") + name_of(figures.taken_from) + "\",online=\"" +
                std::to_string(figures.limits.online) + "\",affinity=\"" +
                std::to_string(figures.limits.affinity) + "\",cgroup=\"" +
                std::to_string(figures.limits.cgroup) + "\"",
            "1");
  for (const processor_figure& f : processor_figures) {
    to.head(f.name, f.type, f.help);
    for (std::size_t p = 0; p < figures.processors.size(); ++p) {
      to.sample(f.name, "processor=\"" + std::to_string(p) + "\"",
                std::to_string(figures.processors[p].*f.value));
    }
  }
  to.head("processor_busy_seconds_total", "counter",
          "How long a thread has held the processor, to run something or to look for it.");
  for (std::size_t p = 0; p < figures.processors.size(); ++p) {
    to.sample("processor_busy_seconds_total", "processor=\"" + std::to_string(p) + "\"",
              number(seconds(figures.processors[p].busy.count())));
  }
  write_histogram(to, "timer_lateness_seconds", figures.total.lateness, "How late timers fired.");
  write_histogram(to, "turn_seconds", figures.total.turns,
                  "How long callbacks and turns of tasks take, estimated from samples.");
  write_histogram(to, "ready_wait_seconds", figures.total.ready_waits,
                  "How long what is ready waits until it runs, of a sample.");
  for (const runtime_figure& f : runtime_figures) {
    to.one(f.name, f.type, std::to_string(figures.*f.value), f.help);
  }
  write_labels(to, figures.labels);
  to.one("timer_memory_bytes", "gauge", std::to_string(figures.timer_bytes),
         "Memory held for timers: nodes and queues.");
  to.one("longest_stall_seconds", "gauge", number(seconds(figures.longest_stall.count())),
         "The longest of them.");
  to.one("precise_waits_seconds_total", "counter", number(seconds(figures.precise_waits.count())),
         "How long threads have waited awake for precise timers.");
}

}  // namespace verge
