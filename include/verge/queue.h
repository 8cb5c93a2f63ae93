// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include <verge/detail/numbered_nodes.h>
#include <verge/detail/timer_wheel.h>
#include <verge/duration.h>

#pragma GCC visibility push(default)

/// Timers for an existing event loop: a queue without threads and without a clock.
///
///   verge::timer_queue timers;
///   auto t = timers.start(now() + 30s, [&] { close(connection); });
///   for (;;) {
///     wait_for_events(timers.next());            // until then, or without end
///     handle_events();                           // some say timers.reset(t, now() + 30s)
///     timers.run(now());
///   }
///
/// It is the queue of the hybrid engine (detail/timer_wheel.h): start, stop and reset take constant
/// time for any number of timers, and timers fire in order of their nanosecond, never early. Memory
/// is proportional to the pending timers, a few bytes each besides the callback, even if most are
/// stopped long before they are due.
///
/// Not thread-safe: <verge/shared_queue.h> is the same queue for a loop whose timers other threads
/// start and stop, and <verge/loop.h> is that with a descriptor to watch.
///
/// Any monotonic clock works; the queue only compares the times it is given. Reading the clock is
/// most of the cost of a reset, and verge::clock::fast_now() (verge/clock.h) is several times as
/// fast as steady_clock::now(). A loop that uses it writes
///
///   verge::basic_timer_queue<std::function<void()>, verge::clock> timers;
///   timers.reset(t, verge::clock::fast_now() + 30s);    // a deadline: fast, at most 1 us late
///   timers.run(verge::clock::now());                    // what is due: exact
namespace verge {

namespace detail {

/// The chunks of one queue. Freed chunks are kept for reuse until the queue is destroyed.
class kept_chunks {
 public:
  kept_chunks() = default;
  kept_chunks(kept_chunks&& other) noexcept : free_(std::exchange(other.free_, nullptr)) {}
  kept_chunks& operator=(const kept_chunks&) = delete;
  ~kept_chunks() {
    while (free_ != nullptr) ::operator delete(std::exchange(free_, free_->next));
  }
  void* allocate() noexcept {
    if (free_ == nullptr)
      return ::operator new(timer_wheel<kept_chunks>::chunk_bytes, std::nothrow);
    return std::exchange(free_, free_->next);
  }
  void free(void* memory) noexcept { free_ = ::new (memory) link{free_}; }

 private:
  struct link {
    link* next;
  };
  link* free_ = nullptr;
};

}  // namespace detail

/// The queue. `Callback` is called without arguments; `Clock` only gives times their type.
template <class Callback = std::function<void()>, class Clock = std::chrono::steady_clock>
class basic_timer_queue {
 public:
  using time_point = typename Clock::time_point;  ///< a time on its clock

  /// Identifies a timer from its start until it has fired or been stopped. An id is not reused
  /// before 2^32 other timers have used the same memory.
  struct id {
    std::uint32_t index = 0;  ///< which memory of the queue
    std::uint32_t life = 0;   ///< which timer in it; 0: no timer
    friend bool operator==(const id&, const id&) = default;
  };

  /// What start() returns: an id, and whether the loop must wake earlier than it planned.
  struct started : id {
    /// The timer is now the first: next() has become earlier. Otherwise a loop that waits until the
    /// last next() wakes in time for it.
    bool first = false;
  };

  /// A queue without timers. It allocates nothing.
  basic_timer_queue() = default;
  basic_timer_queue(const basic_timer_queue&) = delete;
  basic_timer_queue& operator=(const basic_timer_queue&) = delete;
  ~basic_timer_queue() = default;

  /// Makes run() call f at `when`. Throws std::bad_alloc and whatever moving f throws; then nothing
  /// has changed.
  started start(time_point when, Callback f) {
    const std::int64_t t = number(when);
    wheel_.reserve();
    const std::uint32_t index = nodes_.take();
    node& n = nodes_[index];
    try {
      n.f.emplace(std::move(f));
    } catch (...) {
      nodes_.give_back(index);
      throw;
    }
    n.when = t;
    bool first = live_++ == 0;
    if (n.key == 0 || t < n.key) {
      enter(n, index);
      first = first || n.key == wheel_.first();
    }
    return {{index, n.life}, first && t < wheel::never};
  }

  /// Returns true if the timer was pending: it will not be called. Its callback is destroyed.
  bool stop(id which) noexcept { return take(which).has_value(); }

  /// As stop(), but returns the callback instead of destroying it; nothing if the timer was not
  /// pending.
  std::optional<Callback> take(id which) noexcept {
    node* n = find(which);
    if (n == nullptr) return std::nullopt;
    std::optional<Callback> f = end(*n, which.index);
    tidy();
    return f;
  }

  /// Changes the time of a pending timer. Returns false if it has fired or been stopped: start
  /// another.
  bool reset(id which, time_point when) {
    node* n = find(which);
    if (n == nullptr) return false;
    const std::int64_t t = number(when);
    if (t < n->key) wheel_.reserve();
    n->when = t;
    if (t < n->key) enter(*n, which.index);
    return true;
  }

  /// Returns whether the timer is pending.
  [[nodiscard]] bool pending(id which) const noexcept { return find(which) != nullptr; }

  /// When to call run() next; nothing if no timer is pending. Never later than the first timer.
  /// Sometimes earlier, because of a timer that was stopped or reset to later.
  [[nodiscard]] std::optional<time_point> next() const noexcept {
    const std::int64_t t = live_ == 0 ? 0 : wheel_.first();
    if (t == 0 || t >= wheel::never) return std::nullopt;
    return time_point(std::chrono::duration_cast<typename Clock::duration>(
        std::chrono::nanoseconds(t - origin) + round_up));
  }

  /// Calls what is due at `now`, in order, at most `at_most` callbacks; returns how many were
  /// called. A callback may use the queue. If one throws, its timer has ended and the others stay
  /// pending.
  std::size_t run(time_point now, std::size_t at_most = std::numeric_limits<std::size_t>::max()) {
    const std::int64_t t = advance(now);
    std::size_t called = 0;
    for (; called < at_most; ++called) {
      const due_timer d = first_due(t);
      if (d.n == nullptr) break;
      Callback f = std::move(*d.n->f);
      end(*d.n, d.index);
      f();
    }
    return called;
  }

  /// Ends the first timer that is due at `now` and returns its callback, which the caller calls;
  /// nothing if none is due.
  std::optional<Callback> pop(time_point now) {
    const due_timer d = first_due(advance(now));
    return d.n == nullptr ? std::nullopt : end(*d.n, d.index);
  }

  /// The number of pending timers.
  [[nodiscard]] std::size_t size() const noexcept { return live_; }
  /// Returns whether no timer is pending.
  [[nodiscard]] bool empty() const noexcept { return live_ == 0; }
  /// The memory held, in bytes, without what callbacks have allocated.
  [[nodiscard]] std::size_t bytes() const noexcept { return wheel_.bytes() + nodes_.bytes(); }
  /// The number of entries of timers that have ended or have a newer entry: at most size() plus a
  /// constant.
  [[nodiscard]] std::size_t stale() const noexcept { return wheel_.size() - live_; }
  /// A broken invariant, or an empty string. For tests.
  [[nodiscard]] std::string describe_violation() const { return wheel_.describe_violation(); }

 private:
  using wheel = detail::timer_wheel<detail::kept_chunks>;

  /// Internal times are positive: those of the clock are shifted by half the range.
  static constexpr std::int64_t origin = std::int64_t{1} << 60;
  /// For a coarser clock, next() must not be earlier than the nanosecond.
  static constexpr std::chrono::nanoseconds round_up =
      std::chrono::duration_cast<std::chrono::nanoseconds>(typename Clock::duration(1)) -
      std::chrono::nanoseconds(1);

  /// A stopped timer leaves its entry behind. The next timer in the same memory reuses the entry if
  /// it is early enough: then a start is as cheap as a reset to later.
  struct node {
    std::optional<Callback> f;
    std::int64_t when = 0;   ///< 0: not in use
    std::int64_t key = 0;    ///< of its entry: not after `when`; 0: no entry
    std::uint32_t life = 1;  ///< counts the timers that have used this memory
    std::uint32_t entries = 0;
    /// Changes with every entry, so that older entries are stale.
    [[nodiscard]] std::uint32_t token() const noexcept { return entries & wheel::token_mask; }
  };

  struct owner {
    basic_timer_queue& q;
    /// The timer of an entry that was reached; nullptr if it is not pending or has a newer entry.
    node* find(std::uint32_t i, std::uint32_t token) const noexcept {
      node& n = q.nodes_[i];
      if (n.key == 0 || n.token() != token) return nullptr;
      if (n.when != 0) return &n;
      n.key = 0;  // the entry is dropped
      return nullptr;
    }
    void prefetch(std::uint32_t i) const noexcept { __builtin_prefetch(&q.nodes_[i].when); }
    std::int64_t when(std::uint32_t i, std::uint32_t token) const noexcept {
      node* n = find(i, token);
      return n == nullptr ? 0 : n->key = n->when;
    }
    bool stale(std::uint32_t i, std::uint32_t token) const noexcept {
      return find(i, token) == nullptr;
    }
  };

  static std::int64_t number(time_point t) noexcept {
    const std::int64_t ns = saturate(t.time_since_epoch()).count();
    return std::clamp(ns, 1 - origin, wheel::never - origin) + origin;
  }

  [[nodiscard]] node* find(id which) const noexcept {
    if (which.index >= nodes_.size()) return nullptr;
    node& n = nodes_[which.index];
    return n.when != 0 && n.life == which.life ? &n : nullptr;
  }

  /// Makes an entry for a timer whose entry is missing or too late. In the latter case, and among
  /// many timers, the key is earlier than needed, so that it serves most later resets; a timer that
  /// stays pending longer is moved once more. (Among few timers the loop would wake for it.)
  /// Precondition: the wheel has room.
  void enter(node& n, std::uint32_t index) {
    constexpr std::size_t many = 4096;
    const bool ahead = n.key != 0 && wheel_.size() >= many;
    ++n.entries;
    n.key = ahead ? wheel_.quarter_way_to(n.when) : n.when;
    wheel_.insert(n.key, index, n.token());
    tidy();
  }

  /// The callback is destroyed by the caller: its destructor is user code and may start timers,
  /// also in this memory.
  std::optional<Callback> end(node& n, std::uint32_t index) noexcept {
    n.when = 0;
    if (++n.life == 0) n.life = 1;
    --live_;
    nodes_.give_back(index);
    std::optional<Callback> last = std::move(n.f);
    n.f.reset();
    return last;
  }

  std::int64_t advance(time_point now) noexcept {
    const std::int64_t t = std::min(number(now), wheel::never - 1);
    wheel_.advance(t);
    return t;
  }

  struct due_timer {
    node* n;
    std::uint32_t index;
  };

  /// The first timer that is due at `t`, without its entry; nullptr if there is none.
  due_timer first_due(std::int64_t t) {
    owner judge{*this};
    for (;;) {
      unsigned steps = std::numeric_limits<unsigned>::max();
      if (!wheel_.ready(t, judge, steps)) return {nullptr, 0};
      const auto head = wheel_.front();
      wheel_.pop();
      node* n = judge.find(head.id, head.token);
      if (n == nullptr) continue;
      if (n->when > head.when) {  // reset to later: others may come first, even if it is due
        n->key = n->when;
        wheel_.insert(n->when, head.id, head.token);
        continue;
      }
      n->key = 0;
      return {n, head.id};
    }
  }

  /// Every operation that leaves an entry behind does a share of the sweeping.
  void tidy() noexcept {
    if (!sweeping_ && stale() <= live_ / 2 + 512) return;
    owner judge{*this};
    sweeping_ = !wheel_.sweep(judge, 1);
  }

  wheel wheel_;
  detail::numbered_nodes<node> nodes_;
  std::size_t live_ = 0;
  bool sweeping_ = false;
};

/// With callbacks of any type. A loop with one kind of time-out saves memory with its own type:
/// basic_timer_queue<close_connection>.
using timer_queue = basic_timer_queue<>;

}  // namespace verge

#pragma GCC visibility pop
