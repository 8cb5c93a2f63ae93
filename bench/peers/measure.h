// SPDX-License-Identifier: Apache-2.0
// The tools of all workloads: clocks, memory, random deadlines, and counting of callbacks.
#pragma once

#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include <verge/detail/heap_memory.h>

namespace verge::bench {

inline constexpr std::int64_t microsecond = 1'000;
inline constexpr std::int64_t millisecond = 1'000'000;
inline constexpr std::int64_t second = 1'000'000'000;

inline std::int64_t read_clock(clockid_t which) noexcept {
  timespec t{};
  ::clock_gettime(which, &t);
  return t.tv_sec * second + t.tv_nsec;
}
inline std::int64_t now() noexcept { return read_clock(CLOCK_MONOTONIC); }
/// What all threads of this process have used, in the kernel too: work that a system leaves to a
/// helper thread counts as well, and time that other programs took does not.
inline std::int64_t processor_time() noexcept { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }

inline std::size_t resident_bytes() {
  std::FILE* f = std::fopen("/proc/self/statm", "r");
  unsigned long total = 0;
  unsigned long resident = 0;
  if (f == nullptr || std::fscanf(f, "%lu %lu", &total, &resident) != 2) resident = 0;
  if (f != nullptr) std::fclose(f);
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Splitmix64.
class random_numbers {
 public:
  explicit random_numbers(std::uint64_t seed) : state_(seed) {}
  std::uint64_t operator()() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// n up to 2^32.
  std::uint64_t below(std::uint64_t n) { return (((*this)() >> 32) * n) >> 32; }
  /// A time from 0 to `length`, in steps of 16 ns, without a division.
  std::int64_t within(std::int64_t length) {
    return static_cast<std::int64_t>(below(static_cast<std::uint64_t>(length) >> 4) << 4);
  }
  /// The deadline of most workloads: uniform in 1 to 61 s.
  std::int64_t delay() { return second + within(60 * second); }

 private:
  std::uint64_t state_;
};

/// Memory on huge pages, for the benchmark's own data, which is not measured.
template <class T>
struct huge_allocator {
  using value_type = T;
  huge_allocator() = default;
  template <class U>
  huge_allocator(const huge_allocator<U>& /*other*/) noexcept {}
  static std::size_t bytes(std::size_t n) { return detail::heap_memory::round_up(n * sizeof(T)); }
  T* allocate(std::size_t n) { return static_cast<T*>(detail::heap_memory::allocate(bytes(n))); }
  void deallocate(T* p, std::size_t n) { detail::heap_memory::release(p, bytes(n)); }
  bool operator==(const huge_allocator& /*other*/) const { return true; }
};

/// Counts callbacks per thread, so that counting causes no contention.
class fired_counter {
 public:
  void add() noexcept {
    thread_local std::atomic<std::uint64_t>* mine = nullptr;
    if (mine == nullptr) mine = &slots_[used_.fetch_add(1) % slots_.size()].count;
    mine->store(mine->load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  std::uint64_t total() const noexcept {
    std::uint64_t sum = 0;
    for (const slot& s : slots_) sum += s.count.load(std::memory_order_acquire);
    return sum;
  }

 private:
  struct alignas(64) slot {
    std::atomic<std::uint64_t> count{0};
  };
  std::array<slot, 1024> slots_{};  // more threads than any system here starts
  std::atomic<std::size_t> used_{0};
};
inline fired_counter fired;

/// A timer whose lateness is measured: set before it starts, written by its callback.
struct appointment {
  std::int64_t due = 0;
  std::int64_t late = 0;
};

/// The callback of every timer: counts, and records the appointment if there is one.
inline void call(appointment* a) noexcept {
  if (a != nullptr) a->late = now() - a->due;
  fired.add();
}

/// Stops the whole process, with all of its threads, for so long: what becomes due meanwhile is
/// overdue, all of it, when it continues. A child does it, as a stopped process cannot wake
/// itself.
inline void stand_still(std::int64_t ns) {
  if (ns <= 0) return;  // starting them took so long that all are overdue already
  const std::string me = std::to_string(::getpid());
  const std::string seconds = std::to_string(static_cast<double>(ns) * 1e-9);
  const std::string command = "kill -STOP " + me + "; sleep " + seconds + "; kill -CONT " + me;
  if (std::system(command.c_str()) != 0) {
    throw std::runtime_error("cannot stop and continue this process with: " + command);
  }
}

}  // namespace verge::bench
