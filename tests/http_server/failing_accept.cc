// SPDX-License-Identifier: Apache-2.0

// Loaded into a program before the C library (LD_PRELOAD), it makes accept4() fail, with the error
// FAILING_ACCEPT_ERROR, for the first FAILING_ACCEPT_TIMES calls. Each
// failure appends a byte to the file FAILING_ACCEPT_COUNT.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace {

long setting(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atol(text);
}

void count() {
  const char* path = std::getenv("FAILING_ACCEPT_COUNT");
  if (path == nullptr) return;
  const int fd = ::open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t n = ::write(fd, "x", 1);
  ::close(fd);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int accept4(int fd, sockaddr* from,
                                                              socklen_t* size, int flags) {
  using function = int(int, sockaddr*, socklen_t*, int);
  static auto* const real = reinterpret_cast<function*>(::dlsym(RTLD_NEXT, "accept4"));
  static std::atomic<long> left{setting("FAILING_ACCEPT_TIMES")};
  if (left > 0) {
    --left;
    count();
    errno = static_cast<int>(setting("FAILING_ACCEPT_ERROR"));
    return -1;
  }
  return real(fd, from, size, flags);
}
