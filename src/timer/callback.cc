// Callbacks of timers: from firing to their end, and how a destructor waits for that.
//
// A firing makes the node ready on the runtime's queues: the node itself is the runnable, nothing
// is allocated. Each firing is a task of its own; a callback that blocks, or takes long, does not
// hold up the next one of the same timer.
//
// Ground rules
//  - `runs` counts the firings that have not begun (low), those that run (middle), and has two
//    flags: `ended`, set by a handle that goes, after which nothing begins any more; `waited_for`,
//    set by who waits for those that run.
//  - The node is on a run queue exactly while there are firings that have not begun. Who takes one
//    up puts the node back at once if there are more.
//  - Every firing holds a reference on the node until it has ended.
//  - The payload is ended by the handle that goes, once nothing runs and nothing can begin; or, if
//    that handle went from inside a callback, or was detached, by the last reference.

#include <timer/callback.h>

#include <array>
#include <mutex>

#include <timer/clockwork.h>
#include <verge/detail/lock.h>
#include <verge/detail/timer_functions.h>

namespace verge::detail {

namespace {

constexpr std::uint32_t one_waiting = 1;
constexpr std::uint32_t waiting_mask = 0x7fff;
constexpr std::uint32_t one_running = 0x8000;
constexpr std::uint32_t running_mask = 0x7fff * one_running;
constexpr std::uint32_t ended = 1U << 30;
constexpr std::uint32_t waited_for = 1U << 31;

constexpr std::uint32_t waiting(std::uint32_t runs) noexcept { return runs & waiting_mask; }
constexpr std::uint32_t running(std::uint32_t runs) noexcept {
  return (runs & running_mask) / one_running;
}

/// The callbacks that the calling thread is inside of, innermost first.
struct callback_frame {
  const timer_node* node;
  callback_frame* outer;
};
thread_local callback_frame* innermost = nullptr;

std::uint32_t frames_of(const timer_node& t) noexcept {
  std::uint32_t n = 0;
  for (const callback_frame* f = innermost; f != nullptr; f = f->outer) n += f->node == &t;
  return n;
}

/// Threads that wait until a node's callbacks have ended. There is no room for them in the node,
/// and few nodes are ever waited for.
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

void wake_those_who_wait(const timer_node& t) noexcept {
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
    if (woken->waiter.claim(1)) woken->waiter.wake();  // gone after this
    woken = next;
  }
}

}  // namespace

void fire_callback(timer_node& t, std::int64_t now) noexcept {
  t.refs.fetch_add(1, std::memory_order_relaxed);
  take_callback(t, now);
}

/// The firing has a reference before it is counted: from then on it may run, and end.
void take_callback(timer_node& t, std::int64_t /*now*/) noexcept {
  std::uint32_t runs = t.runs.load(std::memory_order_relaxed);
  do {
    // So many firings that none has got round to are counted as one.
    if ((runs & ended) != 0 || waiting(runs) == waiting_mask) return clockwork::of(t).release(t);
  } while (!t.runs.compare_exchange_weak(runs, runs + one_waiting, std::memory_order_acq_rel,
                                         std::memory_order_relaxed));
  if (waiting(runs) == 0) clockwork::of(t).home().ready(t);
}

void run_callback(runnable& r) noexcept {
  auto& t = static_cast<timer_node&>(r);
  clockwork& of = clockwork::of(t);
  std::uint32_t runs = t.runs.fetch_add(one_running - one_waiting, std::memory_order_acq_rel);
  if (waiting(runs) > 1) of.home().ready(t);
  if ((runs & ended) == 0) {
    callback_frame frame{.node = &t, .outer = innermost};
    innermost = &frame;
    try {
      t.does.load(std::memory_order_acquire)->invoke(t);
    } catch (...) {
      of.home().unhandled(std::current_exception());
    }
    innermost = frame.outer;
  }
  runs = t.runs.fetch_sub(one_running, std::memory_order_acq_rel);
  if ((runs & waited_for) != 0) wake_those_who_wait(t);
  of.release(t);
}

void discard_callback(timer_node& t) noexcept {
  // Others may be running still, and be waited for: a callback that ends its own runtime.
  std::uint32_t runs = t.runs.load(std::memory_order_relaxed);
  while (!t.runs.compare_exchange_weak(runs, (runs & ~waiting_mask) | ended,
                                       std::memory_order_acq_rel, std::memory_order_relaxed)) {
  }
  clockwork& of = clockwork::of(t);
  for (std::uint32_t i = 0; i < waiting(runs); ++i) of.release(t);
}

bool end_callbacks(timer_node& t) noexcept {
  std::uint32_t runs = t.runs.fetch_or(ended, std::memory_order_acq_rel);
  const std::uint32_t own = frames_of(t);
  while (running(runs) > own) {
    waiting_thread me{.node = &t, .waiter = {}, .next = nullptr};
    waiting_room& room = room_of(t);
    {
      std::lock_guard held(room.lock);
      runs = t.runs.fetch_or(waited_for, std::memory_order_acq_rel);
      // Who ends after this sees the flag, and comes to the room once we have left the lock.
      if (running(runs) <= own) break;
      me.next = room.first;
      room.first = &me;
    }
    me.waiter.wait("the end of a timer's callback");
    runs = t.runs.load(std::memory_order_acquire);
  }
  return own == 0;
}

}  // namespace verge::detail
