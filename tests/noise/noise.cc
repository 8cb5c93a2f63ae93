// SPDX-License-Identifier: Apache-2.0

// Noise: at random, a thread yields or sleeps before an atomic operation or a fence, wherever that
// is in the library or the test. Locks and wake-ups are such operations, too. So threads meet where
// they seldom do. Linked into everything that is configured with VERGE_NOISE.
//
// VERGE_NOISE=N in the environment: one operation in N yields, one in 32 N sleeps; 0 for none.
// VERGE_MONITOR=off: runtimes have no monitor, which would hide a wake-up that is missing.

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include <sched/monitor.h>

namespace {

std::uint64_t one_in = [] {
  const char* set = std::getenv("VERGE_NOISE");
  return set == nullptr ? 512 : std::strtoull(set, nullptr, 10);
}();

[[maybe_unused]] const bool monitor_is_off = [] {
  const char* set = std::getenv("VERGE_MONITOR");
  if (set == nullptr || set != std::string_view("off")) return false;
  verge::detail::monitor::switch_off();
  return true;
}();

void make_noise() {
  static thread_local constinit std::uint64_t state = 0;
  if (one_in == 0) return;
  if (state == 0) state = reinterpret_cast<std::uintptr_t>(&state) | 1;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  const std::uint64_t n = state >> 20;
  if (n % one_in != 0) return;
  if (n / one_in % 32 != 0) {
    ::sched_yield();
    return;
  }
  const timespec nap{.tv_sec = 0, .tv_nsec = static_cast<long>(state % 300'000)};
  ::nanosleep(&nap, nullptr);
}

void on_read(const void* /*at*/, std::size_t /*bytes*/, const void* /*by*/) {}
void on_write(const void* /*at*/, std::size_t /*bytes*/, const void* /*by*/) {}
void on_change(const void* /*at*/, std::size_t /*bytes*/, const void* /*by*/) { make_noise(); }

}  // namespace

#include "../../bench/coherence/access_hooks.h"
