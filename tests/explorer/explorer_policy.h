// SPDX-License-Identifier: Apache-2.0
// explorer_policy: the state machine's policy while it is explored.
//
// Every atomic operation and every locking is a point at which the explorer may switch threads,
// with one exception: num_timers, the only 32-bit unsigned one, is written under the lock and read
// by no operation, so it does not matter when it is written. Outside schedules, while a scenario is
// set up and after it, there are no switches.
//
// The operations are observed: `watcher` is told of every access to an atomic and of every change
// of a timer's state, references, wake-ups and bad timers.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>

#include <engine/ten_states/mutation.h>
#include <engine/ten_states/state_machine.h>
#include <explorer/explorer.h>

namespace verge::test {

using detail::mutant;
using detail::timer_state;

/// Receives events; all addresses are those of atomics or timers. A world overrides what it needs.
class watcher {
 public:
  virtual ~watcher() = default;
  virtual void touched(const void* /*atomic*/) {}
  virtual void locked(const void* /*lock*/) {}
  virtual void unlocked(const void* /*lock*/) {}
  virtual void used(const void* /*what is not atomic*/) {}
  virtual void state_written(const void* /*atomic*/, timer_state /*from*/, timer_state /*to*/) {}
  virtual void acquired(void* /*timer*/) {}
  virtual void released(void* /*timer*/) {}
  virtual void woken(void* /*timers*/, std::int64_t /*when*/) {}
  virtual bool sleeps_past(std::int64_t /*when*/) { return false; }
  [[noreturn]] virtual void bad(const char* /*operation*/, const void* /*timer*/,
                                timer_state /*s*/) {
    std::abort();
  }
  virtual std::string name_of(const void* atomic) = 0;

  inline static watcher* now = nullptr;
  /// Whether it tells the explorer what each step touches.
  bool tells = false;
};

inline std::string to_text(timer_state s) { return detail::name_of(s); }
inline std::string to_text(const void* p) {
  return p == nullptr ? "none" : watcher::now->name_of(p);
}
template <class T>
requires std::is_arithmetic_v<T> std::string to_text(T v) { return std::to_string(v); }

template <class T>
class explored_atomic {
 public:
  explored_atomic(T v = T{}) : value_(v) {}

  T load(std::memory_order = std::memory_order_seq_cst) const {
    point();
    if (auto* e = explorer::active()) e->looked_at(stamp_);
    if (telling()) tell("reads " + to_text(value_));
    return value_;
  }
  void store(T v, std::memory_order = std::memory_order_seq_cst) {
    point();
    if (telling()) tell("writes " + to_text(v));
    write(v);
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order, std::memory_order) {
    point();
    if (value_ != expected) {
      if (telling()) tell("finds " + to_text(value_) + " and not " + to_text(expected));
      expected = value_;
      return false;
    }
    if (telling()) tell("changes " + to_text(expected) + " to " + to_text(desired));
    write(desired);
    return true;
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order a, std::memory_order b) {
    return compare_exchange_strong(expected, desired, a, b);
  }
  T fetch_add(T n, std::memory_order) {
    point();
    const T before = value_;
    if (telling()) tell("goes from " + to_text(before) + " to " + to_text(before + n));
    write(static_cast<T>(before + n));
    return before;
  }
  T fetch_sub(T n, std::memory_order order) { return fetch_add(static_cast<T>(-n), order); }

  /// For checks: no step.
  [[nodiscard]] T peek() const { return value_; }
  /// For a fresh start: no step.
  void reset(T v) { value_ = v; }

 private:
  void point() const {
    if constexpr (!std::is_same_v<T, std::uint32_t>) {
      if (auto* e = explorer::active()) {
        e->point({.is_told = watcher::now->tells});
        watcher::now->touched(this);
      }
    }
  }
  void write(T v) {
    const T before = value_;
    value_ = v;
    ++stamp_;
    if constexpr (std::is_same_v<T, timer_state>) {
      if (explorer::active() != nullptr) watcher::now->state_written(this, before, v);
    }
  }
  static bool telling() { return explorer::active() != nullptr && explorer::active()->telling(); }
  void tell(const std::string& what) const {
    explorer::active()->tell(watcher::now->name_of(this) + " " + what);
  }

  T value_;
  std::uint32_t stamp_ = 0;
};

class explored_lock {
 public:
  void lock() {
    if (auto* e = explorer::active()) {
      e->lock_point(taken_, {.is_told = watcher::now->tells});
      watcher::now->locked(this);
      if (e->telling()) e->tell(watcher::now->name_of(this) + " is locked");
    }
    taken_ = true;
  }
  /// Not a separate step: it changes nothing for threads that do not want the lock, and those that
  /// do can continue from the next step.
  void unlock() {
    taken_ = false;
    if (auto* e = explorer::active()) {
      watcher::now->unlocked(this);
      if (e->telling()) e->tell(watcher::now->name_of(this) + " is unlocked");
    }
  }
  [[nodiscard]] bool taken() const { return taken_; }
  void reset() { taken_ = false; }

 private:
  bool taken_ = false;
};

/// heap_memory, until it is told to fail.
struct failing_memory : detail::heap_memory {
  inline static bool fails = false;
  static void* allocate(std::size_t bytes) {
    if (fails) throw std::bad_alloc();
    return detail::heap_memory::allocate(bytes);
  }
  static void* resize(void* block, std::size_t from, std::size_t to, std::size_t used) {
    if (fails) throw std::bad_alloc();
    return detail::heap_memory::resize(block, from, to, used);
  }
};

template <mutant Mutation = mutant::none>
struct explorer_policy {
  static constexpr mutant mutation = Mutation;
  using timer = detail::basic_timer<explorer_policy>;
  using timers = detail::basic_timers<explorer_policy>;

  template <class T>
  using atomic = explored_atomic<T>;
  using lock = explored_lock;
  using memory = failing_memory;

  static void yield() {
    if (auto* e = explorer::active()) e->yield();
  }
  static void wake_net_poller(timers& ts, std::int64_t when) { watcher::now->woken(&ts, when); }
  static void acquire(timer& t) { watcher::now->acquired(&t); }
  static void release(timer& t) { watcher::now->released(&t); }
  [[noreturn]] static void bad_timer(const char* operation, const timer& t, timer_state s) {
    watcher::now->bad(operation, &t, s);
    std::abort();  // not reached; the compiler ignores noreturn on a virtual function
  }
};

}  // namespace verge::test
