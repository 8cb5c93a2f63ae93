// SPDX-License-Identifier: Apache-2.0

#include "run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <thread>

#include "../peers/protocol.h"
#include "child_process.h"
#include "collector.h"
#include "machine.h"

namespace verge::bench {
namespace {

constexpr std::chrono::seconds longest_answer{300};

/// Keeps all cores but one busy during its lifetime.
class busy_cores {
 public:
  explicit busy_cores(bool wanted) {
    for (unsigned i = 1; wanted && i < std::thread::hardware_concurrency(); ++i) {
      threads_.emplace_back([this] {
        while (!done_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~busy_cores() {
    done_ = true;
    for (std::thread& t : threads_) t.join();
  }
  busy_cores(const busy_cores&) = delete;
  busy_cores& operator=(const busy_cores&) = delete;

 private:
  std::atomic<bool> done_{false};
  std::vector<std::thread> threads_;
};

/// A system that takes part.
struct participant {
  const system_info* info;
  std::vector<std::string> command;
  std::unique_ptr<child_process> process;

  std::string ask(const std::string& line) {
    if (process == nullptr) process = std::make_unique<child_process>(command);
    try {
      std::string answer = process->ask(line, longest_answer);
      if (!info->stays) process.reset();
      return answer;
    } catch (...) {
      process.reset();
      throw;
    }
  }
};

class running {
 public:
  running(const run_options& options, const run_listener& listener, const std::atomic<bool>& stop)
      : options_(options), listener_(listener), stop_(stop) {}

  run_report all() {
    const auto start = clock::now();
    report_.machine = describe_machine();
    const machine_watch watch;
    const std::vector<job> jobs = plan(options_, listener_.note);
    prepare();
    for (const job& j : jobs)
      to_do_ += j.estimate() * j.repeat * static_cast<double>(taking_part_.size());
    begin_ = clock::now();
    for (const job& j : jobs) {
      for (unsigned i = 0; i < j.repeat && !stop_; ++i) repetition(j, i);
    }
    collected_.finish(report_);
    taking_part_.clear();
    tell_share(watch.since());
    const auto took = std::chrono::duration_cast<std::chrono::seconds>(clock::now() - start);
    report_.machine["took_s"] = std::to_string(took.count());
    return report_;
  }

 private:
  using clock = std::chrono::steady_clock;

  void tell_share(const machine_share& share) {
    const auto percent = [](double n) { return fmt::format("{:.1f}", n); };
    report_.machine["others_percent"] = percent(share.others);
    report_.machine["stolen_percent"] = percent(share.stolen);
    if (!share.too_busy()) return;
    listener_.note("the machine was busy: other programs had " + percent(share.others) +
                   " % of the processor time and its host " + percent(share.stolen) +
                   " %, so compare ratios only, or run it again when it is idle");
  }

  void prepare() {
    for (const std::string& name : options_.systems) {
      if (stop_) return;
      const system_info& info = system_named(name);
      try {
        participant p{.info = &info, .command = command_for(info), .process = nullptr};
        report_.versions[name] = parse_version(p.ask("version"));
        taking_part_.push_back(std::move(p));
      } catch (const std::exception& e) {
        if (stop_) return;
        report_.skipped[name] = e.what();
        listener_.note(name + " is skipped: " + e.what());
      }
    }
  }

  /// Every other repetition goes backwards: a system leaves something behind for the next, memory
  /// above all, which the host of a virtual machine may have to provide again.
  void repetition(const job& j, unsigned i) {
    const busy_cores busy(j.workload->keeps_busy);
    for (std::size_t k = 0; k < taking_part_.size(); ++k) {
      participant& p = taking_part_[i % 2 == 0 ? k : taking_part_.size() - 1 - k];
      if (stop_) return;
      tell(j, p);
      measure(j, i, p);
      done_ += j.estimate();
    }
  }

  void measure(const job& j, unsigned repetition, participant& p) {
    const subject of{.system = p.info->name,
                     .workload = j.workload->name,
                     .timers = j.timers,
                     .threads = j.threads};
    const std::string place = of.system + " " + of.workload;
    const std::string here =
        place + " " + std::to_string(of.timers) + " " + std::to_string(of.threads);
    if (given_up_.contains(here)) return;
    try {
      const request r{.workload = of.workload,
                      .timers = of.timers,
                      .threads = of.threads,
                      .milliseconds = j.milliseconds,
                      .seed = repetition + 1};
      collected_.add(of, parse_answer(p.ask(to_line(r))));
    } catch (const unsupported& e) {
      given_up_[here] = e.what();
      report_.skipped[place] = e.what();
    } catch (const std::exception& e) {
      if (stop_) return;
      given_up_[here] = e.what();
      report_.skipped[place] = e.what();
      listener_.note(place + " failed: " + e.what());
    }
  }

  /// The estimate of what is left goes by how long the part that is done has taken.
  void tell(const job& j, const participant& p) {
    const double took = std::chrono::duration<double>(clock::now() - begin_).count();
    const double pace = done_ > 0 ? took / done_ : 1;
    listener_.progress(j.workload->name + " " + std::to_string(j.timers) + " " + p.info->name,
                       done_ / to_do_, (to_do_ - done_) * pace);
  }

  const run_options& options_;
  const run_listener& listener_;
  const std::atomic<bool>& stop_;
  run_report report_;
  collector collected_;
  std::vector<participant> taking_part_;
  std::map<std::string, std::string> given_up_;
  clock::time_point begin_;
  double to_do_ = 0;
  double done_ = 0;
};

bool named_in(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

double job::estimate() const {
  const auto n = static_cast<double>(timers);
  const double window = milliseconds * 1e-3;
  if (workload->is_lateness) return window + 0.3 + n * 1e-6;
  if (workload->name == "fire") return 1.1 + n * 2.5e-6;
  if (workload->name.starts_with("dense_")) return 0.2 + window + n * window * 3e-6;
  if (workload->name == "fill") return 0.05 + n * 0.5e-6;
  if (workload->name == "memory") return 0.05 + n * 2e-6;
  return 0.1 + window + n * 1.5e-6;
}

std::vector<job> plan(const run_options& options,
                      const std::function<void(const std::string&)>& note) {
  std::vector<job> jobs;
  for (const workload_info& w : all_workloads()) {
    if (!named_in(options.workloads, w.name)) continue;
    std::vector<std::size_t> sizes = options.timers;
    if (w.timers_are_fixed) sizes = {w.fixed_timers};
    std::erase_if(sizes, [&](std::size_t n) { return n < w.at_least; });
    if (sizes.empty()) {
      note(w.name + " is left out: it wants --timers of " + std::to_string(w.at_least) +
           " or more");
    }
    unsigned repeat = options.repeat;
    if (repeat == 0) repeat = options.quick ? w.quick_repeat : w.is_lateness ? 3 : 5;
    const std::vector<unsigned> threads = w.in_threads ? options.threads : std::vector<unsigned>{1};
    for (const std::size_t n : sizes) {
      for (const unsigned t : threads) {
        jobs.push_back({.workload = &w,
                        .timers = n,
                        .threads = t,
                        .repeat = repeat,
                        .milliseconds = options.quick ? w.quick_milliseconds : w.milliseconds});
      }
    }
  }
  return jobs;
}

run_report run(const run_options& options, const run_listener& listener,
               const std::atomic<bool>& stop) {
  return running(options, listener, stop).all();
}

}  // namespace verge::bench
