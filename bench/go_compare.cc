// SPDX-License-Identifier: Apache-2.0

// Compares verge with Go in one run: Go's own timer benchmarks, task switches, hand-overs and
// lateness.
//
// The two alternate, round by round, because the machine's speed drifts: each figure is a median
// (of lateness: a quantile) over the rounds, and the ratio matters. Go's side is a separate program
// (go/), built when this one starts; without Go only verge's figures are shown.
#include <unistd.h>
#include <verge/time.h>

#include <charconv>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "go_compare/go_process.h"
#include "go_compare/idle.h"
#include "go_compare/report.h"
#include "go_compare/workloads.h"

namespace verge::bench {
namespace {

constexpr const char* usage = R"(usage: go_compare [OPTIONS]

  --quick          three short rounds: a look, not a measurement
  --only NAME      only workloads whose name contains NAME
  --processors N   for verge and for Go; 2 if not given
  --rounds N       for each of the two; 7 if not given
  --json FILE      write the figures there as well
  --list           name the workloads and end
  --help           this text
)";

struct options {
  bool quick{false};
  bool list{false};
  bool help{false};
  int rounds{7};
  int processors{2};
  std::string only;
  std::string json;
};

int number(const std::string& option, const std::string& text) {
  int n = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (code != std::errc() || end != text.data() + text.size() || n < 1 || n > 1000) {
    throw std::invalid_argument(option + " wants a number from 1 to 1000, not '" + text + "'");
  }
  return n;
}

/// Takes --name=value apart.
std::vector<std::string> split(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  for (const std::string& a : arguments) {
    const auto at = a.starts_with("--") ? a.find('=') : std::string::npos;
    words.push_back(a.substr(0, at));
    if (at != std::string::npos) words.push_back(a.substr(at + 1));
  }
  return words;
}

options parse(const std::vector<std::string>& arguments) {
  const std::vector<std::string> words = split(arguments);
  options o;
  for (auto word = words.begin(); word != words.end(); ++word) {
    const auto value = [&]() -> const std::string& {
      if (std::next(word) == words.end()) throw std::invalid_argument(*word + " wants a value");
      return *++word;
    };
    if (*word == "--quick") {
      o.quick = true;
      o.rounds = 3;
    } else if (*word == "--list") {
      o.list = true;
    } else if (*word == "--help") {
      o.help = true;
    } else if (*word == "--only") {
      o.only = value();
    } else if (*word == "--json") {
      o.json = value();
    } else if (*word == "--rounds") {
      o.rounds = number("--rounds", value());
    } else if (*word == "--processors") {
      o.processors = number("--processors", value());
    } else {
      throw std::invalid_argument("there is no option '" + *word + "'; see --help");
    }
  }
  return o;
}

std::vector<workload> chosen(const options& o) {
  std::vector<workload> all = all_workloads();
  std::erase_if(all, [&](const workload& w) { return w.name.find(o.only) == std::string::npos; });
  if (all.empty()) {
    throw std::invalid_argument("no workload's name contains '" + o.only + "'; see --list");
  }
  return all;
}

std::unique_ptr<go_process> start_go() {
  try {
    return std::make_unique<go_process>(VERGE_GO_SOURCE, VERGE_GO_BINARY);
  } catch (const program_not_found& e) {
    std::printf("Go's side is skipped: %s; Debian has it: sudo apt-get install golang-go\n",
                e.what());
    return nullptr;
  } catch (const std::exception& e) {
    std::printf("Go's side is skipped: %s\n", e.what());
    return nullptr;
  }
}

/// On a terminal: shows which round of which workload is running, until its line replaces it.
void show_progress(const workload& w, int round, int rounds, const char* whose) {
  static const bool watched = isatty(STDERR_FILENO) == 1;
  if (watched)
    std::fprintf(stderr, "\r\033[K%s: round %d of %d, %s\r", w.name.c_str(), round + 1, rounds,
                 whose);
}
void wipe_progress() {
  if (isatty(STDERR_FILENO) == 1) std::fprintf(stderr, "\r\033[K");
}

/// Runtimes are kept, as Go's is: only the first round pays for threads and memory.
class runtimes {
 public:
  runtime& of(int processors) {
    auto& r = kept_[processors];
    if (r == nullptr)
      r = std::make_unique<runtime>(
          runtime_options{.processors = static_cast<unsigned>(processors)});
    return *r;
  }

 private:
  std::map<int, std::unique_ptr<runtime>> kept_;
};

std::vector<comparison> compare(const workload& w, parameters p, int rounds, runtimes& ours,
                                go_process* go) {
  w.adapt(p);
  std::vector<figures> verge_rounds;
  std::vector<figures> go_rounds;
  for (int round = 0; round < rounds; ++round) {
    show_progress(w, round, rounds, "verge");
    verge_rounds.push_back(w.run(ours.of(p.processors), p));
    if (go == nullptr) continue;
    show_progress(w, round, rounds, "Go");
    go_rounds.push_back(go->run(w.go_name, p));
  }
  wipe_progress();
  std::vector<comparison> lines;
  for (const goal& g : w.goals) {
    lines.push_back(
        {w.name, g.what, evaluate(g.what, verge_rounds), evaluate(g.what, go_rounds), g.ratio});
  }
  return lines;
}

/// With timers that are hours away and runtimes that have been busy.
idle_comparison compare_idle(runtimes& ours, int processors, bool quick, go_process* go) {
  const auto duration = quick ? std::chrono::seconds(1) : std::chrono::seconds(10);
  constexpr int timers = 1000;
  std::vector<timer> far;
  ours.of(processors).run([&] {
    for (int i = 0; i < timers; ++i) far.emplace_back(std::chrono::hours(1));
  });
  // Until all of them sleep: the monitor runs for another tenth of a second.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  idle_comparison found{duration, watch_idle(getpid(), duration), {}};
  if (go != nullptr) found.go = watch_idle(go->pid(), duration);
  return found;
}

void run(const options& o) {
  const std::vector<workload> workloads = chosen(o);
  if (o.list) {
    for (const workload& w : workloads) std::printf("%s\n", w.name.c_str());
    return;
  }
  if (!o.json.empty()) check_writable(o.json);
  const auto go = start_go();
  const std::string go_version = go == nullptr ? "" : go->version();
  parameters p;
  p.processors = o.processors;
  if (o.quick) p.duration /= 5;

  runtimes ours;
  std::vector<comparison> lines;
  print_heading(go_version, o.processors, o.rounds);
  for (const workload& w : workloads) {
    for (const comparison& line : compare(w, p, o.rounds, ours, go.get())) {
      print(line);
      lines.push_back(line);
    }
  }
  const auto idle = compare_idle(ours, o.processors, o.quick, go.get());
  print(idle);
  print_summary(lines);
  if (!o.json.empty()) write_json(o.json, go_version, o.processors, o.rounds, lines, idle);
}

}  // namespace
}  // namespace verge::bench

int main(int argc, char** argv) {
  try {
    const auto options = verge::bench::parse({argv + 1, argv + argc});
    if (options.help) {
      std::printf("%s", verge::bench::usage);
      return 0;
    }
    verge::bench::run(options);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "go_compare: %s\n", e.what());
    return 2;
  }
}
