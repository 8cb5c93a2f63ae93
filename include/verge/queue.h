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

/// Timers for an event loop that is there already: a queue without threads and without a clock.
///
///   verge::timer_queue timers;
///   auto t = timers.start(now() + 30s, [&] { close(connection); });
///   for (;;) {
///     wait_for_events(until timers.next());
///     handle_events();                           // timers.reset(t, now() + 30s) ...
///     timers.run(now());
///   }
///
/// It is the queue of the hybrid engine (detail/timer_wheel.h): start, stop and reset take constant
/// time at any number of timers, and timers fire in the order of their nanosecond, never early.
/// Memory is in proportion to the timers that wait, a few bytes for each beside its callback, also
/// when most are stopped long before they are due.
///
/// For one thread at a time. Any clock will do as long as it does not go back; the queue only
/// compares what it is given. Reading the clock is most of what a reset takes: among 100,000 timers
/// a reset to steady_clock::now() + d takes 246 ns and one to verge::clock::fast_now() + d 96 ns
/// (verge/clock.h). Such a loop is written with
///
///   verge::basic_timer_queue<std::function<void()>, verge::clock> timers;
///   timers.reset(t, verge::clock::fast_now() + 30s);    // a deadline: fast, at most 1 us late
///   timers.run(verge::clock::now());                    // what is due: exact
namespace verge {

namespace detail {

/// Chunks for a queue of its own: kept when they are given back, until the queue goes.
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

template <class Callback = std::function<void()>, class Clock = std::chrono::steady_clock>
class basic_timer_queue {
 public:
  using time_point = typename Clock::time_point;

  /// Names a timer from its start until it has fired or been stopped. A name is not used again
  /// before four thousand million other timers have had the same memory.
  struct id {
    std::uint32_t index = 0;
    std::uint32_t life = 0;  ///< 0: no timer
    friend bool operator==(const id&, const id&) = default;
  };

  basic_timer_queue() = default;
  basic_timer_queue(const basic_timer_queue&) = delete;
  basic_timer_queue& operator=(const basic_timer_queue&) = delete;
  ~basic_timer_queue() = default;

  /// Calls f, from run(), when `when` has come. Throws std::bad_alloc and what moving f throws, and
  /// has changed nothing then.
  id start(time_point when, Callback f) {
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
    ++live_;
    if (n.key == 0 || t < n.key) enter(n, index);
    return {index, n.life};
  }

  /// True if the timer was waiting: it will not be called. Its callback is destroyed.
  bool stop(id which) noexcept {
    node* n = find(which);
    if (n == nullptr) return false;
    end(*n, which.index);
    tidy();
    return true;
  }

  /// Gives a timer that waits another time. False if it has fired or been stopped: start another.
  bool reset(id which, time_point when) {
    node* n = find(which);
    if (n == nullptr) return false;
    const std::int64_t t = number(when);
    if (t < n->key) wheel_.reserve();
    n->when = t;
    if (t < n->key) enter(*n, which.index);
    return true;
  }

  /// Whether it waits.
  [[nodiscard]] bool pending(id which) const noexcept { return find(which) != nullptr; }

  /// When to call run() next; nothing if no timer waits. Never later than the first timer; earlier,
  /// once in a while, for one that was stopped or put off.
  [[nodiscard]] std::optional<time_point> next() const noexcept {
    const std::int64_t t = live_ == 0 ? 0 : wheel_.first();
    if (t == 0 || t >= wheel::never) return std::nullopt;
    return time_point(std::chrono::duration_cast<typename Clock::duration>(
        std::chrono::nanoseconds(t - origin) + round_up));
  }

  /// Calls what is due at `now`, in order, at most so many; says how many there were. A callback
  /// may use the queue. If one throws, it is gone and the others wait for the next call.
  std::size_t run(time_point now, std::size_t at_most = std::numeric_limits<std::size_t>::max()) {
    const std::int64_t t = std::min(number(now), wheel::never - 1);
    wheel_.advance(t);
    owner judge{*this};
    std::size_t called = 0;
    while (called < at_most) {
      unsigned steps = std::numeric_limits<unsigned>::max();
      if (!wheel_.ready(t, judge, steps)) break;
      const auto head = wheel_.front();
      wheel_.pop();
      node* n = judge.find(head.id, head.token);
      if (n == nullptr) continue;
      if (n->when > head.when) {  // put off: others may come first, even if it is due
        n->key = n->when;
        wheel_.insert(n->when, head.id, head.token);
        continue;
      }
      n->key = 0;
      Callback f = std::move(*n->f);
      end(*n, head.id);
      ++called;
      f();
    }
    return called;
  }

  /// How many timers wait.
  [[nodiscard]] std::size_t size() const noexcept { return live_; }
  [[nodiscard]] bool empty() const noexcept { return live_ == 0; }
  /// The memory held, in bytes; without what callbacks have allocated.
  [[nodiscard]] std::size_t bytes() const noexcept { return wheel_.bytes() + nodes_.bytes(); }
  /// Entries of timers that are no more or have another entry: at most size() and a constant.
  [[nodiscard]] std::size_t stale() const noexcept { return wheel_.size() - live_; }
  /// What is wrong inside; empty if nothing is. For tests.
  [[nodiscard]] std::string describe_violation() const { return wheel_.describe_violation(); }

 private:
  using wheel = detail::timer_wheel<detail::kept_chunks>;

  /// Times are positive inside: those of the clock are moved up by half the range.
  static constexpr std::int64_t origin = std::int64_t{1} << 60;
  /// next() must not be earlier than the nanosecond for a clock that counts coarser.
  static constexpr std::chrono::nanoseconds round_up =
      std::chrono::duration_cast<std::chrono::nanoseconds>(typename Clock::duration(1)) -
      std::chrono::nanoseconds(1);

  /// A timer that is stopped leaves its entry behind, and the next one in the same memory goes on
  /// with it, if it is early enough: then starting is as cheap as putting off.
  struct node {
    std::optional<Callback> f;
    std::int64_t when = 0;   ///< 0: not in use
    std::int64_t key = 0;    ///< of its entry: no later than `when`; 0: there is none
    std::uint32_t life = 1;  ///< which of the timers that had this memory it is
    std::uint32_t entries = 0;
    /// Changes with every entry, so that the ones before are out of date.
    [[nodiscard]] std::uint32_t token() const noexcept { return entries & wheel::token_mask; }
  };

  struct owner {
    basic_timer_queue& q;
    /// The timer of an entry that has come up; nullptr if it waits no more, or by another entry.
    node* find(std::uint32_t i, std::uint32_t token) const noexcept {
      node& n = q.nodes_[i];
      if (n.key == 0 || n.token() != token) return nullptr;
      if (n.when != 0) return &n;
      n.key = 0;  // the entry goes
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

  /// Makes an entry for a timer that has none, or one that is too late. In the latter case, and
  /// among many timers, it is made ahead of its time, so as to do for most times to come: one that
  /// waits longer is moved once more. (Among few somebody would wake for it.) There is room in the
  /// wheel.
  void enter(node& n, std::uint32_t index) {
    constexpr std::size_t many = 4096;
    const bool ahead = n.key != 0 && wheel_.size() >= many;
    ++n.entries;
    n.key = ahead ? wheel_.quarter_way_to(n.when) : n.when;
    wheel_.insert(n.key, index, n.token());
    tidy();
  }

  void end(node& n, std::uint32_t index) noexcept {
    n.when = 0;
    if (++n.life == 0) n.life = 1;
    --live_;
    nodes_.give_back(index);
    // Its end is the user's code and may start timers, also in this memory.
    [[maybe_unused]] const std::optional<Callback> last = std::move(n.f);
    n.f.reset();
  }

  /// Every operation that leaves an entry behind does its share of clearing them away.
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

/// With callbacks of any kind. A loop that has but one kind of time-out saves memory with its own:
/// basic_timer_queue<close_connection>.
using timer_queue = basic_timer_queue<>;

}  // namespace verge

#pragma GCC visibility pop
