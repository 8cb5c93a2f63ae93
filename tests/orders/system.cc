// SPDX-License-Identifier: Apache-2.0

// The functions of the system that a scene's threads call, in place of the C library's: during a
// schedule no thread blocks but in the explorer. Outside of schedules they are the C library's.

#include <orders/fiber_locals.h>
#include <orders/traced_memory.h>
#include <orders/tracing.h>

#include <dlfcn.h>
#include <link.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <new>

#include <memory/thread_slot.h>
#include <verge/detail/random.h>

namespace verge::orders {

fiber_locals::fiber_locals() {
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* self) {
        auto& all = *static_cast<fiber_locals*>(self);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type != PT_TLS) continue;
          all.start_ = static_cast<std::byte*>(info->dlpi_tls_data);
          all.size_ = info->dlpi_phdr[i].p_memsz;
        }
        return 1;  // the program itself is the first
      },
      this);
}

namespace {

traced_memory& memory() { return *traced_memory::now(); }

/// The C library's function of that name.
template <class F>
F* real(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

/// Whether a poll finds nothing to return for.
bool nothing_to_poll = false;
constexpr char the_poller = 0;

/// epoll_pwait2: looks, and looks again after every write.
long wait_for_events(int epoll, epoll_event* events, int most, bool waits) {
  for (;;) {
    memory().system_wait(&the_poller, nothing_to_poll);
    static auto* const look = real<int(int, epoll_event*, int, int)>("epoll_wait");
    const int n = look(epoll, events, most, 0);
    if (n != 0 || !waits) return n;
    nothing_to_poll = true;
  }
}

}  // namespace

void begin_system() { nothing_to_poll = false; }

}  // namespace verge::orders

using verge::orders::memory;
using verge::orders::traced;

// NOLINTBEGIN: the names and types are the system's.
extern "C" {

long syscall(long number, ...) noexcept {
  va_list all;
  va_start(all, number);
  long a[6];
  for (long& one : a) one = va_arg(all, long);
  va_end(all);
  long result = 0;
  const bool done = number == SYS_futex || number == SYS_membarrier || number == SYS_epoll_pwait2;
  if (done && traced([&] {
        if (number == SYS_membarrier) {
          if (a[0] == MEMBARRIER_CMD_PRIVATE_EXPEDITED) memory().fence_all();
        } else if (number == SYS_epoll_pwait2) {
          result = verge::orders::wait_for_events(static_cast<int>(a[0]),
                                                  reinterpret_cast<epoll_event*>(a[1]),
                                                  static_cast<int>(a[2]), true);
        } else if ((a[1] & FUTEX_CMD_MASK) == FUTEX_WAKE) {
          memory().futex_wake(reinterpret_cast<void*>(a[0]), static_cast<int>(a[2]));
        } else {
          memory().futex_wait(reinterpret_cast<void*>(a[0]), static_cast<std::uint32_t>(a[2]),
                              a[3] != 0);
        }
      })) {
    return result;
  }
  // Between schedules there is one thread. A kernel without this call would have each store leak.
  if (number == SYS_membarrier) return 0;
  static auto* const real = verge::orders::real<long(long, ...) noexcept>("syscall");
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int epoll_wait(int epoll, epoll_event* events, int most, int timeout) {
  long n = 0;
  if (traced([&] { n = verge::orders::wait_for_events(epoll, events, most, timeout != 0); })) {
    return static_cast<int>(n);
  }
  static auto* const real = verge::orders::real<int(int, epoll_event*, int, int)>("epoll_wait");
  return real(epoll, events, most, timeout);
}

ssize_t write(int fd, const void* from, size_t n) {
  traced([&] {
    memory().system_point(&verge::orders::the_poller);
    verge::orders::nothing_to_poll = false;
  });
  static auto* const real = verge::orders::real<ssize_t(int, const void*, size_t)>("write");
  return real(fd, from, n);
}

ssize_t read(int fd, void* to, size_t n) {
  traced([&] { memory().system_point(&verge::orders::the_poller); });
  static auto* const real = verge::orders::real<ssize_t(int, void*, size_t)>("read");
  return real(fd, to, n);
}

int sched_yield() noexcept {
  traced([&] { memory().yield(); });
  return 0;
}

int nanosleep(const timespec* how_long, timespec* left) {
  if (traced([&] { memory().yield(); })) return 0;
  static auto* const real = verge::orders::real<int(const timespec*, timespec*)>("nanosleep");
  return real(how_long, left);
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* until, timespec* left) {
  if (traced([&] { memory().yield(); })) return 0;
  static auto* const real =
      verge::orders::real<int(clockid_t, int, const timespec*, timespec*)>("clock_nanosleep");
  return real(clock, flags, until, left);
}

int pthread_mutex_lock(pthread_mutex_t* m) noexcept {
  if (traced([&] { memory().mutex_lock(m); })) return 0;
  static auto* const real = verge::orders::real<int(pthread_mutex_t*)>("pthread_mutex_lock");
  return real(m);
}

int pthread_mutex_trylock(pthread_mutex_t* m) noexcept {
  bool done = false;
  if (traced([&] { done = memory().mutex_try_lock(m); })) return done ? 0 : EBUSY;
  static auto* const real = verge::orders::real<int(pthread_mutex_t*)>("pthread_mutex_trylock");
  return real(m);
}

int pthread_mutex_unlock(pthread_mutex_t* m) noexcept {
  if (traced([&] { memory().mutex_unlock(m); })) return 0;
  static auto* const real = verge::orders::real<int(pthread_mutex_t*)>("pthread_mutex_unlock");
  return real(m);
}

}  // extern "C"
// NOLINTEND

// Each of a scene's threads has a number (memory/thread_slot.h); a scene may take it away.
constinit thread_local std::uint32_t verge::detail::this_thread_slot = no_thread_slot;
std::uint32_t verge::detail::take_thread_slot() noexcept { return this_thread_slot; }
std::uint32_t verge::detail::thread_slots_used() noexcept { return test::explorer::most_threads; }

// A select looks at its cases in an order drawn at random: the explorer tries several.
std::uint64_t verge::detail::random_bits() noexcept {
  std::uint64_t seed = 0;
  traced([&] { seed = memory().choose_one_of(3); });
  return seed;
}

// What a schedule frees is kept until its end.
void operator delete(void* p) noexcept {
  if (p == nullptr) return;
  if (traced([&] { memory().freed(p, ::malloc_usable_size(p), &std::free); })) return;
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }
void operator delete(void* p, std::align_val_t) noexcept { operator delete(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { operator delete(p); }
void operator delete[](void* p) noexcept { operator delete(p); }
void operator delete[](void* p, std::size_t) noexcept { operator delete(p); }
void* operator new(std::size_t n) {
  void* const p = std::malloc(n == 0 ? 1 : n);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void* operator new(std::size_t n, std::align_val_t alignment) {
  const auto a = static_cast<std::size_t>(alignment);
  void* const p = std::aligned_alloc(a, (n + a - 1) / a * a);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void* operator new[](std::size_t n) { return operator new(n); }
