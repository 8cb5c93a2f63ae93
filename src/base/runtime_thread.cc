// SPDX-License-Identifier: Apache-2.0

#include <base/runtime_thread.h>

#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <utility>

#include <base/file_descriptor.h>
#include <base/system_call.h>

namespace verge::detail {

std::thread start_thread(std::function<void()> f) {
  try {
    return std::thread(std::move(f));
  } catch (const std::system_error& e) {
    throw std::system_error(e.code(),
                            "verge: a thread cannot be started; raise the limit on threads (ulimit "
                            "-u, or pids.max of the control group) or on memory (ulimit -v), or "
                            "have fewer threads and processors");
  }
}

namespace {

constexpr std::size_t longest_name = 15;

}  // namespace

std::string name_of_thread(std::string_view of, std::string_view role) {
  const std::size_t room = longest_name - std::min(longest_name, role.size() + 1);
  std::string name(of.substr(0, room));
  name += '/';
  name += role;
  return name;
}

std::thread start_runtime_thread(std::string name, std::function<void()> f) {
  name.resize(std::min(name.size(), longest_name));
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread t = start_thread([name = std::move(name), f = std::move(f)] {
      pthread_setname_np(pthread_self(), name.c_str());
      set_timer_slack(1);
      f();
    });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return t;
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
}

bool is_computing(pid_t thread) noexcept {
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/self/task/%d/stat", static_cast<int>(thread));
  const file_descriptor file(::open(path.data(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return false;
  std::array<char, 256> text;
  const ssize_t n = uninterrupted([&] { return ::read(file.get(), text.data(), text.size()); });
  const std::string_view stat(text.data(), n < 0 ? 0 : static_cast<std::size_t>(n));
  const std::size_t name_ends = stat.rfind(')');  // a thread name may contain ")"
  return name_ends != std::string_view::npos && stat.substr(name_ends, 3) == ") R";
}

void set_timer_slack(unsigned long nanoseconds) noexcept {
  prctl(PR_SET_TIMERSLACK, nanoseconds, 0UL, 0UL, 0UL);
}

}  // namespace verge::detail
