// SPDX-License-Identifier: Apache-2.0
// A stand-in for stdexec, which Debian does not have: the concepts of senders and receivers that
// <verge/execution.h> is written against, reduced to what its test needs. With stdexec's own
// headers on the include path before this folder, the test is compiled against those.
#pragma once

#include <concepts>
#include <exception>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace stdexec {

struct sender_t {};
struct receiver_t {};
struct operation_state_t {};
struct scheduler_t {};

template <class... Signatures>
struct completion_signatures {};

struct set_value_t {
  template <class R, class... Values>
  void operator()(R&& r, Values&&... values) const noexcept {
    std::forward<R>(r).set_value(std::forward<Values>(values)...);
  }
};
struct set_error_t {
  template <class R, class E>
  void operator()(R&& r, E&& e) const noexcept {
    std::forward<R>(r).set_error(std::forward<E>(e));
  }
};
struct set_stopped_t {
  template <class R>
  void operator()(R&& r) const noexcept {
    std::forward<R>(r).set_stopped();
  }
};
inline constexpr set_value_t set_value{};
inline constexpr set_error_t set_error{};
inline constexpr set_stopped_t set_stopped{};

struct empty_env {};
struct get_env_t {
  template <class T>
  auto operator()(const T& t) const noexcept {
    if constexpr (requires { t.get_env(); }) {
      return t.get_env();
    } else {
      return empty_env{};
    }
  }
};
inline constexpr get_env_t get_env{};

struct never_stop_token {};
struct get_stop_token_t {
  template <class Env>
  auto operator()(const Env& env) const noexcept {
    if constexpr (requires { env.query(*this); }) {
      return env.query(*this);
    } else {
      return never_stop_token{};
    }
  }
};
inline constexpr get_stop_token_t get_stop_token{};

template <class Token, class F>
struct stop_callback_of {
  using type = std::stop_callback<F>;
};
template <class F>
struct stop_callback_of<never_stop_token, F> {
  struct type {
    type(never_stop_token /*token*/, F /*f*/) {}
  };
};
template <class Token, class F>
using stop_callback_for_t = typename stop_callback_of<Token, F>::type;

template <class Completion>
struct get_completion_scheduler_t {
  template <class Env>
  auto operator()(const Env& env) const noexcept {
    return env.query(*this);
  }
};
template <class Completion>
inline constexpr get_completion_scheduler_t<Completion> get_completion_scheduler{};

template <class T>
concept receiver = std::derived_from<typename std::decay_t<T>::receiver_concept, receiver_t> &&
    std::move_constructible<std::decay_t<T>>;
template <class T>
concept operation_state =
    std::derived_from<typename T::operation_state_concept, operation_state_t> && requires(T& t) {
  { t.start() }
  noexcept;
};
template <class T>
concept sender = std::derived_from<typename std::decay_t<T>::sender_concept, sender_t> &&
    std::move_constructible<std::decay_t<T>> && requires {
  typename std::decay_t<T>::completion_signatures;
};
template <class S, class R>
concept sender_to = sender<S> && receiver<R> && requires(S&& s, R&& r) {
  { std::forward<S>(s).connect(std::forward<R>(r)) } -> operation_state;
};
template <class T>
concept scheduler = std::derived_from<typename std::decay_t<T>::scheduler_concept, scheduler_t> &&
    std::equality_comparable<std::decay_t<T>> && std::copyable<std::decay_t<T>> && requires(T&& t) {
  { std::forward<T>(t).schedule() } -> sender;
};

struct connect_t {
  template <class S, class R>
  requires sender_to<S, R>
  auto operator()(S&& s, R&& r) const { return std::forward<S>(s).connect(std::forward<R>(r)); }
};
struct start_t {
  template <operation_state O>
  void operator()(O& o) const noexcept {
    o.start();
  }
};
inline constexpr connect_t connect{};
inline constexpr start_t start{};

}  // namespace stdexec
