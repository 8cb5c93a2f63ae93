// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include <verge/detail/chan_state.h>

#pragma GCC visibility push(default)

/// How a select chooses and waits, without knowing what its channels carry.
///
/// Ground rules
///  - A select takes the locks of all its channels, each once, in the order of their addresses, and
///    holds them while it looks for a case that can go on and while it registers with all the
///    queues if there is none. So it sees all its channels at one moment, and no thread can claim
///    its waiter half-way: a select that serves another select's waiter has not been claimed
///    itself.
///  - A case without a channel has no lock and no queue, and is passed over everywhere.
///  - It looks in an order drawn at random, so each of the cases that can go on has the same
///    chance.
///  - It is registered with every case under its own ticket, waiter::by_event + the case's index.
///    The event that claims it takes the node of its case off its queue; the select takes off the
///    others before it continues.
namespace verge::detail {

/// One case of a select.
class select_arm {
 public:
  /// Without a channel the arm is never ready.
  select_arm(chan_base* c, wait_queue* q, void* value) noexcept
      : chan_(c), queue_(q), value_(value) {}
  select_arm(const select_arm&) = delete;
  select_arm& operator=(const select_arm&) = delete;

  /// Whether what ended the wait, or was found, is that the channel is closed.
  bool found_closed() const noexcept { return node_.closed; }
  void set_found_closed() noexcept { node_.closed = true; }

  /// nullptr if there is none.
  chan_base* channel() const noexcept { return chan_; }
  /// With the channel locked: receives or sends, if that can be done at once.
  virtual chan_step try_locked() noexcept = 0;
  /// With the channel locked: waits with w, or does no longer.
  void join_locked(waiter& w, std::uint32_t ticket) noexcept {
    queue_->push(node_, w, ticket, value_);
  }
  void leave_locked() noexcept { queue_->remove(node_); }

 protected:
  ~select_arm() = default;

 private:
  chan_base* chan_;
  wait_queue* queue_;
  void* value_;
  wait_node node_;
};

template <class T>
class recv_arm : public select_arm {
 public:
  explicit recv_arm(chan_state<T>* c) noexcept
      : select_arm(c, c == nullptr ? nullptr : &c->receivers, &value_), from_(c) {}
  std::optional<T>& value() noexcept { return value_; }

 protected:
  ~recv_arm() = default;

 private:
  chan_step try_locked() noexcept final { return from_->try_recv_locked(value_); }

  chan_state<T>* from_;
  std::optional<T> value_;
};

template <class T>
class send_arm : public select_arm {
 public:
  send_arm(chan_state<T>* c, T& v) noexcept
      : select_arm(c, c == nullptr ? nullptr : &c->senders, &v), to_(c), value_(v) {}

 protected:
  ~send_arm() = default;

 private:
  chan_step try_locked() noexcept final { return to_->try_send_locked(value_); }

  chan_state<T>* to_;
  T& value_;
};

/// The select as such. Its arrays are its owner's, as the owner knows how many arms there are.
class select_state {
 public:
  /// `locks` and `order` have room for as many as there are arms.
  select_state(std::span<select_arm*> arms, chan_base** locks, std::uint32_t* order) noexcept;

  /// Lets one of the arms that can go on do so. If none can, registers w with all of them, unless
  /// the select is not to wait. True if it is to wait; else chosen() tells what happened.
  bool start(waiter& w, bool may_wait) noexcept;
  /// Takes the waiter off every channel.
  void withdraw() noexcept;

  static constexpr std::size_t none = SIZE_MAX;
  /// Which arm went on in start(), or none.
  std::size_t chosen() const noexcept { return chosen_; }

 private:
  [[gnu::visibility("hidden")]] chan_step try_in_random_order() noexcept;
  [[gnu::visibility("hidden")]] void shuffle() noexcept;
  [[gnu::visibility("hidden")]] void lock_all() noexcept;
  [[gnu::visibility("hidden")]] void unlock_all() noexcept;

  std::span<select_arm*> arms_;
  std::span<chan_base*> locks_;  // each channel once, by address
  std::span<std::uint32_t> order_;
  std::size_t chosen_{none};
};

}  // namespace verge::detail

#pragma GCC visibility pop
