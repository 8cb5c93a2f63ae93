// SPDX-License-Identifier: Apache-2.0

#include <clock/fast_clock.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <base/log.h>

namespace verge::detail {

#if defined(__x86_64__)

namespace {

enum class choice : std::uint8_t { open, tsc, kernel };

// Several threads may determine it at once; they all get the same result, and it publishes nothing
// else. Every thread reads it for every anchor, so its cache line has nothing that is written.
struct alignas(64) shared_choice {
  std::atomic<choice> value{choice::open};
};
constinit shared_choice chosen;

bool kernel_trusts_tsc() noexcept {
  std::FILE* f =
      std::fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
  if (f == nullptr) return false;
  char name[32] = {};
  const bool read = std::fgets(name, sizeof name, f) != nullptr;
  std::fclose(f);
  return read && std::strcmp(name, "tsc\n") == 0;
}

// Invariant: the rate is the same in every power state.
bool cpu_has_invariant_tsc() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0;
}

choice ask_machine() noexcept {
  return cpu_has_invariant_tsc() && kernel_trusts_tsc() ? choice::tsc : choice::kernel;
}

choice ask_environment_and_machine() noexcept {
  const char* wish = std::getenv("VERGE_CLOCK");  // NOLINT(concurrency-mt-unsafe): read only
  if (wish != nullptr && std::strcmp(wish, "kernel") == 0) return choice::kernel;
  if (wish != nullptr && *wish != '\0' && std::strcmp(wish, "auto") != 0) {
    log(log_level::warning,
        "VERGE_CLOCK=%s is not known and is ignored; use \"kernel\" to read the time from the "
        "kernel only, or \"auto\"",
        wish);
  }
  return ask_machine();
}

}  // namespace

constinit thread_local tsc_anchor fast_clock::anchor_;

std::int64_t fast_clock::now_and_anchor() noexcept {
  static constinit tsc_rate rate;
  if (source_in_use() == source::kernel) return anchor_.release(true_now());

  // Fenced on both sides: pending loads would stretch the bracket, and the second read could
  // execute before the clock's.
  _mm_lfence();
  const std::uint64_t before = __rdtsc();
  const std::int64_t time = true_now();
  _mm_lfence();
  const std::uint64_t bracket = __rdtsc() - before;
  return anchor_.renew({.ticks = before, .bracket = bracket, .time = time}, rate);
}

fast_clock::source fast_clock::source_in_use() noexcept {
  choice c = chosen.value.load(std::memory_order_relaxed);
  if (c == choice::open) {
    c = ask_environment_and_machine();
    chosen.value.store(c, std::memory_order_relaxed);
  }
  return c == choice::tsc ? source::tsc : source::kernel;
}

bool fast_clock::use(source wanted) noexcept {
  const choice c = wanted == source::tsc ? ask_machine() : choice::kernel;
  chosen.value.store(c, std::memory_order_relaxed);
  if (anchor_.held()) anchor_.release(true_now());
  return (c == choice::tsc) == (wanted == source::tsc);
}

bool fast_clock::anchored() noexcept { return anchor_.held(); }

#else

fast_clock::source fast_clock::source_in_use() noexcept { return source::kernel; }
bool fast_clock::use(source wanted) noexcept { return wanted == source::kernel; }
bool fast_clock::anchored() noexcept { return false; }

#endif

}  // namespace verge::detail
