// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

#include <verge/detail/chan_action.h>
#include <verge/detail/chan_handle.h>
#include <verge/detail/operation.h>
#include <verge/errors.h>

#pragma GCC visibility push(default)

/// Channels pass values from one task or thread to another.
///
///   verge::chan<int> ch(16);                       // room for 16 values; 0: unbuffered
///
///   co_await verge::send(ch, 1);                   // in a coroutine
///   std::optional<int> v = co_await verge::recv(ch);
///
///   ch.send(2);                                    // on a plain thread: blocks it
///   for (int n : ch) use(n);                       // until the channel is closed and drained
///   ch.close();
///
/// Copies of a handle refer to the same channel, which lives as long as one of them. Any number of
/// tasks and threads may send and receive. Values arrive in the order in which they were sent, each
/// exactly once; waiting operations are served first come, first served. Values are moved and never
/// copied, and no operation allocates.
///
/// Closing a channel means that no more values will be sent. Values already sent can still be
/// received; after them every receive returns an empty optional at once. Sending to a closed
/// channel and closing it twice throw chan_closed. So does a send that is waiting when the channel
/// is closed; its value is lost.
///
/// Moving a T must not throw. An empty handle (default-constructed, constructed from nullptr, or
/// moved from) has no channel. Using it throws std::logic_error, except in a select, where it is
/// never ready.
namespace verge {

template <class T>
class chan;

/// The receiving end of a channel.
template <class T>
class receiver : public detail::chan_handle<T>, public detail::receiving_end<receiver<T>, T> {
 public:
  /// An empty handle.
  receiver() noexcept = default;
  receiver(chan<T> ch) noexcept : detail::chan_handle<T>(std::move(ch)) {}

 private:
  friend struct detail::chan_access;
  explicit receiver(const detail::chan_handle<T>& c) noexcept : detail::chan_handle<T>(c) {}
};

/// The sending end of a channel.
template <class T>
class sender : public detail::chan_handle<T>, public detail::sending_end<sender<T>, T> {
 public:
  /// An empty handle.
  sender() noexcept = default;
  sender(chan<T> ch) noexcept : detail::chan_handle<T>(std::move(ch)) {}
};

/// Both ends of a channel. Pass a receiver<T> or a sender<T> to a function that needs only one.
template <class T>
class chan : public detail::chan_handle<T>,
             public detail::receiving_end<chan<T>, T>,
             public detail::sending_end<chan<T>, T> {
 public:
  /// Creates a channel with room for `capacity` values. With 0, a send waits for a receiver.
  explicit chan(std::size_t capacity = 0) : detail::chan_handle<T>(capacity) {}
  /// An empty handle: chan<T>(nullptr). A template, so that chan<T>(0) means a capacity.
  template <std::same_as<std::nullptr_t> N>
  explicit chan(N /*none*/) noexcept : detail::chan_handle<T>() {}
};

/// Receiving: `co_await recv(ch)` or `recv(ch).wait()`. Returns the next value, or an empty
/// optional if the channel is closed and drained. If it is given up, nothing was received: no value
/// is lost.
template <class T>
detail::recv_operation<T> recv(const chan<T>& ch) {
  return detail::recv_operation<T>(ch);
}
template <class T>
detail::recv_operation<T> recv(const receiver<T>& ch) {
  return detail::recv_operation<T>(ch);
}

/// Sending: `co_await send(ch, v)` or `send(ch, v).wait()`. Waits until the value is in the
/// channel's buffer, or has been received if the channel has none. If it is given up, the value was
/// not sent and is destroyed with the operation.
template <class T>
detail::send_operation<T> send(const chan<T>& ch, std::type_identity_t<T> v) {
  return detail::send_operation<T>(ch, std::move(v));
}
template <class T>
detail::send_operation<T> send(const sender<T>& ch, std::type_identity_t<T> v) {
  return detail::send_operation<T>(ch, std::move(v));
}

}  // namespace verge

#pragma GCC visibility pop
