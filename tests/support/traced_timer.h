// SPDX-License-Identifier: Apache-2.0
// One timer of the state machine, single-threaded, in any state that a test sets. The state changes
// of an operation are recorded step by step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <engine/ten_states/bad_timer.h>
#include <engine/ten_states/state_machine.h>

namespace verge::detail {

/// Records every change of a timer's state. `on_yield` is called when an operation yields,
/// `before_swap` once, before the next compare-and-swap.
struct traced {
  template <class T>
  class atomic {
   public:
    atomic(T v = T{}) : value_(v) {}
    T load(std::memory_order) const { return value_; }
    void store(T v, std::memory_order) {
      value_ = v;
      write_down();
    }
    bool compare_exchange_strong(T& expected, T v, std::memory_order, std::memory_order) {
      if (before_swap) std::exchange(before_swap, nullptr)();
      if (value_ != expected) {
        expected = value_;
        return false;
      }
      value_ = v;
      write_down();
      return true;
    }
    bool compare_exchange_weak(T& expected, T v, std::memory_order a, std::memory_order b) {
      return compare_exchange_strong(expected, v, a, b);
    }
    T fetch_add(T n, std::memory_order) { return value_ += n; }
    T fetch_sub(T n, std::memory_order) { return value_ -= n; }
    /// As another thread would.
    void set(T v) { value_ = v; }
    [[nodiscard]] T get() const { return value_; }

   private:
    void write_down() {
      if constexpr (std::is_same_v<T, timer_state>) {
        path += std::string(path.empty() ? "" : " ") + name_of(value_);
      }
    }
    T value_;
  };
  struct no_lock {
    void lock() {}
    void unlock() {}
  };
  using lock = no_lock;
  using timer = basic_timer<traced>;
  using timers = basic_timers<traced>;

  static void yield() {
    ++yields;
    ASSERT_LT(yields, 10);
    on_yield();
  }
  static void wake_net_poller(timers&, std::int64_t when) { wakes.push_back(when); }
  static void acquire(timer&) { ++references; }
  static void release(timer&) { --references; }
  [[noreturn]] static void bad_timer(const char* operation, const timer& t, timer_state s) {
    abort_on_bad_timer(operation, &t, s, t.when);
  }

  inline static std::string path;
  inline static int yields = 0;
  inline static int references = 0;
  inline static std::vector<std::int64_t> wakes;
  inline static std::function<void()> on_yield;
  inline static std::function<void()> before_swap;
};

/// One timer, in a state that the test sets, with key 200 on the first heap if it is on one; in the
/// modified states due at `nextwhen`. It is 100.
class state_machine : public testing::Test {
 protected:
  static constexpr std::int64_t now = 100;
  static constexpr std::int64_t key = 200;

  void put(timer_state s, std::int64_t when = key, std::int64_t nextwhen = 0,
           std::int64_t period = 0) {
    t_.when = when;
    t_.nextwhen = nextwhen;
    t_.period = period;
    t_.f = [](traced::timer&, std::uint64_t seq, std::int64_t) noexcept { fired.push_back(seq); };
    t_.seq = 7;
    t_.state.set(s);
    if (is_on_heap(s)) put_on_heap();
    if (s == timer_state::deleted) heap_.deleted_timers.set(1);
    if (s == timer_state::modified_earlier) heap_.timer_modified_earliest.set(nextwhen);
    start_over();
  }
  void put_on_heap() {
    t_.owner.set(&heap_);
    heap_.heap.push(t_.when, &t_);
    heap_.heap_changed();
  }
  static void start_over() {
    traced::path.clear();
    traced::yields = traced::references = 0;
    traced::wakes.clear();
    fired.clear();
  }
  /// What another thread does when ours yields: it releases the timer.
  void when_yielding(timer_state s) {
    traced::on_yield = [this, s] { t_.state.set(s); };
  }
  /// adjust only scans if it has a reason to.
  void adjust() {
    heap_.timer_modified_earliest.set(now);
    adjust_timers(heap_, now);
  }
  [[nodiscard]] bool on_heap(const traced::timers& ts) const {
    return std::any_of(ts.heap.begin(), ts.heap.end(),
                       [&](const auto& e) { return e.node == &t_ && e.when == t_.when; });
  }

  traced::timers heap_;
  traced::timers other_;
  traced::timer t_;
  inline static std::vector<std::uint64_t> fired;
};

}  // namespace verge::detail
