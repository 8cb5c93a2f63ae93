// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <verge/detail/chan_state.h>
#include <verge/detail/errors.h>

#pragma GCC visibility push(default)

/// Receiving and sending as operations (operation.h). The caller keeps the channel alive.
namespace verge::detail {

template <class T>
class recv_action {
 public:
  static constexpr const char* waiting_for = "chan receive";
  static constexpr bool cancellable = true;

  explicit recv_action(chan_state<T>& c) noexcept : chan_(c) {}

  bool start(waiter& w) noexcept {
    chan_.lock();
    const chan_step step = chan_.try_recv_locked(value_);
    if (step.what == chan_step::would_block)
      chan_.receivers.push(node_, w, waiter::by_event, &value_);
    chan_.unlock();
    if (step.to_wake != nullptr) step.to_wake->wake();
    return step.what == chan_step::would_block;
  }
  void withdraw() noexcept {
    chan_.lock();
    chan_.receivers.remove(node_);
    chan_.unlock();
  }
  std::optional<T> finish(std::uint32_t) noexcept { return std::move(value_); }

 private:
  chan_state<T>& chan_;
  std::optional<T> value_;
  wait_node node_;
};

template <class T>
class send_action {
 public:
  static constexpr const char* waiting_for = "chan send";
  static constexpr bool cancellable = true;

  /// v stays where it is until it is sent.
  send_action(chan_state<T>& c, T& v) noexcept : chan_(c), value_(v) {}

  bool start(waiter& w) noexcept {
    chan_.lock();
    const chan_step step = chan_.try_send_locked(value_);
    if (step.what == chan_step::would_block)
      chan_.senders.push(node_, w, waiter::by_event, &value_);
    chan_.unlock();
    if (step.to_wake != nullptr) step.to_wake->wake();
    if (step.what == chan_step::closed) node_.closed = true;
    return step.what == chan_step::would_block;
  }
  void withdraw() noexcept {
    chan_.lock();
    chan_.senders.remove(node_);
    chan_.unlock();
  }
  void finish(std::uint32_t) const {
    if (node_.closed) throw_send_on_closed();
  }

 private:
  chan_state<T>& chan_;
  T& value_;
  wait_node node_;
};

}  // namespace verge::detail

#pragma GCC visibility pop
