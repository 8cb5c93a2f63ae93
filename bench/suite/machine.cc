#include "machine.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>
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

}  // namespace

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
