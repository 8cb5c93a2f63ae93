// A runtime's figures as text, for Prometheus.

#include <cstdint>
#include <cstdio>
#include <ostream>
#include <string>
#include <string_view>

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
    {"timers_stopped", "gauge", &processor_stats::timers_deleted,
     "Timers that were stopped and are still in the queue."},
    {"timers_fired_total", "counter", &processor_stats::timers_fired,
     "Timers fired by the processor, also for others."},
    {"timers_stolen_total", "counter", &processor_stats::timers_stolen,
     "Those of them that belonged to another processor."},
    {"tasks_run_total", "counter", &processor_stats::tasks_run,
     "How often a task or callback was run or resumed."},
    {"tasks_queued", "gauge", &processor_stats::tasks_queued, "Tasks that wait to run."},
    {"wakeups_total", "counter", &processor_stats::wakeups,
     "How often a thread was woken for the processor."},
};

/// By powers of two from 1 us to 17 s: four buckets of the histogram each.
void write_lateness(exposition& to, const lateness_histogram& late) {
  constexpr const char* name = "timer_lateness_seconds";
  constexpr std::int64_t first = std::int64_t{1} << 10;
  constexpr std::int64_t last = std::int64_t{1} << 34;
  to.head(name, "histogram", "How late timers fired.");
  std::uint64_t seen = 0;
  double sum = 0;
  for (std::size_t b = 0; b < lateness_histogram::bucket_count; ++b) {
    const std::int64_t end = lateness_histogram::upper_bound(b);
    seen += late[b];
    sum += static_cast<double>(late[b]) * seconds(end);
    // The last bucket has no end.
    const bool power = (end & (end - 1)) == 0 && b + 1 < lateness_histogram::bucket_count;
    if (power && end >= first && end <= last) {
      to.sample("timer_lateness_seconds_bucket", "le=\"" + number(seconds(end)) + "\"",
                std::to_string(seen));
    }
  }
  to.sample("timer_lateness_seconds_bucket", "le=\"+Inf\"", std::to_string(seen));
  to.sample("timer_lateness_seconds_sum", "", number(sum));
  to.sample("timer_lateness_seconds_count", "", std::to_string(seen));
}

}  // namespace

void write_prometheus(std::ostream& out, const runtime_stats& figures) {
  exposition to(out);
  to.head("info", "gauge", "The library's version.");
  to.sample("info", "version=\"" + std::string(version()) + "\"", "1");
  to.one("processors", "gauge", std::to_string(figures.processors.size()),
         "How many tasks run at a time.");
  for (const processor_figure& f : processor_figures) {
    to.head(f.name, f.type, f.help);
    for (std::size_t p = 0; p < figures.processors.size(); ++p) {
      to.sample(f.name, "processor=\"" + std::to_string(p) + "\"",
                std::to_string(figures.processors[p].*f.value));
    }
  }
  write_lateness(to, figures.total.lateness);
  to.one("polls_total", "counter", std::to_string(figures.polls),
         "How often a thread slept in the poller.");
  to.one("poll_breaks_total", "counter", std::to_string(figures.poll_breaks),
         "How often the poller was woken for an earlier timer.");
  to.one("poll_rescues_total", "counter", std::to_string(figures.poll_rescues),
         "How often the monitor woke a poller that slept past a timer.");
  to.one("monitor_wakeups_total", "counter", std::to_string(figures.monitor_wakeups),
         "How often the monitor ran.");
  to.one("spare_processors_total", "counter", std::to_string(figures.spare_used),
         "How often a spare processor started, as all others were stuck.");
  to.one("threads_started_total", "counter", std::to_string(figures.threads),
         "Worker threads that were started.");
  to.one("timer_memory_bytes", "gauge", std::to_string(figures.timer_bytes),
         "Memory held for timers: nodes and queues.");
  to.one("precise_waits_seconds_total", "counter", number(seconds(figures.precise_waits.count())),
         "How long threads have waited awake for precise timers.");
}

}  // namespace verge
