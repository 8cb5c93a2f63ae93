// The slow half of short_lock: spin, then sleep in the kernel.

#include <verge/detail/lock.h>

#include <base/futex.h>

namespace verge::detail {

namespace {

// Long enough for a holder that is running to be done, short against a system call and a wake-up.
constexpr int spins = 100;

}  // namespace

void short_lock::lock_slowly() noexcept {
  for (int i = 0; i < spins; ++i) {
    pause();
    if (word_.load(std::memory_order_relaxed) == is_free && try_lock()) return;
  }
  // From here on the lock is taken as wanted, as we cannot know whether others sleep, too. The last
  // one to come through makes one system call too many, and nobody is ever forgotten.
  while (word_.exchange(is_wanted, std::memory_order_acquire) != is_free)
    futex_wait(word_, is_wanted);
}

void short_lock::wake_one() noexcept { futex_wake(word_, 1); }

}  // namespace verge::detail
