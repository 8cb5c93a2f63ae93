#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
/// compares what it is given.
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
    const std::uint32_t index = take_node();
    node& n = at(index);
    try {
      n.f.emplace(std::move(f));
    } catch (...) {
      free_.push_back(index);  // there is room: see take_node()
      throw;
    }
    n.when = n.key = t;
    wheel_.insert(t, index, n.token());
    ++live_;
    tidy();
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
    if (t < n->key) {
      wheel_.reserve();
      n->renew_token();
      n->key = t;
      wheel_.insert(t, which.index, n->token());
      tidy();
    }
    n->when = t;
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
  [[nodiscard]] std::size_t bytes() const noexcept {
    return wheel_.bytes() + blocks_.size() * sizeof(block) +
           free_.capacity() * sizeof(std::uint32_t);
  }
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

  struct node {
    std::optional<Callback> f;
    std::int64_t when = 0;   ///< 0: not in use
    std::int64_t key = 0;    ///< of its entry: no later than `when`
    std::uint32_t life = 1;  ///< which of the timers that had this memory it is
    std::uint32_t entries = 0;
    /// Changes with every entry, so that the ones before are out of date.
    [[nodiscard]] std::uint32_t token() const noexcept { return entries & wheel::token_mask; }
    void renew_token() noexcept { ++entries; }
  };
  static constexpr std::uint32_t per_block = 256;
  struct block {
    node nodes[per_block];
  };

  struct owner {
    basic_timer_queue& q;
    node* find(std::uint32_t i, std::uint32_t token) const noexcept {
      node& n = q.at(i);
      return n.when != 0 && n.token() == token ? &n : nullptr;
    }
    void prefetch(std::uint32_t i) const noexcept { __builtin_prefetch(&q.at(i).when); }
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

  [[nodiscard]] node& at(std::uint32_t i) const noexcept {
    return blocks_[i / per_block]->nodes[i % per_block];
  }
  [[nodiscard]] node* find(id which) const noexcept {
    if (which.index / per_block >= blocks_.size()) return nullptr;
    node& n = at(which.index);
    return n.when != 0 && n.life == which.life ? &n : nullptr;
  }

  /// There is always room in free_ for all nodes, so that giving one back needs no memory.
  std::uint32_t take_node() {
    if (free_.empty()) {
      free_.reserve((blocks_.size() + 1) * per_block);
      blocks_.push_back(std::make_unique<block>());
      const auto first = static_cast<std::uint32_t>((blocks_.size() - 1) * per_block);
      for (std::uint32_t i = per_block; i != 0; --i) free_.push_back(first + i - 1);
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    return index;
  }

  void end(node& n, std::uint32_t index) noexcept {
    n.when = 0;
    if (++n.life == 0) n.life = 1;
    n.renew_token();
    --live_;
    free_.push_back(index);
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
  std::vector<std::unique_ptr<block>> blocks_;
  std::vector<std::uint32_t> free_;
  std::size_t live_ = 0;
  bool sweeping_ = false;
};

/// With callbacks of any kind. A loop that has but one kind of time-out saves memory with its own:
/// basic_timer_queue<close_connection>.
using timer_queue = basic_timer_queue<>;

}  // namespace verge

#pragma GCC visibility pop
