// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include <verge/chan.h>
#include <verge/detail/select_case.h>

#pragma GCC visibility push(default)

/// select: waits for several channel operations and performs the first one that can proceed.
///
///   co_await verge::select(
///       verge::recv(messages, [&](std::optional<message> m) { answer(m); }),   // empty: closed
///       verge::send(results, r, [&] { ++sent; }),
///       verge::recv(verge::after(1s), [&] { late = true; }),                   // a time-out
///       verge::otherwise([&] { idle = true; }));                               // do not wait
///
/// On a plain thread write select(...).wait(). Exactly one case takes place. If several can, one of
/// them is chosen with equal probability. Then its handler runs, in the selecting coroutine or
/// thread, and select returns the index of the case. A handler may be omitted, and a receive may
/// fill a std::optional instead, so that the caller can await in the branch:
///
///   std::optional<message> m;
///   switch (co_await verge::select(verge::recv(messages, m), verge::recv(stop))) {
///     case 0: co_await answer_slowly(*m); break;
///     case 1: co_return;
///   }
///
/// A receive from a closed channel is always ready. So is a send to one: it throws chan_closed. A
/// case without a channel (an empty receiver, chan<T>(nullptr)) is never ready, so assigning an
/// empty handle disables a case. The same channel may appear in several cases. A select without
/// cases, or whose cases all have no channel, waits until its task is cancelled. If a select is
/// given up, no case has taken place and no handler has run. Nothing here allocates.
namespace verge {

/// A case of a select that receives and then calls `handler`, which takes a std::optional<T> or no
/// argument.
template <class T, class F>
detail::recv_case<T, std::decay_t<F>> recv(const chan<T>& ch, F&& handler) {
  return {recv(ch), std::forward<F>(handler)};
}
template <class T, class F>
detail::recv_case<T, std::decay_t<F>> recv(const receiver<T>& ch, F&& handler) {
  return {recv(ch), std::forward<F>(handler)};
}

/// A case of a select that receives into `to`; `to` is empty afterwards if the channel is closed.
template <class T>
detail::recv_case<T, detail::store_handler<T>> recv(const chan<T>& ch, std::optional<T>& to) {
  return {recv(ch), detail::store_handler<T>{&to}};
}
template <class T>
detail::recv_case<T, detail::store_handler<T>> recv(const receiver<T>& ch, std::optional<T>& to) {
  return {recv(ch), detail::store_handler<T>{&to}};
}

/// A case of a select that sends v and then calls `handler`. If another case is chosen, v is
/// destroyed unsent.
template <class T, class F>
detail::send_case<T, std::decay_t<F>> send(const chan<T>& ch, std::type_identity_t<T> v,
                                           F&& handler) {
  return {send(ch, std::move(v)), std::forward<F>(handler)};
}
template <class T, class F>
detail::send_case<T, std::decay_t<F>> send(const sender<T>& ch, std::type_identity_t<T> v,
                                           F&& handler) {
  return {send(ch, std::move(v)), std::forward<F>(handler)};
}

/// The case that is chosen if no other is ready: with it, a select never waits.
template <class F = detail::no_handler>
detail::otherwise_case<std::decay_t<F>> otherwise(F&& handler = F()) {
  return detail::otherwise_case<std::decay_t<F>>(std::in_place, std::forward<F>(handler));
}

/// Waits until a case is ready, performs it, and returns its index.
template <class... Cases>
auto select(Cases&&... cases) {
  if constexpr ((1 & ... & int{detail::check_case<Cases>()}) == 1) {  // not &&: each is checked
    return detail::select_operation<decltype(detail::as_case(std::forward<Cases>(cases)))...>(
        std::in_place, detail::as_case(std::forward<Cases>(cases))...);
  } else {
    return detail::select_operation<>(std::in_place);
  }
}

}  // namespace verge

#pragma GCC visibility pop
