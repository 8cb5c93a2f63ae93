// SPDX-License-Identifier: Apache-2.0

#include "machine.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

#include <verge/version.h>

#include "../peers/measure.h"

namespace verge::bench {
namespace {

/// The value of a line "key: value" or key="value".
std::string value_in(const char* file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const auto from = line.find_first_of(":=");
    if (from == std::string::npos) continue;
    const auto begin = line.find_first_not_of(" \t\"", from + 1);
    if (begin == std::string::npos) continue;
    return line.substr(begin, line.find_last_not_of(" \"") + 1 - begin);
  }
  return "unknown";
}

std::string kernel() {
  utsname u{};
  if (::uname(&u) != 0) return "unknown";
  return std::string(u.sysname) + " " + u.release + " " + u.machine;
}

std::string memory() {
  const auto bytes =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  return std::to_string(static_cast<int>(bytes / (1U << 30U))) + " GiB";
}

std::string date() {
  const std::time_t t = std::time(nullptr);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", std::gmtime(&t));
  return text.data();
}

/// What every operation pays for the time.
std::string clock_cost() {
  constexpr int reads = 100'000;
  const std::int64_t begin = now();
  for (int i = 0; i < reads; ++i) now();
  return std::to_string((now() - begin) / reads);
}

double seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
}

/// Of this process and of its children that have ended.
double own_seconds() {
  double sum = 0;
  for (const auto of : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    if (getrusage(of, &used) == 0) sum += seconds(used.ru_utime) + seconds(used.ru_stime);
  }
  return sum;
}

processor_seconds read_processor_seconds() {
  std::ifstream in("/proc/stat");
  std::string first;
  std::getline(in, first);
  return parse_processor_seconds(first, static_cast<double>(sysconf(_SC_CLK_TCK)));
}

}  // namespace

processor_seconds parse_processor_seconds(std::string_view stat, double ticks_per_second) {
  std::istringstream in{std::string(stat)};
  std::string name;
  // user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user.
  std::array<double, 8> ticks{};
  in >> name;
  for (double& t : ticks) in >> t;
  if (!in || name != "cpu") return {};
  return {.used = (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / ticks_per_second,
          .stolen = ticks[7] / ticks_per_second};
}

machine_watch::machine_watch()
    : begin_(std::chrono::steady_clock::now()),
      all_(read_processor_seconds()),
      own_(own_seconds()) {}

machine_share share_of(processor_seconds used, double own, double possible) {
  if (possible <= 0) return {};
  return {.others = std::max(0.0, used.used - own) / possible * 100,
          .stolen = used.stolen / possible * 100};
}

machine_share machine_watch::since() const {
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  const processor_seconds now = read_processor_seconds();
  return share_of({.used = now.used - all_.used, .stolen = now.stolen - all_.stolen},
                  own_seconds() - own_, took * std::thread::hardware_concurrency());
}

std::map<std::string, std::string> describe_machine() {
  return {{"cpu", value_in("/proc/cpuinfo", "model name")},
          {"cores", std::to_string(std::thread::hardware_concurrency())},
          {"memory", memory()},
          {"kernel", kernel()},
          {"system", value_in("/etc/os-release", "PRETTY_NAME")},
          {"compiler", VERGE_BENCH_COMPILER},
          {"flags", VERGE_BENCH_FLAGS},
          {"verge", std::string(version())},
          {"date", date()},
          {"clock_ns", clock_cost()}};
}

}  // namespace verge::bench
