// SPDX-License-Identifier: Apache-2.0

#include "metrics.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

namespace verge::server::web {

namespace {

template <class... Args>
void add(std::string& out, fmt::format_string<Args...> text, Args&&... args) {
  fmt::format_to(std::back_inserter(out), text, std::forward<Args>(args)...);
}

void head(std::string& out, std::string_view name, std::string_view type, std::string_view help) {
  add(out, "# HELP verge_{} {}\n# TYPE verge_{} {}\n", name, help, name, type);
}

template <class T>
void one(std::string& out, std::string_view name, std::string_view type, std::string_view help,
         T value) {
  head(out, name, type, help);
  add(out, "verge_{} {}\n", name, value);
}

double seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }

/// Names of tubes have neither quotes nor backslashes, so they need no escapes.
template <class Get>
void by_tube(std::string& out, const survey_view& v, std::string_view name, std::string_view type,
             std::string_view help, Get get) {
  head(out, name, type, help);
  for (const tube_view& t : v.tubes) add(out, "verge_{}{{tube=\"{}\"}} {}\n", name, t.name, get(t));
}

void add_tubes(std::string& out, const survey_view& v) {
  head(out, "tasks", "gauge", "Tasks by tube and state.");
  for (const tube_view& t : v.tubes) {
    for (const auto& [state, n] :
         std::array{std::pair("ready", t.ready), std::pair("delayed", t.delayed),
                    std::pair("reserved", t.reserved), std::pair("buried", t.buried)}) {
      add(out, "verge_tasks{{tube=\"{}\",state=\"{}\"}} {}\n", t.name, state, n);
    }
  }
  by_tube(out, v, "put_total", "counter", "Tasks that were put.",
          [](const tube_view& t) { return t.total; });
  by_tube(out, v, "handed_out_total", "counter", "Tasks that were handed to a worker.",
          [](const tube_view& t) { return t.reserves; });
  by_tube(out, v, "deleted_total", "counter", "Tasks that were deleted or acked.",
          [](const tube_view& t) { return t.deletes; });
  by_tube(out, v, "waiting_workers", "gauge", "Workers that wait for a task.",
          [](const tube_view& t) { return t.waiting; });
  by_tube(out, v, "oldest_ready_seconds", "gauge", "For how long the oldest ready task is due.",
          [](const tube_view& t) { return static_cast<double>(t.oldest_ready) / 1e9; });
  by_tube(out, v, "paused", "gauge", "1 while a tube is paused.",
          [](const tube_view& t) { return t.pause_left > 0 ? 1 : 0; });
}

void add_lateness(std::string& out, const lateness_figures& f) {
  head(out, "lateness_seconds", "histogram", "How late delayed tasks were made ready.");
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < f.bounds.size(); ++i) {
    sum += f.counts[i];
    add(out, "verge_lateness_seconds_bucket{{le=\"{}\"}} {}\n",
        static_cast<double>(f.bounds[i]) / 1e6, sum);
  }
  sum += f.counts.back();
  add(out, "verge_lateness_seconds_bucket{{le=\"+Inf\"}} {}\n", sum);
  add(out, "verge_lateness_seconds_sum {}\n", static_cast<double>(f.microseconds) / 1e6);
  add(out, "verge_lateness_seconds_count {}\n", sum);
}

void add_push(std::string& out, const survey_view& v, const push::push_figures& f) {
  const auto load = [](const std::atomic<std::uint64_t>& n) {
    return n.load(std::memory_order_relaxed);
  };
  one(out, "push_attempts_total", "counter", "Deliveries that were tried.", load(f.attempts));
  one(out, "push_delivered_total", "counter", "Deliveries that a receiver has accepted.",
      load(f.delivered));
  one(out, "push_failed_total", "counter", "Deliveries that failed.", load(f.failed));
  one(out, "push_refused_total", "counter",
      "Of those that failed: the receiver's address is not public.", load(f.refused));
  one(out, "push_postponed_total", "counter",
      "Tasks that were not sent yet, as their receiver had enough under way.", load(f.postponed));
  one(out, "push_under_way", "gauge", "Deliveries that are being tried.", load(f.under_way));
  one(out, "push_seconds_total", "counter", "Time that deliveries took.",
      static_cast<double>(load(f.microseconds)) / 1e6);
  by_tube(out, v, "push_disabled", "gauge", "1 for a tube whose receiver wants no more tasks.",
          [](const tube_view& t) { return t.push_disabled ? 1 : 0; });
}

}  // namespace

machine_view look_at_machine(const std::string& directory) {
  machine_view m;
  struct statvfs disk {};
  if (!directory.empty() && ::statvfs(directory.c_str(), &disk) == 0) {
    m.disk_free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
    m.disk_size = std::uint64_t{disk.f_blocks} * disk.f_frsize;
  }
  rusage use{};
  if (::getrusage(RUSAGE_SELF, &use) == 0) {
    m.cpu_seconds = static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
                    static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
  }
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  if (statm >> pages >> pages) {
    m.resident = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  }
  std::error_code ignored;
  for (auto i = std::filesystem::directory_iterator("/proc/self/fd", ignored);
       i != std::filesystem::directory_iterator(); i.increment(ignored)) {
    ++m.descriptors;
  }
  return m;
}

std::string metrics_text(const survey_view& v, const machine_view& m, const signs* s) {
  const server_view& all = v.all;
  std::string out;
  add_tubes(out, v);
  one(out, "tubes", "gauge", "Tubes.", all.tubes);
  add_lateness(out, all.lateness);
  one(out, "timeouts_total", "counter", "Leases that ended because the TTR had passed.",
      all.timeouts);
  one(out, "connections", "gauge", "Connections of clients.", all.connections);
  one(out, "commits_total", "counter", "Batches that were written.", all.batches);
  one(out, "committed_commands_total", "counter", "Commands in those batches.",
      all.batched_commands);
  one(out, "sync_seconds_total", "counter", "Time that writing and syncing took.",
      seconds(all.sync_nanoseconds));
  one(out, "in_memory_tasks", "gauge", "Tasks in memory; the others are on disk alone.",
      all.in_memory);
  one(out, "written_bytes_total", "counter", "Bytes that the store wrote.", all.bytes_written);
  one(out, "disk_bytes", "gauge", "Bytes that the store has on disk.", all.disk_bytes);
  if (m.disk_size != 0) {
    one(out, "disk_free_bytes", "gauge", "Bytes that are left on the disk.", m.disk_free);
    one(out, "disk_size_bytes", "gauge", "Bytes that the disk has.", m.disk_size);
  }
  one(out, "draining", "gauge", "1 while no tasks are taken.", all.draining ? 1 : 0);
  one(out, "uptime_seconds", "gauge", "Since the server was started.", all.uptime);
  if (s != nullptr) {
    one(out, "clock_steps_total", "counter", "How often the wall clock was set.",
        s->clock_steps.load(std::memory_order_relaxed));
    if (s->push != nullptr) add_push(out, v, *s->push);
  }
  one(out, "process_resident_memory_bytes", "gauge", "Memory.", m.resident);
  one(out, "process_cpu_seconds_total", "counter", "Processor time.", m.cpu_seconds);
  one(out, "process_open_fds", "gauge", "Open descriptors.", m.descriptors);
  return out;
}

}  // namespace verge::server::web
