// SPDX-License-Identifier: Apache-2.0

#include "bench_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <stdexcept>

#include "../../bench/suite/compare.h"
#include "../../bench/suite/html.h"
#include "../../bench/suite/run.h"
#include "../../bench/suite/table.h"
#include "../../bench/suite/words.h"
#include "progress.h"

namespace verge::bench {
namespace {

constexpr const char* about =
    "Measures verge's engines and other systems side by side, all at the same work in the same "
    "run. bench/workloads.md says what the workloads do, docs/benchmarks.md what the figures say.";

std::atomic<bool> stop{false};

/// The first Ctrl-C ends the run and reports what it has, a second one ends it at once. A second
/// SIGTERM does not: timeout(1) sends two in a row.
void stop_on_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop = true; };
  sigaction(SIGTERM, &action, nullptr);
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

bench_command::bench_command(CLI::App& tool) {
  CLI::App* app = tool.add_subcommand("bench", about);
  app->add_option("--engine", engines_, "verge's: hybrid, processor_heap, ... or all, none")
      ->delimiter(',');
  app->add_option("--peer", peers_, "others: boost_asio, libuv, go, ... or all, none")
      ->delimiter(',');
  app->add_option("--workload", workloads_, "start_stop, fire, lateness_idle, ... or all")
      ->delimiter(',');
  app->add_option("--timers", timers_, "how many are live: 1k,100k,1M,10M; default 1k,100k,1M")
      ->delimiter(',');
  app->add_option("--threads", threads_, "for two_threads; default 1,2")->delimiter(',');
  app->add_option("--repeat", repeat_, "repetitions; default 5, lateness 3; quick: 1 to 3")
      ->check(CLI::Range(1, 1000));
  app->add_flag("--quick", quick_, "everything in less than five minutes, 1k and 100k timers");
  app->add_option("--json", json_, "write the figures to this file");
  app->add_option("--html", html_, "write a page with plots to this file");
  app->add_option("--compare", compare_,
                  "OLD.json NEW.json: measure nothing, print what changed beyond the noise; "
                  "status 1 if something got worse")
      ->expected(2);
  app->add_option("--merge", merge_,
                  "A.json B.json ...: measure nothing, make one report of several; with --json "
                  "and --html");
}

int bench_command::run() const {
  if (!compare_.empty()) return compare();
  if (!json_.empty()) check_writable(json_);
  if (!html_.empty()) check_writable(html_);
  write(merge_.empty() ? measure() : merge());
  return 0;
}

run_report bench_command::measure() const {
  run_options options;
  options.systems = engines_named(engines_);
  for (const std::string& peer : peers_named(peers_)) options.systems.push_back(peer);
  options.workloads = workloads_named(workloads_);
  if (options.systems.empty()) throw std::invalid_argument("no engine and no peer: nothing to do");
  if (options.workloads.empty()) throw std::invalid_argument("no workload: nothing to do");
  using words = std::vector<std::string>;
  const words sizes = quick_ ? words{"1k", "100k"} : words{"1k", "100k", "1M"};
  options.timers = sizes_in(timers_.empty() ? sizes : timers_);
  options.threads = threads_in(threads_);
  options.repeat = repeat_;
  options.quick = quick_;

  stop_on_interrupt();
  tool::progress bar;
  const run_listener listener{.note = [&](const std::string& line) { bar.note(line); },
                              .progress = [&](const std::string& what, double share,
                                              double left) { bar.show(what, share, left); }};
  run_report report = bench::run(options, listener, stop);
  if (stop) bar.note("interrupted: this is what there is");
  return report;
}

run_report bench_command::merge() const {
  std::vector<run_report> reports;
  for (const std::string& file : merge_) reports.push_back(read_report(file));
  return merged(reports);
}

int bench_command::compare() const {
  const comparison c = bench::compare(read_report(compare_[0]), read_report(compare_[1]));
  fmt::print("{}", describe(c));
  for (const change& one : c.changes) {
    if (one.worse) return 1;
  }
  return 0;
}

void bench_command::write(const run_report& report) const {
  if (!json_.empty()) write_text(json_, to_json(report));
  if (!html_.empty()) write_text(html_, to_html(report));
  for (const auto& [name, value] : report.machine) fmt::print("{}: {}\n", name, value);
  fmt::print(
      "Each figure: median [least-most] of the repetitions, and its ratio to the best peer's.\n");
  fmt::print("{}", tables(report));
}

}  // namespace verge::bench
