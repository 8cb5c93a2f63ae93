// SPDX-License-Identifier: Apache-2.0

// Loaded into `verge serve` before the C library (LD_PRELOAD), it lets a test set the wall clock of
// that process, as an operator would set the machine's.
//
//   VERGE_CLOCK_OFFSET  a file of 8 bytes, shared with the test: nanoseconds that the clock is
//   ahead VERGE_CLOCK_FIFO    a named pipe: a byte is written to it when the clock was set
//
// A timer on the wall clock is a descriptor that becomes readable when the clock is set, as one of
// the kernel's does that was armed with TFD_TIMER_CANCEL_ON_SET and a time that never comes. The
// server has no other timers on that clock.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <thread>

#define VERGE_EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

constexpr std::int64_t second = 1'000'000'000;

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

std::atomic<std::int64_t>& offset() {
  static auto* const shared = [] {
    const int fd = ::open(std::getenv("VERGE_CLOCK_OFFSET"), O_RDWR | O_CLOEXEC);
    void* const at = ::mmap(nullptr, sizeof(std::int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (fd < 0 || at == MAP_FAILED) std::abort();
    ::close(fd);
    return static_cast<std::atomic<std::int64_t>*>(at);
  }();
  return *shared;
}

std::atomic<int> watch{-1};
std::atomic<bool> is_armed{false};

/// Tells the server whenever the clock was set.
void follow(const char* fifo) {
  const int from = ::open(fifo, O_RDONLY | O_CLOEXEC);
  char ignored = 0;
  while (from >= 0 && ::read(from, &ignored, 1) == 1) {
    const std::uint64_t one = 1;
    if (is_armed.load() && ::write(watch.load(), &one, sizeof one) != sizeof one) std::abort();
  }
}

}  // namespace

VERGE_EXPORTED int clock_gettime(clockid_t which, timespec* now) noexcept {
  static const auto call = real<int(clockid_t, timespec*)>("clock_gettime");
  const int result = call(which, now);
  if (result != 0 || (which != CLOCK_REALTIME && which != CLOCK_REALTIME_COARSE)) return result;
  const std::int64_t all = now->tv_sec * second + now->tv_nsec + offset().load();
  now->tv_sec = all / second;
  now->tv_nsec = all % second;
  return 0;
}

VERGE_EXPORTED int timerfd_create(clockid_t which, int flags) noexcept {
  static const auto call = real<int(int, int)>("timerfd_create");
  const char* const fifo = std::getenv("VERGE_CLOCK_FIFO");
  if (which != CLOCK_REALTIME || fifo == nullptr || watch.load() >= 0) return call(which, flags);
  watch.store(::eventfd(0, ((flags & TFD_NONBLOCK) != 0 ? EFD_NONBLOCK : 0) | EFD_CLOEXEC));
  std::thread(follow, fifo).detach();
  return watch.load();
}

VERGE_EXPORTED int timerfd_settime(int fd, int flags, const itimerspec* when,
                                   itimerspec* before) noexcept {
  static const auto call = real<int(int, int, const itimerspec*, itimerspec*)>("timerfd_settime");
  if (fd != watch.load()) return call(fd, flags, when, before);
  // Whatever else the server asked for would not be what the kernel does.
  const bool as_expected = flags == (TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET) &&
                           when->it_value.tv_sec == std::numeric_limits<time_t>::max();
  if (!as_expected) std::abort();
  is_armed.store(true);
  return 0;
}
