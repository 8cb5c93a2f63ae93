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

/// Channels: values handed from one task or thread to another.
///
///   verge::chan<int> ch(16);                       // room for 16 values; 0 means hand to hand
///
///   co_await verge::send(ch, 1);                   // in a coroutine
///   std::optional<int> v = co_await verge::recv(ch);
///
///   ch.send(2);                                    // on a plain thread: blocks it
///   for (int n : ch) use(n);                       // until the channel is closed and drained
///   ch.close();
///
/// A channel is shared: copies of a handle mean the same channel, which lives as long as one of
/// them does. Any number of tasks and threads may send to it and receive from it. Values arrive in
/// the order in which they were sent, each exactly once; those who wait are served in the order in
/// which they came. Values are moved and never copied, and no operation allocates.
///
/// Closing says that no more will be sent. What was sent before is received all the same; then
/// every receive gives an empty optional at once. Sending to a closed channel and closing it twice
/// throw chan_closed, also in those who were waiting to send when it was closed; their values are
/// lost.
///
/// Moving a T must not throw. An empty handle (default constructed, made of nullptr, moved from)
/// has no channel. Using it throws std::logic_error, except in a select, where it is never ready.
namespace verge {

template <class T>
class chan;

/// A channel's receiving end.
template <class T>
class receiver : public detail::chan_handle<T>, public detail::receiving_end<receiver<T>, T> {
 public:
  /// No channel yet.
  receiver() noexcept = default;
  receiver(chan<T> ch) noexcept : detail::chan_handle<T>(std::move(ch)) {}

 private:
  friend struct detail::chan_access;
  explicit receiver(const detail::chan_handle<T>& c) noexcept : detail::chan_handle<T>(c) {}
};

/// A channel's sending end.
template <class T>
class sender : public detail::chan_handle<T>, public detail::sending_end<sender<T>, T> {
 public:
  /// No channel yet.
  sender() noexcept = default;
  sender(chan<T> ch) noexcept : detail::chan_handle<T>(std::move(ch)) {}
};

/// A channel, both ends of it. Give a function a receiver<T> or a sender<T> if it needs only one.
template <class T>
class chan : public detail::chan_handle<T>,
             public detail::receiving_end<chan<T>, T>,
             public detail::sending_end<chan<T>, T> {
 public:
  /// Makes a channel with room for `capacity` values. With none, sender and receiver meet.
  explicit chan(std::size_t capacity = 0) : detail::chan_handle<T>(capacity) {}
  /// No channel: chan<T>(nullptr). A template, so that chan<T>(0) means a capacity.
  template <std::same_as<std::nullptr_t> N>
  explicit chan(N /*none*/) noexcept : detail::chan_handle<T>() {}
};

/// Receiving: `co_await recv(ch)` or `recv(ch).wait()`. Gives the next value, or nothing if the
/// channel is closed and drained. Given up, it has received nothing: no value is lost.
template <class T>
detail::recv_operation<T> recv(const chan<T>& ch) {
  return detail::recv_operation<T>(ch);
}
template <class T>
detail::recv_operation<T> recv(const receiver<T>& ch) {
  return detail::recv_operation<T>(ch);
}

/// Sending: `co_await send(ch, v)` or `send(ch, v).wait()`. Waits until the value is in the
/// channel, or, if the channel has no room at all, in a receiver's hands. Given up, the value has
/// not been sent and is destroyed with the operation.
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
