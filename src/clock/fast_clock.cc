#include <clock/fast_clock.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace verge::detail {

#if defined(__x86_64__)

namespace {

enum class choice : std::uint8_t { open, tsc, kernel };

// Several threads may find out at once; they all find the same, and nothing else hangs on it.
constinit std::atomic<choice> chosen{choice::open};

bool kernel_trusts_tsc() noexcept {
  std::FILE* f =
      std::fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
  if (f == nullptr) return false;
  char name[32] = {};
  const bool read = std::fgets(name, sizeof name, f) != nullptr;
  std::fclose(f);
  return read && std::strcmp(name, "tsc\n") == 0;
}

// Invariant: it ticks at one rate in every power state.
bool cpu_has_invariant_tsc() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0;
}

choice ask_machine() noexcept {
  return cpu_has_invariant_tsc() && kernel_trusts_tsc() ? choice::tsc : choice::kernel;
}

choice ask_environment_and_machine() noexcept {
  const char* wish = std::getenv("VERGE_CLOCK");
  if (wish != nullptr && std::strcmp(wish, "kernel") == 0) return choice::kernel;
  if (wish != nullptr && *wish != '\0' && std::strcmp(wish, "auto") != 0) {
    std::fprintf(
        stderr,
        "verge: VERGE_CLOCK=%s is not known and is ignored; say \"kernel\" to read the time "
        "from the kernel only, or \"auto\"\n",
        wish);
  }
  return ask_machine();
}

}  // namespace

// The counter's rate, for all threads.
//
// Ground rules. `rate` and `due` are read by anyone at any time. Everything else belongs to the
// thread that has set `busy`, and nobody waits for it: a thread that finds it set leaves the
// measuring to the other.
struct fast_clock::rate_meter {
  static constexpr std::int64_t shortest = 1'000'000;     // what is measured over, in ns
  static constexpr std::int64_t longest = 1'000'000'000;  // older: perhaps a suspend lies between

  // Nanoseconds per tick, times 2^rate_shift; 0: not known. Relaxed: it stands for itself, and a
  // rate that is a measurement old is as good.
  std::atomic<std::uint64_t> rate{0};
  std::atomic<std::int64_t> due{0};  // when to measure next; relaxed: a hint
  std::atomic<bool> busy{false};     // publishes the fields below from one holder to the next

  std::uint64_t start_ticks = 0;
  std::int64_t start_time = 0;  // 0: not started
  std::uint64_t measured = 0;   // by the previous measurement, 0: there is none

  // The counter stood at `ticks` at `time`.
  void sample(std::uint64_t ticks, std::int64_t time) noexcept {
    if (time < due.load(std::memory_order_relaxed)) return;
    if (busy.exchange(true, std::memory_order_acquire)) return;
    if (time >= due.load(std::memory_order_relaxed)) {
      if (start_time != 0 && time - start_time <= longest && ticks > start_ticks) {
        measure(ticks - start_ticks, time - start_time);
      }
      start_ticks = ticks;
      start_time = time;
      due.store(time + shortest, std::memory_order_relaxed);
    }
    busy.store(false, std::memory_order_release);
  }

  // A rate holds when two measurements in a row agree: one that a suspend fell into does not count.
  void measure(std::uint64_t ticks, std::int64_t time) noexcept {
    const std::uint64_t result = (static_cast<std::uint64_t>(time) << rate_shift) / ticks;
    const std::uint64_t off = result > measured ? result - measured : measured - result;
    rate.store(off <= result / 100 ? result : 0, std::memory_order_relaxed);
    measured = result;
  }

  void distrust() noexcept {
    if (busy.exchange(true, std::memory_order_acquire)) return;
    rate.store(0, std::memory_order_relaxed);
    due.store(0, std::memory_order_relaxed);
    start_time = 0;
    measured = 0;
    busy.store(false, std::memory_order_release);
  }

  static rate_meter shared;
};

constinit fast_clock::rate_meter fast_clock::rate_meter::shared;
constinit thread_local fast_clock::anchor fast_clock::anchor_;

std::int64_t fast_clock::now_and_anchor() noexcept {
  anchor& a = anchor_;
  if (source_in_use() == source::kernel) {
    a.window = 0;
    const std::int64_t t = true_now();
    return t < a.floor ? a.floor : t;
  }

  const std::uint64_t before = __rdtsc();
  const std::int64_t t = true_now();
  _mm_lfence();  // or the second read might be done before the clock's
  const std::uint64_t bracket = __rdtsc() - before;

  // The readings that the old anchor may have led to are not undercut; but the bound counts for
  // more (it matters only when the counter went back).
  const bool had_anchor = a.window != 0;
  std::int64_t floor = had_anchor ? a.reading(a.window) : a.floor;
  if (floor > t + max_ahead) floor = t + max_ahead;
  const std::int64_t reading = t + bias < floor ? floor : t + bias;
  a.floor = reading;

  // Too long before the rate is known: what would spoil the measuring by more than 0.1 % at 1 GHz.
  constexpr std::uint64_t max_bracket_ticks = 1000;
  if (bracket > max_bracket_ticks) {
    a.window = 0;
    return reading;
  }

  // Did the old anchor lead here? Only asked nearby, where steering cannot have added up.
  rate_meter& meter = rate_meter::shared;
  const std::uint64_t since = before - a.ticks;
  if (had_anchor && since < 8 * a.window) {
    const auto elapsed = static_cast<std::int64_t>(since * a.rate >> rate_shift);
    const std::int64_t off = a.time + elapsed - (t + bias);
    if ((off < 0 ? -off : off) > max_bracket + elapsed / 100) {
      meter.distrust();
      a.window = 0;
      return reading;
    }
  }

  meter.sample(before, t);
  const std::uint64_t rate = meter.rate.load(std::memory_order_relaxed);
  if (rate == 0 || static_cast<std::int64_t>(bracket * rate >> rate_shift) > max_bracket) {
    a.window = 0;
    return reading;
  }
  a = {.ticks = before,
       .window = (static_cast<std::uint64_t>(window) << rate_shift) / rate,
       .rate = rate,
       .time = t + bias,
       .floor = reading};
  return reading;
}

fast_clock::source fast_clock::source_in_use() noexcept {
  choice c = chosen.load(std::memory_order_relaxed);
  if (c == choice::open) {
    c = ask_environment_and_machine();
    chosen.store(c, std::memory_order_relaxed);
  }
  return c == choice::tsc ? source::tsc : source::kernel;
}

bool fast_clock::use(source wanted) noexcept {
  const choice c = wanted == source::tsc ? ask_machine() : choice::kernel;
  chosen.store(c, std::memory_order_relaxed);
  anchor_ = {};
  return (c == choice::tsc) == (wanted == source::tsc);
}

bool fast_clock::anchored() noexcept { return anchor_.window != 0; }

#else

fast_clock::source fast_clock::source_in_use() noexcept { return source::kernel; }
bool fast_clock::use(source wanted) noexcept { return wanted == source::kernel; }
bool fast_clock::anchored() noexcept { return false; }

#endif

}  // namespace verge::detail
