// SPDX-License-Identifier: Apache-2.0

// The slow half of short_lock: spin, then sleep in the kernel.

#include <verge/detail/lock.h>

#include <base/futex.h>

namespace verge::detail {

namespace {

// Long enough for a running holder to finish, short compared with a system call and a wake-up.
constexpr int spins = 100;

}  // namespace

void short_lock::lock_slowly() noexcept {
  for (int i = 0; i < spins; ++i) {
    pause();
    if (word_.load(std::memory_order_relaxed) == is_free && try_lock()) return;
  }
  // From here on the lock is acquired as wanted, since other threads may be sleeping too. The last
  // of them makes one unneeded system call, and no sleeper is missed.
  while (word_.exchange(is_wanted, std::memory_order_acquire) != is_free)
    futex_wait(word_, is_wanted);
}

void short_lock::wake_one() noexcept { futex_wake(word_, 1); }

}  // namespace verge::detail
