// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <verge/detail/chan_handle.h>
#include <verge/detail/select_state.h>

#pragma GCC visibility push(default)

/// The cases of a select, typed, and the operation that they make up.
namespace verge::detail {

/// Does nothing with what was received or sent.
struct no_handler {
  void operator()() const noexcept {}
};

/// Puts what was received where the user wants it.
template <class T>
struct store_handler {
  std::optional<T>* to;

  void operator()(std::optional<T>&& v) const noexcept {
    to->reset();  // not assigned: T need not be assignable
    if (v) to->emplace(std::move(*v));
  }
};

template <class F, class... Args>
void call_handler(F& f, Args&&... args) {
  static_assert(std::is_void_v<std::invoke_result_t<F&, Args...>>,
                "a handler in a select returns nothing. If it is a coroutine, it would never run: "
                "co_await what there is to do after the select, which tells the case's index");
  std::invoke(f, std::forward<Args>(args)...);
}

template <class T, class F>
class [[nodiscard("a case does nothing by itself: pass it to select()")]] recv_case {
 public:
  class arm final : public recv_arm<T> {
   public:
    explicit arm(recv_case& c) noexcept : recv_arm<T>(c.operation_.channel_if_any()) {}
  };

  template <class G>
  recv_case(recv_operation<T> op, G && handler)
      : operation_(std::move(op)), handler_(std::forward<G>(handler)) {}

  void run(arm & a) {
    constexpr bool takes_nothing = std::is_invocable_v<F&>;
    if constexpr (std::invocable<F&, std::optional<T>&&>) {
      call_handler(handler_, std::move(a.value()));
    } else if constexpr (takes_nothing) {
      call_handler(handler_);
    } else {
      static_assert(takes_nothing,
                    "the handler of recv(ch, handler) takes a std::optional<T>, which is empty if "
                    "the channel is closed, or nothing");
    }
  }

 private:
  recv_operation<T> operation_;
  F handler_;
};

template <class T, class F>
class [[nodiscard("a case does nothing by itself: pass it to select()")]] send_case {
 public:
  class arm final : public send_arm<T> {
   public:
    explicit arm(send_case& c) noexcept
        : send_arm<T>(c.operation_.channel_if_any(), c.operation_.value()) {}
  };

  template <class G>
  send_case(send_operation<T> op, G && handler)
      : operation_(std::move(op)), handler_(std::forward<G>(handler)) {}

  void run(arm & a) {
    constexpr bool takes_nothing = std::is_invocable_v<F&>;
    static_assert(takes_nothing, "the handler of send(ch, value, handler) takes nothing");
    if (a.found_closed()) throw_send_on_closed();
    if constexpr (takes_nothing) call_handler(handler_);
  }

 private:
  send_operation<T> operation_;
  F handler_;
};

template <class F>
class [[nodiscard("a case does nothing by itself: pass it to select()")]] otherwise_case {
 public:
  /// No channel: nothing to wait for.
  struct arm {
    explicit arm(otherwise_case&) noexcept {}
  };

  template <class G>
  explicit otherwise_case(std::in_place_t, G && handler) : handler_(std::forward<G>(handler)) {}

  void run(arm&) {
    constexpr bool takes_nothing = std::is_invocable_v<F&>;
    static_assert(takes_nothing, "the handler of otherwise(handler) takes nothing");
    if constexpr (takes_nothing) call_handler(handler_);
  }

 private:
  F handler_;
};

template <class T>
recv_case<T, no_handler> as_case(recv_operation<T> op) {
  return {std::move(op), no_handler()};
}
template <class T>
send_case<T, no_handler> as_case(send_operation<T> op) {
  return {std::move(op), no_handler()};
}
// By reference: a case passed by value and returned makes GCC 12 at -O1 believe that its handler
// cannot have changed what it captured (-fipa-modref).
template <class Case>
std::remove_cvref_t<Case> as_case(Case&& c) requires requires {
  typename std::remove_cvref_t<Case>::arm;
}
{ return std::forward<Case>(c); }

/// Whether that is a case. If not, that is an error which says so, and the only one.
template <class Case>
constexpr bool check_case() {
  constexpr bool is_case = requires(Case && c) { as_case(std::forward<Case>(c)); };
  static_assert(is_case,
                "the cases of a select are recv(ch, ...), send(ch, value, ...) and otherwise(...)");
  return is_case;
}

template <class Case>
inline constexpr bool is_otherwise = false;
template <class F>
inline constexpr bool is_otherwise<otherwise_case<F>> = true;

/// A select that has yet to be made.
template <class... Cases>
class [[nodiscard("co_await it, or call wait()")]] select_operation
    : public awaitable<select_operation<Cases...>> {
  static constexpr std::size_t cases = sizeof...(Cases);
  static constexpr std::size_t otherwises = (std::size_t{0} + ... + (is_otherwise<Cases> ? 1 : 0));
  static_assert(otherwises <= 1, "a select has at most one otherwise(...)");
  static constexpr std::size_t channels = cases - otherwises;

  /// The index of the case that is otherwise(...), or of none.
  static constexpr std::size_t otherwise_index() noexcept {
    constexpr std::array<bool, cases + 1> is{is_otherwise<Cases>..., true};
    std::size_t i = 0;
    while (!is[i]) ++i;
    return i;
  }

 public:
  explicit select_operation(std::in_place_t, Cases && ... c) : cases_(std::move(c)...) {}

  class action {
   public:
    static constexpr const char* waiting_for =
        channels == 0 ? "select without cases, so forever" : "select";
    static constexpr bool cancellable = true;

    explicit action(select_operation& op) : action(op, std::make_index_sequence<cases>()) {}

    bool start(waiter& w) noexcept { return state_.start(w, otherwises == 0); }
    void withdraw() noexcept { state_.withdraw(); }
    std::size_t finish(std::uint32_t winner) {
      std::size_t arm = state_.chosen();
      if (winner != waiter::no_event) {
        arm = winner - waiter::by_event;
        state_.withdraw();
      }
      const std::size_t index = case_of(arm);
      run(index, std::make_index_sequence<cases>());
      return index;
    }

   private:
    template <std::size_t... I>
    action(select_operation& op, std::index_sequence<I...>)
        : operation_(op),
          arms_(std::get<I>(op.cases_)...),
          pointers_(),
          state_(point_to_arms(std::index_sequence<I...>()), locks_.data(), order_.data()) {}

    template <std::size_t... I>
    std::span<select_arm*> point_to_arms(std::index_sequence<I...>) noexcept {
      [[maybe_unused]] std::size_t n = 0;
      (point_to(std::get<I>(arms_), n), ...);
      return {pointers_.data(), channels};
    }
    void point_to(select_arm& a, std::size_t& n) noexcept { pointers_[n++] = &a; }
    template <class F>
    void point_to(F&, std::size_t&) noexcept requires(!std::derived_from<F, select_arm>) {}

    /// The arms are counted without otherwise(...), the cases with it.
    static constexpr std::size_t case_of(std::size_t arm) noexcept {
      if (arm == select_state::none) return otherwise_index();
      return arm < otherwise_index() ? arm : arm + 1;
    }

    template <std::size_t... I>
    void run(std::size_t index, std::index_sequence<I...>) {
      static_cast<void>(
          ((index == I && (std::get<I>(operation_.cases_).run(std::get<I>(arms_)), true)) || ...));
    }

    select_operation& operation_;
    std::tuple<typename Cases::arm...> arms_;
    std::array<select_arm*, channels> pointers_;
    std::array<chan_base*, channels> locks_;
    std::array<std::uint32_t, channels> order_;
    select_state state_;
  };

 private:
  std::tuple<Cases...> cases_;
};

}  // namespace verge::detail

#pragma GCC visibility pop
