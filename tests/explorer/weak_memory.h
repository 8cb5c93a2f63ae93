// SPDX-License-Identifier: Apache-2.0
// Atomics and plain memory as C++ orders them, for the explorer: a load may return any value that
// happens-before allows, and unordered accesses to plain memory, one of them a write, are a
// failure.
//
// An operational model. A location keeps all its stores, in their modification order. A thread has
// a view: for each location the oldest store that it may still read, and for each thread how much
// of it happens before. A store carries a view as well, its message.
//
//   load      reads any store from the thread's view on, which the explorer chooses, the last one
//             first. Acquire joins the message into the thread's view; relaxed keeps it for a
//             fence.
//   store     is the last in modification order. Its message is the thread's view for release, and
//             for relaxed the view at the thread's last release fence.
//   change    (read-modify-write) reads the last store; its message includes that of the store it
//             read: the release sequence. A compare-and-swap that fails is a load: of the last
//             store, or of an older one that differs from what was expected.
//   fence     acquire joins what relaxed loads have kept; release keeps the view for relaxed
//             stores; seq_cst does both, and joins the stores of a view that all seq_cst operations
//             share, both ways. It does not make anything happen before: only a load that reads
//             can.
//   seq_cst   a store enters the shared view; a load reads no store that is older there.
//
// What is lost: a store never comes before one that was already made (so 2+2W without its weak
// outcome), and a load returns no value that is yet to be stored (load buffering): C++ allows both,
// compilers and processors that verge runs on may do the first and hardly do the second. A weak
// compare-and-swap does not fail for nothing. How many stale stores one run may read can be
// bounded.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <explorer/explorer.h>

namespace verge::test {

constexpr bool acquires(std::memory_order o) {
  return o == std::memory_order_acquire || o == std::memory_order_acq_rel ||
         o == std::memory_order_seq_cst || o == std::memory_order_consume;
}
constexpr bool releases(std::memory_order o) {
  return o == std::memory_order_release || o == std::memory_order_acq_rel ||
         o == std::memory_order_seq_cst;
}

class weak_memory {
 public:
  static constexpr std::size_t most_locations = 64;
  static constexpr std::size_t threads = explorer::most_threads;

  struct view {
    std::array<std::uint16_t, most_locations> oldest{};
    std::array<std::uint32_t, threads> time{};  ///< steps of each thread that happen before
    void join(const view& other) {
      join_stores(other);
      for (std::size_t i = 0; i < threads; ++i) time[i] = std::max(time[i], other.time[i]);
    }
    void join_stores(const view& other) {
      for (std::size_t i = 0; i < most_locations; ++i) {
        oldest[i] = std::max(oldest[i], other.oldest[i]);
      }
    }
  };
  struct thread_views {
    view current;
    view kept_by_loads;
    view at_release_fence;
  };

  /// Before every schedule. Locations are numbered in the order in which they are made.
  void begin() {
    threads_ = {};
    shared_ = {};
    locations_ = 0;
    stale_ = 0;
    now = this;
  }
  std::size_t new_location() {
    if (locations_ == most_locations) {
      explorer::active()->fail("too large", "more than 64 atomics in one scenario");
    }
    return locations_++;
  }

  static std::size_t me() {
    auto* e = explorer::active();
    return e == nullptr ? 0 : e->current();
  }
  thread_views& mine() { return threads_[me()]; }
  thread_views& of(std::size_t thread) { return threads_[thread]; }
  /// Each step of a thread has a time.
  void tick() { ++mine().current.time[me()]; }

  void fence(std::memory_order order) {
    // Others than full ones concern no other thread.
    if (order == std::memory_order_seq_cst) explorer::active()->point();
    tick();
    fence_here(order);
  }
  /// A full fence in every thread, as the kernel makes it on behalf of one, which has one before
  /// and one after those of the others.
  void fence_all() {
    explorer::active()->point();
    tick();
    fence_all_here();
  }
  // The same for a caller that has announced the step.
  void fence_here(std::memory_order order) { fence_of(mine(), order); }
  void fence_all_here() {
    fence_of(mine(), std::memory_order_seq_cst);
    for (thread_views& t : threads_) {
      if (&t != &mine()) fence_of(t, std::memory_order_seq_cst);
    }
    fence_of(mine(), std::memory_order_seq_cst);
  }

  view& shared() { return shared_; }
  /// Which of the stores a load reads, counted from the newest of n.
  std::size_t choose_stale(std::size_t n) {
    if (n <= 1 || stale_ >= most_stale) return 0;
    const std::size_t back = explorer::active()->choose_one_of(n);
    if (back != 0) ++stale_;
    return back;
  }

  /// How many loads of one schedule may read a store that is not the newest.
  int most_stale = std::numeric_limits<int>::max();
  inline static weak_memory* now = nullptr;

 private:
  void fence_of(thread_views& t, std::memory_order order) {
    if (acquires(order)) t.current.join(t.kept_by_loads);
    if (order == std::memory_order_seq_cst) {
      t.current.join_stores(shared_);
      shared_.join_stores(t.current);
    }
    if (releases(order)) t.at_release_fence = t.current;
  }

  std::array<thread_views, threads> threads_;
  view shared_;  ///< its times are not used
  std::size_t locations_ = 0;
  int stale_ = 0;
};

/// One atomic of up to 64 bits. The functions make no step of their own: the caller has announced
/// it.
class weak_location {
 public:
  void reset(std::uint64_t v) {
    stores_.clear();
    stores_.push_back({v, {}});
    id_ = weak_memory::now->new_location();
    ++stamp;
  }

  std::uint64_t load(std::memory_order order) {
    weak_memory& m = *weak_memory::now;
    const std::uint32_t last = newest();
    const auto back = m.choose_stale(last - oldest(order) + 1);
    return read(m.mine(), last - static_cast<std::uint32_t>(back), order);
  }
  void store(std::uint64_t v, std::memory_order order) {
    append(weak_memory::now->mine(), v, order, nullptr);
  }
  /// f(what was there): what is there from now on.
  template <class F>
  std::uint64_t change(F&& f, std::memory_order order) {
    auto& t = weak_memory::now->mine();
    const std::uint32_t last = newest();
    const weak_memory::view message = stores_[last].message;
    const std::uint64_t before = read(t, last, order);
    append(t, f(before), order, &message);
    return before;
  }
  bool compare_exchange(std::uint64_t& expected, std::uint64_t desired, std::memory_order success,
                        std::memory_order failure) {
    weak_memory& m = *weak_memory::now;
    // Older stores that differ from what is expected, the newest first.
    std::array<std::uint32_t, 8> older{};
    std::size_t n = 1;
    older[0] = newest();
    for (std::uint32_t i = newest(); i-- > oldest(failure) && n < older.size();) {
      if (stores_[i].value != expected) older[n++] = i;
    }
    const std::uint32_t which = older[m.choose_stale(n)];
    if (stores_[which].value != expected) {
      expected = read(m.mine(), which, failure);
      return false;
    }
    change([&](std::uint64_t) { return desired; }, success);
    return true;
  }

  [[nodiscard]] std::uint32_t newest() const {
    return static_cast<std::uint32_t>(stores_.size() - 1);
  }
  /// The last value in modification order. For checks, and for the kernel.
  [[nodiscard]] std::uint64_t peek() const { return stores_.back().value; }
  /// Which store the calling thread has read or written last, or must read at least.
  [[nodiscard]] std::uint32_t seen() const { return weak_memory::now->mine().current.oldest[id_]; }
  /// Stores become visible in the end: the next load reads at least this one.
  void see(std::uint32_t which) {
    auto& oldest = weak_memory::now->mine().current.oldest[id_];
    oldest = std::max(oldest, static_cast<std::uint16_t>(std::min(which, newest())));
  }

  /// Counts the stores: for a thread that waits for the next one.
  std::uint32_t stamp = 0;

 private:
  struct stored {
    std::uint64_t value;
    weak_memory::view message;
  };

  [[nodiscard]] std::uint32_t oldest(std::memory_order order) const {
    const std::uint32_t mine = seen();
    if (order != std::memory_order_seq_cst) return mine;
    return std::max<std::uint32_t>(mine, weak_memory::now->shared().oldest[id_]);
  }
  std::uint64_t read(weak_memory::thread_views& t, std::uint32_t which, std::memory_order order) {
    see(which);
    const stored& s = stores_[which];
    if (acquires(order)) {
      t.current.join(s.message);
    } else {
      t.kept_by_loads.join(s.message);
    }
    return s.value;
  }
  void append(weak_memory::thread_views& t, std::uint64_t v, std::memory_order order,
              const weak_memory::view* sequence) {
    const auto which = static_cast<std::uint16_t>(stores_.size());
    t.current.oldest[id_] = which;
    weak_memory::view message = releases(order) ? t.current : t.at_release_fence;
    message.oldest[id_] = which;
    if (sequence != nullptr) message.join(*sequence);
    stores_.push_back({v, message});
    if (order == std::memory_order_seq_cst) weak_memory::now->shared().oldest[id_] = which;
    ++stamp;
  }

  std::vector<stored> stores_;
  std::size_t id_ = 0;
};

/// A location as std::atomic<T>, for code that takes its atomics from a policy.
template <class T>
class weak_atomic {
 public:
  /// In prepare(), after the memory's begin(), and before any other use: no step.
  void reset(T v) { place_.reset(wide(v)); }

  T load(std::memory_order order = std::memory_order_seq_cst) const {
    step(false);
    return narrow(place_.load(order));
  }
  void store(T v, std::memory_order order = std::memory_order_seq_cst) {
    step(true);
    place_.store(wide(v), order);
  }
  T exchange(T v, std::memory_order order = std::memory_order_seq_cst) {
    return change([&](T) { return v; }, order);
  }
  T fetch_add(T n, std::memory_order order = std::memory_order_seq_cst) {
    return change([&](T was) { return static_cast<T>(was + n); }, order);
  }
  T fetch_sub(T n, std::memory_order order = std::memory_order_seq_cst) {
    return change([&](T was) { return static_cast<T>(was - n); }, order);
  }
  T fetch_or(T n, std::memory_order order = std::memory_order_seq_cst) {
    return change([&](T was) { return static_cast<T>(was | n); }, order);
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order success,
                               std::memory_order failure) {
    step(true);
    std::uint64_t seen = wide(expected);
    const bool done = place_.compare_exchange(seen, wide(desired), success, failure);
    expected = narrow(seen);
    return done;
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success,
                             std::memory_order failure) {
    return compare_exchange_strong(expected, desired, success, failure);
  }
  /// The last value in modification order. For checks: no step.
  [[nodiscard]] T peek() const { return narrow(place_.peek()); }

 private:
  static_assert(std::is_integral_v<T>);
  static std::uint64_t wide(T v) { return static_cast<std::uint64_t>(v); }
  static T narrow(std::uint64_t v) { return static_cast<T>(v); }

  void step(bool writes) const {
    explorer::active()->point({.place = &place_, .writes = writes});
    weak_memory::now->tick();
  }
  template <class F>
  T change(F&& f, std::memory_order order) {
    step(true);
    return narrow(place_.change([&](std::uint64_t was) { return wide(f(narrow(was))); }, order));
  }

  mutable weak_location place_;
};

/// Plain memory. Accesses are no steps of their own: what matters is whether they are ordered.
template <class T>
class plain {
 public:
  explicit plain(const char* name) : name_(name) {}
  void reset(T v) {
    value_ = v;
    written_ = {};
    read_ = {};
  }
  T read() {
    order_after(written_, "read", "written");
    read_[weak_memory::me()] = now();
    return value_;
  }
  void write(T v) {
    order_after(written_, "written", "written");
    order_after(read_, "written", "read");
    written_[weak_memory::me()] = now();
    value_ = v;
  }
  [[nodiscard]] T peek() const { return value_; }

 private:
  using times = std::array<std::uint32_t, weak_memory::threads>;

  static std::uint32_t now() {
    weak_memory::now->tick();
    return weak_memory::now->mine().current.time[weak_memory::me()];
  }
  void order_after(const times& others, const char* is, const char* was) {
    const auto& mine = weak_memory::now->mine().current.time;
    for (std::size_t i = 0; i < others.size(); ++i) {
      if (i == weak_memory::me() || others[i] <= mine[i]) continue;
      explorer::active()->fail("data race", std::string(name_) + " is " + is + " by thread " +
                                                std::to_string(weak_memory::me()) + ", was " + was +
                                                " by thread " + std::to_string(i) +
                                                ", and neither happens before the other");
    }
  }

  const char* name_;
  T value_{};
  times written_{};
  times read_{};
};

}  // namespace verge::test
