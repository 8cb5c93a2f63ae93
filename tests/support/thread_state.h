// SPDX-License-Identifier: Apache-2.0
// Whether a thread sleeps in the kernel: so one thread knows that another, which was about to wait
// for it, does. Then a missing wait is found every time, without guessing how long the other takes
// to get there.
#pragma once

#include <sys/types.h>

#include <fstream>
#include <string>

namespace verge::test {

/// `thread`: its gettid().
inline bool is_asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_ends = text.rfind(')');  // a thread name may contain ")"
  return name_ends != std::string::npos && text.compare(name_ends, 3, ") S") == 0;
}

}  // namespace verge::test
