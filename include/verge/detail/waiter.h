// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include <verge/detail/lock.h>

#pragma GCC visibility push(default)

/// The party that waits, and the simplest event it can wait for.
///
/// Ground rules
///  - Of all the events a waiter is registered with, exactly one wins: the one whose claim()
///    returns true. Only the winner then calls wake(), once, as its last touch of the waiter: as
///    soon as wake() is called the waiter may resume on another thread and be destroyed.
///  - A waiter may be claimed and woken from the moment it is registered with the first event, also
///    while its owner is still registering it with others and has yet to suspend or block.
///    Every kind of waiter allows for that.
///  - The owner of the waiter takes it off every event it was registered with (the losers) before
///    the waiter is destroyed; an event that finds a waiter already claimed skips it.
namespace verge::detail {

/// A party that waits for one of several events: a suspended coroutine or a blocked thread.
class waiter {
 public:
  using wake_fn = void (*)(waiter&) noexcept;
  /// Which event has ended the wait.
  enum ticket : std::uint32_t {
    no_event = 0,  ///< none has
    by_event = 1,  ///< from here on: the operation's own events, in an order of its own
    /// From here on: limits that were put on the wait, by how many others are inside them.
    by_limit = 0x8000'0000,
    by_hint =
        0xffff'ff00,  ///< the event may have happened: the operation looks, and may wait again
    by_owner,         ///< the waiter's owner has abandoned the wait
    by_cancellation,  ///< of the task that waits
    by_deadlock,      ///< in simulated time: nothing can ever end the wait
  };

  explicit waiter(wake_fn how) noexcept : wake_(how) {}
  waiter(const waiter&) = delete;
  waiter& operator=(const waiter&) = delete;

  /// Tries to become the one event that ends the wait. `event` is its ticket. Acquire
  /// and release: the winner sees what the owner wrote before it registered, and the owner sees
  /// what the winner wrote before it claimed or woke.
  bool claim(std::uint32_t event) noexcept {
    std::uint32_t expected = no_event;
    return winner_.compare_exchange_strong(expected, event, std::memory_order_acq_rel,
                                           std::memory_order_acquire);
  }
  /// The ticket of the event that has won, or `no_event`.
  std::uint32_t winner() const noexcept { return winner_.load(std::memory_order_acquire); }

  /// To be called once, by the winner.
  void wake() noexcept { wake_(*this); }

 protected:
  ~waiter() = default;

  /// Makes a waiter that was claimed and woken ready for another wait. No event may know it.
  void forget_winner() noexcept { winner_.store(no_event, std::memory_order_relaxed); }

 private:
  wake_fn wake_;
  std::atomic<std::uint32_t> winner_{no_event};
};

/// An event that happens once, and that at most one waiter at a time waits for: that a task has
/// ended, that it has been cancelled.
///
/// All of it is one word: `pending`, `fired`, a waiter's address, or `firing` for the few
/// instructions in which fire() looks at a waiter. Ground rules
///  - fire() touches the waiter only between `firing` and `fired`, and after that only to wake it
///    if it has won it. So unsubscribe() has to wait out `firing`, and then the waiter belongs to
///    its owner alone: if fire() did not win it, fire() does not touch it any more; if it did, the
///    owner is here because fire() has woken it, or waits for that before it destroys the waiter.
///  - fire() does not touch the event itself once that is `fired`, so a thread that learns that it
///    has fired may destroy it.
class one_shot {
 public:
  one_shot() = default;
  one_shot(const one_shot&) = delete;
  one_shot& operator=(const one_shot&) = delete;

  /// Acquire: a thread that sees that it has fired sees what was written before it did.
  bool fired() const noexcept {
    const auto word = word_.load(std::memory_order_acquire);
    return word == is_fired || word == is_firing;
  }

  /// For one that is about to fire, or fires: returns when that is done. Nothing but the memory of
  /// a waiter is touched after that.
  void wait_until_fired() const noexcept {
    backoff patience;
    while (word_.load(std::memory_order_acquire) != is_fired) patience.wait();
  }

  /// Registers w; false if the event has fired already.
  bool subscribe(waiter& w) noexcept {
    auto expected = is_pending;
    // Release: the thread that fires sees the waiter whole.
    return word_.compare_exchange_strong(expected, address(w), std::memory_order_release,
                                         std::memory_order_acquire);
  }

  /// Takes w off, if it is still on. Once this returns the event does not touch w any more.
  void unsubscribe(waiter& w) noexcept {
    auto expected = address(w);
    if (word_.compare_exchange_strong(expected, is_pending, std::memory_order_relaxed)) return;
    backoff patience;
    while (word_.load(std::memory_order_acquire) == is_firing) patience.wait();
  }

  /// Makes the event happen. The first call does it, and claims and wakes the waiter. From any
  /// thread; neither allocates nor blocks.
  void fire(std::uint32_t ticket) noexcept {
    auto seen = is_pending;
    while (!word_.compare_exchange_weak(seen, seen == is_pending ? is_fired : is_firing,
                                        std::memory_order_acq_rel, std::memory_order_acquire)) {
      if (seen == is_fired || seen == is_firing) return;
    }
    if (seen == is_pending) return;
    auto& w = *reinterpret_cast<waiter*>(seen);
    const bool won = w.claim(ticket);
    word_.store(is_fired, std::memory_order_release);
    if (won) w.wake();
  }

  /// From now on the event has happened, but a waiter is not woken.
  void fire_in_silence() noexcept {
    auto seen = word_.load(std::memory_order_acquire);
    backoff patience;
    while (seen == is_firing || !word_.compare_exchange_weak(seen, is_fired)) {
      patience.wait();
      seen = word_.load(std::memory_order_acquire);
    }
  }

 private:
  static constexpr std::uintptr_t is_pending = 0;
  static constexpr std::uintptr_t is_fired = 1;
  static constexpr std::uintptr_t is_firing = 2;

  static std::uintptr_t address(waiter& w) noexcept { return reinterpret_cast<std::uintptr_t>(&w); }

  std::atomic<std::uintptr_t> word_{is_pending};
};

}  // namespace verge::detail

#pragma GCC visibility pop
