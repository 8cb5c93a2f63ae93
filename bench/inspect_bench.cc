// SPDX-License-Identifier: Apache-2.0

// What the inspector costs a program with many timers, in one run with and without it.
//
//   inspect_bench [--timers=N] [--windows=N] [--seconds=S]    default: 1000000, 6, 5
//
// A runtime has N timers pending, and fires 5,000 a second more. Windows without an inspector and
// windows with one whose page looks once a second take turns. It prints how late the timers were in
// each, the medians of both, and the processor time of the inspector's own threads per second.

#include <dirent.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <verge/inspect.h>
#include <verge/net.h>
#include <verge/time.h>

#include "standalone.h"

namespace {

using namespace std::chrono_literals;
using verge::bench::median;

std::set<std::string> threads() {
  std::set<std::string> all;
  DIR* const folder = ::opendir("/proc/self/task");
  while (const dirent* const e = ::readdir(folder)) {
    if (e->d_name[0] != '.') all.insert(e->d_name);
  }
  ::closedir(folder);
  return all;
}

/// The processor time of threads, in seconds.
double used(const std::set<std::string>& of) {
  double sum = 0;
  for (const std::string& id : of) {
    std::ifstream file("/proc/self/task/" + id + "/schedstat");
    double ns = 0;
    if (file >> ns) sum += ns / 1e9;
  }
  return sum;
}

std::size_t look(const verge::endpoint& at) {
  auto conn = verge::tcp_conn::connect(at).wait().or_throw();
  static_cast<void>(
      conn.write_all(std::string_view("GET /stats.json HTTP/1.1\r\nHost: localhost\r\n\r\n"))
          .wait());
  std::array<char, 65536> bytes;
  std::size_t all = 0;
  for (;;) {
    const auto got = conn.read_some(bytes).wait();
    if (got.error) return all;
    all += got.bytes;
  }
}

struct window {
  double p50;
  double p99;
  double share;  ///< of a core, of the inspector's threads
};

window measure(verge::runtime& rt, bool inspected, int seconds) {
  std::unique_ptr<verge::inspector> page;
  std::set<std::string> own;
  if (inspected) {
    const auto before = threads();
    page = std::make_unique<verge::inspector>(
        rt, verge::inspector_options{.at = verge::endpoint::loopback(0)});
    look(page->at());  // its threads exist then
    const auto after = threads();
    std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                        std::inserter(own, own.end()));
  }
  const auto late = rt.stats().total.lateness;
  const double begun = used(own);
  const auto from = std::chrono::steady_clock::now();
  for (int s = 0; s < seconds; ++s) {
    std::this_thread::sleep_until(from + std::chrono::seconds(s + 1));
    if (inspected) look(page->at());
  }
  const std::chrono::duration<double> length = std::chrono::steady_clock::now() - from;
  const double took = used(own) - begun;
  verge::lateness_histogram::recorder recorder;
  const auto now = rt.stats().total.lateness;
  for (std::size_t b = 0; b < now.bucket_count; ++b) {
    recorder.record(now.upper_bound(b) - 1, now[b] - late[b]);
  }
  const auto during = recorder.read();
  return {static_cast<double>(during.percentile(.5)) / 1000,
          static_cast<double>(during.percentile(.99)) / 1000, took / length.count()};
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t timers = 1'000'000;
  int windows = 6;
  int seconds = 5;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return std::atoi(word.substr(word.find('=') + 1).c_str()); };
    if (word.starts_with("--timers=")) timers = static_cast<std::size_t>(value());
    if (word.starts_with("--windows=")) windows = value();
    if (word.starts_with("--seconds=")) seconds = value();
  }
  verge::runtime rt;
  std::vector<verge::timer> pending;
  rt.run([&] {
    for (std::size_t i = 0; i < timers; ++i) {
      pending.push_back(verge::after_func(1h + std::chrono::milliseconds(i % 100'000), [] {}));
    }
  });
  std::vector<verge::ticker> ticking;
  for (int i = 0; i < 50; ++i) {
    ticking.push_back(verge::every(rt, 10ms + std::chrono::microseconds(i), [] {}));
  }
  std::this_thread::sleep_for(1s);
  std::vector<double> p50[2], p99[2], share;
  std::printf(
      "| window | late, half, us | late, 99 %%, us | inspector, %% of a core |\n"
      "|---|---|---|---|\n");
  for (int i = 0; i < 2 * windows; ++i) {
    const bool inspected = i % 2 == 1;
    const window w = measure(rt, inspected, seconds);
    p50[inspected].push_back(w.p50);
    p99[inspected].push_back(w.p99);
    if (inspected) share.push_back(w.share * 100);
    std::printf("| %s | %.1f | %.1f | %.2f |\n", inspected ? "with" : "without", w.p50, w.p99,
                w.share * 100);
  }
  std::printf(
      "\nmedians: half %.1f us without, %.1f with; 99 %% %.1f us without, %.1f with; "
      "inspector %.2f %% of a core\n",
      median(p50[0]), median(p50[1]), median(p99[0]), median(p99[1]), median(share));
}
