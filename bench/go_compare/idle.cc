// SPDX-License-Identifier: Apache-2.0

#include "idle.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace verge::bench {
namespace {

// The kernel counts for each thread how often it went to sleep, which is how often it was woken,
// and how long it ran.
idleness of_thread(const std::filesystem::path& thread) {
  idleness found;
  std::ifstream status(thread / "status");
  for (std::string line; std::getline(status, line);) {
    constexpr std::string_view key = "voluntary_ctxt_switches:";
    if (line.starts_with(key)) found.wakeups = std::stoull(line.substr(key.size()));
  }
  std::int64_t ran = 0;
  std::ifstream(thread / "schedstat") >> ran;
  found.cpu = std::chrono::nanoseconds(ran);
  return found;
}

idleness of_process(pid_t process) {
  const std::string self = std::to_string(gettid());
  idleness sum;
  const auto threads = std::filesystem::path("/proc") / std::to_string(process) / "task";
  for (const auto& thread : std::filesystem::directory_iterator(threads)) {
    if (thread.path().filename() == self) continue;
    const idleness one = of_thread(thread.path());
    sum.wakeups += one.wakeups;
    sum.cpu += one.cpu;
  }
  return sum;
}

}  // namespace

idleness watch_idle(pid_t process, std::chrono::milliseconds duration) {
  const idleness before = of_process(process);
  std::this_thread::sleep_for(duration);
  const idleness after = of_process(process);
  return {after.wakeups - before.wakeups, after.cpu - before.cpu};
}

}  // namespace verge::bench
