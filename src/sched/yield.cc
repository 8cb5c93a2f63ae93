// SPDX-License-Identifier: Apache-2.0

// verge::yield() on a plain thread.

#include <thread>

#include <verge/detail/yield.h>

namespace verge::detail {

namespace {

// Stands in the queue for a thread.
struct turn : runnable {
  thread_waiter waiter;

  turn() noexcept : runnable{&come} {}
  static void come(runnable& r) noexcept { static_cast<turn&>(r).waiter.wake(); }
};

}  // namespace

void yield_operation::wait() const {
  if (const job* j = current_job(); j != nullptr && j->cancellation.fired()) throw_cancelled();
  scheduler* const s = current_scheduler();
  if (s == nullptr) return std::this_thread::yield();
  turn t;
  s->ready_last(t);
  t.waiter.wait("yield");
}

}  // namespace verge::detail
