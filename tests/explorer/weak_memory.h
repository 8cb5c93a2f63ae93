// Atomics and plain memory as C++ orders them, for the explorer: a load may return any value that
// happens-before allows, and unordered accesses to plain memory, one of them a write, are a
// failure.
//
// An operational model. A location keeps all its stores, in their modification order. A thread has
// a view: for each location the oldest store that it may still read, and for each thread how much
// of it happens before. A store carries a view as well, its message.
//
//   load      reads any store from the thread's view on, which the explorer chooses, the last
//   first.
//             Acquire joins the message into the thread's view; relaxed keeps it for a fence.
//   store     is the last in modification order. Its message is the thread's view for release, and
//             for relaxed the view at the thread's last release fence.
//   change    (read-modify-write) reads the last store; its message includes that of the store it
//             read: the release sequence. A compare-and-swap that fails is a load of the last
//             store.
//   fence     acquire joins what relaxed loads have kept; release keeps the view for relaxed
//   stores;
//             seq_cst does both, and joins a view that all such fences share, both ways.
//   seq_cst   a load reads no store before the last one that was seq_cst.
//
// What is lost: a store never comes before one that was already made (so 2+2W without its weak
// outcome), and a load returns no value that is yet to be stored (load buffering): C++ allows both,
// compilers and processors that verge runs on may do the first and hardly do the second. A
// compare-and-swap does not fail for a stale value, nor for nothing. The number of stale stores
// that one run reads is bounded only by the program: it is for small ones.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <explorer/explorer.h>

namespace verge::test {

class weak_memory {
 public:
  static constexpr std::size_t most_locations = 16;
  static constexpr std::size_t threads = explorer::most_threads;

  struct view {
    std::array<std::uint32_t, most_locations> oldest{};
    std::array<std::uint32_t, threads> time{};  ///< steps of each thread that happen before
    void join(const view& other) {
      for (std::size_t i = 0; i < most_locations; ++i) {
        oldest[i] = std::max(oldest[i], other.oldest[i]);
      }
      for (std::size_t i = 0; i < threads; ++i) time[i] = std::max(time[i], other.time[i]);
    }
  };

  /// Before every schedule. Locations are numbered in the order in which they are made.
  void begin() {
    threads_ = {};
    fences_ = {};
    locations_ = 0;
    now = this;
  }
  std::size_t new_location() { return locations_++; }

  struct thread_views {
    view current;
    view kept_by_loads;
    view at_release_fence;
  };
  thread_views& mine() {
    auto* e = explorer::active();
    return threads_[e == nullptr ? 0 : e->current()];
  }
  static std::size_t me() {
    auto* e = explorer::active();
    return e == nullptr ? 0 : e->current();
  }
  /// Each step of a thread has a time.
  void tick() { ++mine().current.time[me()]; }

  void fence(std::memory_order order) {
    if (auto* e = explorer::active()) e->point();
    tick();
    thread_views& t = mine();
    const bool full = order == std::memory_order_seq_cst;
    if (full || order == std::memory_order_acquire || order == std::memory_order_acq_rel) {
      t.current.join(t.kept_by_loads);
    }
    if (full) {
      t.current.join(fences_);
      fences_ = t.current;
    }
    if (full || order == std::memory_order_release || order == std::memory_order_acq_rel) {
      t.at_release_fence = t.current;
    }
  }

  inline static weak_memory* now = nullptr;

 private:
  std::array<thread_views, threads> threads_;
  view fences_;
  std::size_t locations_ = 0;
};

constexpr bool acquires(std::memory_order o) {
  return o == std::memory_order_acquire || o == std::memory_order_acq_rel ||
         o == std::memory_order_seq_cst;
}
constexpr bool releases(std::memory_order o) {
  return o == std::memory_order_release || o == std::memory_order_acq_rel ||
         o == std::memory_order_seq_cst;
}

template <class T>
class weak_atomic {
 public:
  /// In prepare(), after the memory's begin(), and before any other use: no step.
  void reset(T v) {
    stores_.assign(1, {v, {}});
    last_seq_cst_ = 0;
    id_ = weak_memory::now->new_location();
  }

  T load(std::memory_order order = std::memory_order_seq_cst) const {
    weak_memory& m = step();
    auto& t = m.mine();
    std::uint32_t oldest = t.current.oldest[id_];
    if (order == std::memory_order_seq_cst) oldest = std::max(oldest, last_seq_cst_);
    const auto last = static_cast<std::uint32_t>(stores_.size() - 1);
    const auto back = explorer::active()->choose_one_of(last - oldest + 1);
    return read(t, last - static_cast<std::uint32_t>(back), order);
  }
  void store(T v, std::memory_order order = std::memory_order_seq_cst) {
    weak_memory& m = step();
    append(m.mine(), v, order, nullptr);
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
    weak_memory& m = step();
    auto& t = m.mine();
    const auto last = static_cast<std::uint32_t>(stores_.size() - 1);
    if (stores_[last].value != expected) {
      expected = read(t, last, failure);
      return false;
    }
    const weak_memory::view message = stores_[last].message;
    read(t, last, success);
    append(t, desired, success, &message);
    return true;
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success,
                             std::memory_order failure) {
    return compare_exchange_strong(expected, desired, success, failure);
  }
  /// The last value in modification order. For checks: no step.
  [[nodiscard]] T peek() const { return stores_.back().value; }

 private:
  struct stored {
    T value;
    weak_memory::view message;
  };

  static weak_memory& step() {
    explorer::active()->point();
    weak_memory::now->tick();
    return *weak_memory::now;
  }
  T read(weak_memory::thread_views& t, std::uint32_t which, std::memory_order order) const {
    t.current.oldest[id_] = std::max(t.current.oldest[id_], which);
    const stored& s = stores_[which];
    if (acquires(order)) {
      t.current.join(s.message);
    } else {
      t.kept_by_loads.join(s.message);
    }
    return s.value;
  }
  void append(weak_memory::thread_views& t, T v, std::memory_order order,
              const weak_memory::view* sequence) {
    const auto which = static_cast<std::uint32_t>(stores_.size());
    t.current.oldest[id_] = which;
    weak_memory::view message = releases(order) ? t.current : t.at_release_fence;
    message.oldest[id_] = which;
    if (sequence != nullptr) message.join(*sequence);
    stores_.push_back({v, message});
    if (order == std::memory_order_seq_cst) last_seq_cst_ = which;
  }
  template <class F>
  T change(F&& f, std::memory_order order) {
    weak_memory& m = step();
    auto& t = m.mine();
    const auto last = static_cast<std::uint32_t>(stores_.size() - 1);
    const weak_memory::view message = stores_[last].message;
    const T before = read(t, last, order);
    append(t, f(before), order, &message);
    return before;
  }

  std::vector<stored> stores_;
  std::uint32_t last_seq_cst_ = 0;
  std::size_t id_ = 0;
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
