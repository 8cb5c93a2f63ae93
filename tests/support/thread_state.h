// Whether a thread sleeps in the kernel: by that one thread knows that another, which was about to
// wait for it, does. Then a wait that is missing is found every time, and nobody had to guess how
// long the other takes to get there.
#pragma once

#include <sys/types.h>

#include <fstream>
#include <string>

namespace verge::test {

/// `thread`: what gettid() says in it.
inline bool is_asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_ends = text.rfind(')');  // a name may have anything in it, ")" too
  return name_ends != std::string::npos && text.compare(name_ends, 3, ") S") == 0;
}

}  // namespace verge::test
