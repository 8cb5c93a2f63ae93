// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include <verge/detail/errors.h>
#include <verge/detail/lock.h>
#include <verge/detail/waiter.h>

#pragma GCC visibility push(default)

/// The state behind the handles of a channel: a ring of values, and the queues of waiters.
///
/// Ground rules
///  - Everything but the reference count and the capacity is guarded by the lock, and so are the
///    links of every wait_node that is on one of the queues. A queue's order is the order of
///    arrival.
///  - The functions named ..._locked are called with the lock held. They do not wake: they claim
///    the waiter that they serve, complete its operation and return it, to be woken after unlock().
///  - A node that is taken off a queue is claimed in the same step. One that cannot be claimed
///    belongs to a waiter whose wait has ended already; it is dropped, and its owner finds it
///    unlinked.
///  - At most one of these holds: values in the ring, receivers that could be claimed. Senders wait
///    only while the ring is full.
///  - A thread that needs the locks of several channels takes them in the order of their addresses.
namespace verge::detail {

/// One registration of a waiter with one channel. It lives where the wait does; see waiter.h.
struct wait_node {
  wait_node* prev{nullptr};
  wait_node* next{nullptr};
  waiter* party{nullptr};
  std::uint32_t ticket{0};
  bool linked{false};
  /// Set, before the wake-up, if it was the channel's close() that ended the wait.
  bool closed{false};
  /// A sender's T, a receiver's std::optional<T>.
  void* value{nullptr};
};

class wait_queue {
 public:
  void push(wait_node& n, waiter& w, std::uint32_t ticket, void* value) noexcept {
    n.party = &w;
    n.ticket = ticket;
    n.value = value;
    n.linked = true;
    n.next = nullptr;
    n.prev = tail_;
    (tail_ != nullptr ? tail_->next : head_) = &n;
    tail_ = &n;
  }

  /// Takes a node off, if it is still on.
  void remove(wait_node& n) noexcept {
    if (!n.linked) return;
    n.linked = false;
    (n.prev != nullptr ? n.prev->next : head_) = n.next;
    (n.next != nullptr ? n.next->prev : tail_) = n.prev;
  }

  /// Takes off, and claims, the first waiter that can be claimed; nullptr if none can.
  wait_node* claim_first() noexcept {
    while (wait_node* n = head_) {
      remove(*n);
      if (n->party->claim(n->ticket)) return n;
    }
    return nullptr;
  }

 private:
  wait_node* head_{nullptr};
  wait_node* tail_{nullptr};
};

/// What an attempt on a locked channel came to.
struct chan_step {
  enum result : std::uint8_t {
    would_block,
    done,
    closed,
  };
  result what;
  waiter* to_wake{nullptr};
};

class chan_base;

/// What a timer wants to know of the channel that it sends to.
struct chan_hooks {
  /// A value has left the ring. With the lock held. May be null.
  void (*taken)(void* context) noexcept;
  /// All handles but the timer's own reference are about to be destroyed; or the timer was
  /// destroyed before, and the context is null. With no lock held; may be called more than once.
  /// May be null.
  void (*unused)(chan_base& c) noexcept;
};

/// All that does not depend on the type of the values.
class chan_base {
 public:
  chan_base(const chan_base&) = delete;
  chan_base& operator=(const chan_base&) = delete;

  void lock() noexcept { lock_.lock(); }
  void unlock() noexcept { lock_.unlock(); }

  wait_queue senders;
  wait_queue receivers;

  std::size_t capacity() const noexcept { return capacity_; }
  std::size_t size() noexcept {
    lock();
    const std::size_t n = count_;
    unlock();
    return n;
  }
  bool is_closed() noexcept {
    lock();
    const bool c = closed_;
    unlock();
    return c;
  }

  /// Closes the channel and wakes all waiters. Throws if it is closed already.
  void close();
  /// The same in two steps, of a channel that nothing waits to send to: for a caller that has more
  /// to do before those that waited go on. They are given to wake_all(). No error if closed
  /// already.
  [[nodiscard, gnu::visibility("hidden")]] wait_node* close_in_silence() noexcept;
  [[gnu::visibility("hidden")]] static void wake_all(wait_node* those) noexcept;

  /// Set before the channel is shared, and constant from then on. The context is guarded by the
  /// lock.
  const chan_hooks* hooks{nullptr};
  void* hooks_context{nullptr};

  void add_reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  /// Drops a reference if there are at least two beside it; returns whether it did. In one step: of
  /// two threads that drop theirs at the same time, one must see that it is the last but one.
  [[nodiscard]] bool drop_one_of_many() noexcept {
    std::uint32_t n = references_.load(std::memory_order_relaxed);
    while (n > 2) {
      if (references_.compare_exchange_weak(n, n - 1, std::memory_order_acq_rel,
                                            std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }
  /// Returns whether that was the last one. Acquire and release: the thread that destroys the
  /// channel sees all that the others did to it.
  [[nodiscard]] bool drop_reference() noexcept {
    return references_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

 protected:
  explicit chan_base(std::size_t capacity) noexcept : capacity_(capacity) {}
  ~chan_base() = default;

  short_lock lock_;
  std::atomic<std::uint32_t> references_{1};
  bool closed_{false};
  const std::size_t capacity_;
  std::size_t head_{0};  // of the ring: the oldest value
  std::size_t count_{0};
};

/// A channel of T. The ring stands behind the object, in the same allocation.
template <class T>
class alignas(std::max(alignof(T), alignof(chan_base))) chan_state : public chan_base {
  static_assert(
      std::is_object_v<T> && std::is_same_v<T, std::remove_cv_t<T>>,
      "a channel carries objects: a value, or a pointer or std::reference_wrapper to one");
  static_assert(std::is_nothrow_move_constructible_v<T> && std::is_nothrow_destructible_v<T>,
                "a channel's values are moved from hand to hand while others wait, so moving and "
                "destroying one must not throw; if T's does, send a std::unique_ptr<T>");

 public:
  static chan_state* make(std::size_t capacity) {
    if (capacity > (max_bytes - sizeof(chan_state)) / sizeof(T)) throw_capacity_too_large();
    void* memory = ::operator new(sizeof(chan_state) + capacity * sizeof(T), alignment);
    return new (memory) chan_state(capacity);
  }

  static void drop(chan_state* c) noexcept {
    if (c->hooks != nullptr && c->hooks->unused != nullptr) {
      if (c->drop_one_of_many()) return;
      c->hooks->unused(*c);
    }
    if (!c->drop_reference()) return;
    c->~chan_state();
    ::operator delete(static_cast<void*>(c), alignment);
  }

  /// Sends v if a receiver waits or the ring has room for it; moves from v only then.
  chan_step try_send_locked(T& v) noexcept {
    if (closed_) return {chan_step::closed};
    if (wait_node* receiver = receivers.claim_first()) {
      static_cast<std::optional<T>*>(receiver->value)->emplace(std::move(v));
      return {chan_step::done, receiver->party};
    }
    if (count_ == capacity_) return {chan_step::would_block};
    push(std::move(v));
    return {chan_step::done};
  }

  /// Receives into `to`, which is left empty if the channel is closed and drained.
  chan_step try_recv_locked(std::optional<T>& to) noexcept {
    if (count_ != 0) {
      pop_into(to);
      if (hooks != nullptr && hooks_context != nullptr && hooks->taken != nullptr) {
        hooks->taken(hooks_context);
        return {chan_step::done};
      }
      // There is room now for the sender that has waited longest.
      wait_node* sender = senders.claim_first();
      if (sender == nullptr) return {chan_step::done};
      push(std::move(*static_cast<T*>(sender->value)));
      return {chan_step::done, sender->party};
    }
    if (wait_node* sender = senders.claim_first()) {
      to.emplace(std::move(*static_cast<T*>(sender->value)));
      return {chan_step::done, sender->party};
    }
    return {closed_ ? chan_step::closed : chan_step::would_block};
  }

  /// Throws away the values in the ring; whether there was one. For timers, whose channels have no
  /// senders that wait.
  bool drain_locked() noexcept {
    const bool any = count_ != 0;
    while (count_ != 0) drop_first();
    return any;
  }

 private:
  static constexpr std::size_t max_bytes = std::numeric_limits<std::ptrdiff_t>::max();
  static constexpr std::align_val_t alignment{alignof(T) > alignof(chan_base) ? alignof(T)
                                                                              : alignof(chan_base)};

  explicit chan_state(std::size_t capacity) noexcept : chan_base(capacity) {}
  ~chan_state() { drain_locked(); }

  T* slot(std::size_t i) noexcept { return reinterpret_cast<T*>(this + 1) + i; }

  void push(T&& v) noexcept {
    std::size_t at = head_ + count_;
    if (at >= capacity_) at -= capacity_;
    new (slot(at)) T(std::move(v));
    ++count_;
  }
  void pop_into(std::optional<T>& to) noexcept {
    to.emplace(std::move(*slot(head_)));
    drop_first();
  }
  void drop_first() noexcept {
    slot(head_)->~T();
    if (++head_ == capacity_) head_ = 0;
    --count_;
  }
};

}  // namespace verge::detail

#pragma GCC visibility pop
