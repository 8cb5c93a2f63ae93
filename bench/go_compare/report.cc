// SPDX-License-Identifier: Apache-2.0

#include "report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <stdexcept>

namespace verge::bench {
namespace {

/// Three digits and a unit that makes them readable.
std::string readable(double ns) {
  struct {
    double scale;
    const char* unit;
  } const units[] = {{1e6, "ms"}, {1e3, "us"}, {1, "ns"}};
  const auto* unit = std::find_if(std::begin(units), std::end(units) - 1, [&](const auto& u) {
    return ns >= 10 * u.scale;  // 9,990 ns say more than 10 us
  });
  const double value = ns / unit->scale;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f %s", value < 100 ? 1 : 0, value, unit->unit);
  return text.data();
}

[[noreturn]] void cannot_write(const std::filesystem::path& file) {
  throw std::runtime_error("cannot write " + file.string() +
                           "; give --json a file in a folder that is there and writable");
}

}  // namespace

void print_heading(const std::string& go_version, int processors, int rounds) {
  std::printf("verge%s%s, %d processors, %d rounds\n\n", go_version.empty() ? "" : " beside ",
              go_version.c_str(), processors, rounds);
  std::printf("%-30s %-14s %12s %12s %9s %6s\n", "workload", "", "verge", "Go", "Go/verge", "goal");
}

void print(const comparison& line) {
  std::printf("%-30s %-14s %12s", line.workload.c_str(), name_of(line.what),
              readable(line.verge_ns).c_str());
  if (line.go_ns > 0) {
    std::printf(" %12s %9.2f %6.0f%s", readable(line.go_ns).c_str(), line.ratio(), line.goal,
                line.ratio() >= line.goal ? "" : "  missed");
  }
  std::printf("\n");
  std::fflush(stdout);
}

void print(const idle_comparison& idle) {
  const auto count = [](const idleness& i) { return std::to_string(i.wakeups); };
  const auto cpu = [](const idleness& i) { return readable(static_cast<double>(i.cpu.count())); };
  const std::string name = "Idle/" + std::to_string(idle.duration.count() / 1000) + "s";
  std::printf("%-30s %-14s %12s %12s\n", name.c_str(), "wake-ups", count(idle.verge).c_str(),
              idle.go ? count(*idle.go).c_str() : "");
  std::printf("%-30s %-14s %12s %12s\n", name.c_str(), "CPU", cpu(idle.verge).c_str(),
              idle.go ? cpu(*idle.go).c_str() : "");
}

void print_summary(const std::vector<comparison>& lines) {
  const auto at_least = [&](auto wanted) {
    return std::count_if(lines.begin(), lines.end(),
                         [&](const comparison& c) { return c.go_ns > 0 && wanted(c); });
  };
  const auto compared = at_least([](const comparison&) { return true; });
  if (compared == 0) return;
  std::printf(
      "\nof %td lines %td are at least as good as Go's, %td twice as good, %td reach the goal\n",
      compared, at_least([](const comparison& c) { return c.ratio() >= 1; }),
      at_least([](const comparison& c) { return c.ratio() >= 2; }),
      at_least([](const comparison& c) { return c.ratio() >= c.goal; }));
}

void check_writable(const std::filesystem::path& file) {
  if (!std::ofstream(file, std::ios::app)) cannot_write(file);
}

void write_json(const std::filesystem::path& file, const std::string& go_version, int processors,
                int rounds, const std::vector<comparison>& lines, const idle_comparison& idle) {
  std::ofstream out(file);
  out << "{\"go\":\"" << go_version << "\",\"processors\":" << processors
      << ",\"rounds\":" << rounds << ",\"lines\":[";
  const char* separator = "\n";
  for (const comparison& line : lines) {
    out << separator << "{\"workload\":\"" << line.workload << "\",\"statistic\":\""
        << name_of(line.what) << "\",\"verge_ns\":" << line.verge_ns;
    if (line.go_ns > 0) {
      out << ",\"go_ns\":" << line.go_ns << ",\"ratio\":" << line.ratio();
    }
    out << ",\"goal\":" << line.goal << "}";
    separator = ",\n";
  }
  out << "\n],\n\"idle\":{\"milliseconds\":" << idle.duration.count()
      << ",\"verge_wakeups\":" << idle.verge.wakeups
      << ",\"verge_cpu_ns\":" << idle.verge.cpu.count();
  if (idle.go) {
    out << ",\"go_wakeups\":" << idle.go->wakeups << ",\"go_cpu_ns\":" << idle.go->cpu.count();
  }
  out << "}}\n";
  out.close();
  if (!out) cannot_write(file);
}

}  // namespace verge::bench
