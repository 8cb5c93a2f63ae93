// SPDX-License-Identifier: Apache-2.0

// Callbacks of timers: from the firing to their end, and how a destructor waits for that.
//
// A firing makes the node ready on the runtime's queues: the node itself is the runnable, nothing
// is allocated. A callback that blocks, or takes long, holds up no other timer; the next call of
// the same timer waits for it.
//
// Ground rules
//  - `runs` counts the calls: call_count.h.
//  - Every firing holds a reference on the node until its call has ended.
//  - The payload is destroyed by the handle's destructor, once no call runs and none can begin; or,
//    if that destructor ran inside the callback, or the handle was detached, with the last
//    reference.

#include <timer/callback.h>

#include <array>
#include <mutex>

#include <base/log.h>
#include <engine/clockwork.h>
#include <timer/call_count.h>
#include <verge/detail/lock.h>
#include <verge/detail/timer_functions.h>

namespace verge::detail {

namespace {

using calls = call_count<std::atomic<std::uint32_t>>;

/// The callbacks that run on the calling thread, innermost first.
struct callback_frame {
  const timer_node* node;
  callback_frame* outer;
};
/// initial-exec: a signal handler reads it.
[[gnu::tls_model("initial-exec")]] thread_local constinit callback_frame* innermost = nullptr;

bool is_inside(const timer_node& t) noexcept {
  const callback_frame* f = innermost;
  while (f != nullptr && f->node != &t) f = f->outer;
  return f != nullptr;
}

/// Threads that wait until a node's callbacks have ended. There is no room for them in the node,
/// and threads wait for few nodes.
struct waiting_thread {
  const timer_node* node;
  thread_waiter waiter;
  waiting_thread* next;
};
struct alignas(64) waiting_room {
  short_lock lock;
  waiting_thread* first{nullptr};
};
std::array<waiting_room, 64> waiting_rooms;

waiting_room& room_of(const timer_node& t) noexcept {
  return waiting_rooms[(reinterpret_cast<std::uintptr_t>(&t) >> 6) % waiting_rooms.size()];
}

void wake_waiting(const timer_node& t) noexcept {
  waiting_room& room = room_of(t);
  waiting_thread* woken = nullptr;
  {
    std::lock_guard held(room.lock);
    for (waiting_thread** link = &room.first; *link != nullptr;) {
      waiting_thread* w = *link;
      if (w->node != &t) {
        link = &w->next;
        continue;
      }
      *link = w->next;
      w->next = woken;
      woken = w;
    }
  }
  while (woken != nullptr) {
    waiting_thread* next = woken->next;
    if (woken->waiter.claim(waiter::by_event)) woken->waiter.wake();  // woken is destroyed
    woken = next;
  }
}

#ifndef NDEBUG
/// Reports that the end of a handle takes long: it may never come. It uses a timer of the same
/// runtime, because another thread has to notice. Not in simulated time, which that would advance.
class slow_end_report {
 public:
  explicit slow_end_report(const timer_node& t) noexcept {
    clockwork& of = clockwork::of(t);
    if (of.closing() || of.home().net() == nullptr) return;
    try {
      node_ = start_func_timer(of, 1'000'000'000, &print, 0);
    } catch (...) {  // no memory for a report
    }
  }
  ~slow_end_report() {
    if (node_ != nullptr) destroy_timer(*node_);
  }
  slow_end_report(const slow_end_report&) = delete;
  slow_end_report& operator=(const slow_end_report&) = delete;

 private:
  static void print() {
    log(log_level::error, "%s",
        "the end of a handle has waited for a second for a callback that still runs. If the "
        "callback waits for a lock that the thread holds which ends the handle, both wait forever: "
        "move the handle out, and destroy it after the unlock. See \"Deadlock\" in "
        "verge/time.h");
  }

  timer_node* node_{nullptr};
};
#else
struct slow_end_report {
  explicit slow_end_report(const timer_node& /*t*/) noexcept {}
};
#endif

}  // namespace

const timer_node* running_callback() noexcept {
  return innermost != nullptr ? innermost->node : nullptr;
}

void fire_callback(timer_node& t, std::int64_t now) noexcept {
  t.refs.fetch_add(1, std::memory_order_relaxed);
  take_callback(t, now);
}

/// The firing has a reference before it is counted: after that it may run and end at any time.
void take_callback(timer_node& t, std::int64_t /*now*/) noexcept {
  switch (calls(t.runs).add()) {
    case calls::added::queue:
      return clockwork::of(t).home().ready(t);
    case calls::added::counted:
      return;
    case calls::added::refused:
      return clockwork::of(t).release(t);
  }
}

void run_callback(runnable& r) noexcept {
  auto& t = static_cast<timer_node&>(r);
  clockwork& of = clockwork::of(t);
  if (calls(t.runs).begin()) {
    callback_frame frame{.node = &t, .outer = innermost};
    innermost = &frame;
    try {
      t.does.load(std::memory_order_acquire)->invoke(t);
    } catch (...) {
      of.home().unhandled(std::current_exception());
    }
    innermost = frame.outer;
  }
  const auto ended = calls(t.runs).end();
  if (ended.wake) wake_waiting(t);
  if (ended.queue) [[unlikely]] {
    // A callback has ended its own runtime: no worker would run it.
    if (of.closing()) {
      discard_callback(t);
    } else {
      of.home().ready(t);
    }
  }
  of.release(t);  // NOLINT(clang-analyzer-unix.Malloc): it knows nothing of reference counts
}

void discard_callback(timer_node& t) noexcept {
  clockwork& of = clockwork::of(t);
  // Every firing that waits has a reference.
  for (std::uint32_t n = calls(t.runs).discard(); n != 0; --n) {
    of.release(t);  // NOLINT(clang-analyzer-unix.Malloc)
  }
}

bool end_callbacks(timer_node& t) noexcept {
  bool runs = calls(t.runs).close();
  if (is_inside(t)) return false;
  while (runs) {
    waiting_thread me{.node = &t, .waiter = {}, .next = nullptr};
    waiting_room& room = room_of(t);
    {
      std::lock_guard held(room.lock);
      // A call that ends after this sees the flag, and its thread takes the lock of the room.
      if (!calls(t.runs).ask()) break;
      me.next = room.first;
      room.first = &me;
    }
    const slow_end_report report(t);
    me.waiter.wait("the end of a timer's callback");
    runs = calls(t.runs).runs();
  }
  return true;
}

}  // namespace verge::detail
