// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>

#include <verge/detail/chan_action.h>
#include <verge/detail/chan_state.h>
#include <verge/detail/errors.h>
#include <verge/detail/operation.h>

#pragma GCC visibility push(default)

/// What the three handles of a channel - chan, receiver, sender - are made of.
namespace verge::detail {

/// A counted reference to a channel, or to none, and what one may ask of either end.
template <class T>
class chan_handle {
 public:
  using value_type = T;

  chan_handle(const chan_handle& other) noexcept : state_(other.state_) {
    if (state_ != nullptr) state_->add_reference();
  }
  chan_handle(chan_handle&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  chan_handle& operator=(const chan_handle& other) noexcept {
    chan_handle(other).swap(*this);
    return *this;
  }
  chan_handle& operator=(chan_handle&& other) noexcept {
    chan_handle(std::move(other)).swap(*this);
    return *this;
  }
  ~chan_handle() {
    if (state_ != nullptr) chan_state<T>::drop(state_);
  }

  void swap(chan_handle& other) noexcept { std::swap(state_, other.state_); }

  /// How many values are in the channel, a moment ago; and how many fit.
  std::size_t size() const { return state().size(); }
  std::size_t capacity() const { return state().capacity(); }
  /// Whether it has been closed. There may still be values in it.
  bool closed() const { return state().is_closed(); }

  /// Whether there is a channel.
  explicit operator bool() const noexcept { return state_ != nullptr; }
  /// Whether both mean the same channel.
  friend bool operator==(const chan_handle& a, const chan_handle& b) noexcept {
    return a.state_ == b.state_;
  }

 protected:
  chan_handle() noexcept = default;
  explicit chan_handle(std::size_t capacity) : state_(chan_state<T>::make(capacity)) {}
  /// Takes over a reference.
  explicit chan_handle(chan_state<T>* s) noexcept : state_(s) {}

 private:
  friend struct chan_access;

  chan_state<T>& state() const {
    if (state_ == nullptr) [[unlikely]]
      throw_no_channel();
    return *state_;
  }

  chan_state<T>* state_{nullptr};
};

/// The way to a channel's state, for those inside the library.
struct chan_access {
  template <class T>
  static chan_state<T>& state(const chan_handle<T>& h) {
    return h.state();
  }
  /// The same, or nullptr if the handle has none.
  template <class T>
  static chan_state<T>* state_if_any(const chan_handle<T>& h) noexcept {
    return h.state_;
  }
  /// A handle that takes over a reference to the channel.
  template <class Handle, class T>
  static Handle handle(chan_state<T>* s) noexcept {
    return Handle(chan_handle<T>(s));
  }
};

/// Walks through the values of a channel as they come: what a range-for needs.
template <class T>
class recv_iterator {
 public:
  using value_type = T;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::input_iterator_tag;

  explicit recv_iterator(chan_state<T>& from) : from_(&from) { ++*this; }

  T& operator*() const noexcept { return *value_; }
  recv_iterator& operator++() {
    // Not assigned: T need not be assignable.
    value_.reset();
    if (auto v = wait_on_thread<recv_action<T>>(*from_)) value_.emplace(std::move(*v));
    return *this;
  }
  void operator++(int) { ++*this; }
  friend bool operator==(const recv_iterator& i, std::default_sentinel_t) noexcept {
    return !i.value_.has_value();
  }

 private:
  chan_state<T>* from_;
  mutable std::optional<T> value_;
};

/// What one can do with the receiving end, on a plain thread.
template <class Handle, class T>
class receiving_end {
 public:
  /// Waits for the next value; nothing if the channel is closed and drained.
  std::optional<T> recv() const { return wait_on_thread<recv_action<T>>(state()); }

  /// The next value if there is one now.
  std::optional<T> try_recv() const {
    chan_state<T>& c = state();
    std::optional<T> value;
    c.lock();
    const chan_step step = c.try_recv_locked(value);
    c.unlock();
    if (step.to_wake != nullptr) step.to_wake->wake();
    return value;
  }

  /// for (T& value : ch): receives until the channel is closed and drained.
  recv_iterator<T> begin() const { return recv_iterator<T>(state()); }
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  chan_state<T>& state() const { return chan_access::state<T>(static_cast<const Handle&>(*this)); }
};

/// What one can do with the sending end, on a plain thread.
template <class Handle, class T>
class sending_end {
 public:
  /// Waits until the value is sent. Throws chan_closed if the channel is closed.
  void send(T v) const { wait_on_thread<send_action<T>>(state(), v); }

  /// Sends the value if that can be done now, and says whether it was; if not, v is untouched.
  /// A closed channel takes none.
  bool try_send(T&& v) const {
    chan_state<T>& c = state();
    c.lock();
    const chan_step step = c.try_send_locked(v);
    c.unlock();
    if (step.to_wake != nullptr) step.to_wake->wake();
    return step.what == chan_step::done;
  }
  bool try_send(const T& v) const requires std::copy_constructible<T> { return try_send(T(v)); }

  /// Says that no more values will be sent. Throws chan_closed if that was said before.
  void close() const { state().close(); }

 private:
  chan_state<T>& state() const { return chan_access::state<T>(static_cast<const Handle&>(*this)); }
};

/// A receive that has yet to be made; also a case of a select.
template <class T>
class [[nodiscard("co_await it, or call wait()")]] recv_operation
    : public awaitable<recv_operation<T>> {
 public:
  class action : public recv_action<T> {
   public:
    explicit action(recv_operation& op) : recv_action<T>(op.channel()) {}
  };

  explicit recv_operation(const chan_handle<T>& from) noexcept : from_(from) {}

  chan_state<T>& channel() const { return chan_access::state(from_); }
  chan_state<T>* channel_if_any() const noexcept { return chan_access::state_if_any(from_); }

 private:
  chan_handle<T> from_;
};

/// A send that has yet to be made; also a case of a select.
template <class T>
class [[nodiscard("co_await it, or call wait()")]] send_operation
    : public awaitable<send_operation<T>> {
 public:
  class action : public send_action<T> {
   public:
    explicit action(send_operation& op) : send_action<T>(op.channel(), op.value_) {}
  };

  send_operation(const chan_handle<T>& to, T&& v) noexcept : to_(to), value_(std::move(v)) {}

  chan_state<T>& channel() const { return chan_access::state(to_); }
  chan_state<T>* channel_if_any() const noexcept { return chan_access::state_if_any(to_); }
  T& value() noexcept { return value_; }

 private:
  chan_handle<T> to_;
  T value_;
};

}  // namespace verge::detail

#pragma GCC visibility pop
