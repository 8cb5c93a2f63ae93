// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include <context/scope_tree.h>

/// Cancels a scope when a stop is requested on a std::stop_token.
///
/// The listener is a part of the scope that it cancels, and holds a share of that scope's memory
/// from its registration until it is claimed. Two parties may claim it: the stop callback, and the
/// thread that finishes the scope for another reason. The one that does deregisters the callback
/// and then drops the share, in this order, since the callback lives in that memory. The other one
/// leaves the listener alone.
///
/// Ground rules
///  - state_: registering -> listening -> claimed; or registering -> stopped -> claimed, if the
///    stop comes before the callback's constructor has returned, on this thread or on another one.
///    Then the callback does nothing, since it must not be destroyed yet, and the registering
///    thread does its work.
///  - The callback that claims destroys itself while it runs. That is allowed on the thread that
///    runs it; it does not access itself afterwards.
///  - A finishing thread that claims destroys the callback too, and so waits for one that runs on
///    another thread. That callback has lost the claim and returns at once.
///  - Registration happens before the scope is known to any other thread.
namespace verge::detail {

template <class Policy>
class stop_listener {
 public:
  using scope_type = typename Policy::scope;
  using token = typename Policy::stop_token;

  stop_listener() noexcept = default;
  stop_listener(const stop_listener&) = delete;
  stop_listener& operator=(const stop_listener&) = delete;

  /// `s` is the scope that the listener is a part of.
  void listen(scope_type& s, token t) noexcept {
    if (!t.stop_possible()) return;
    share_ = memory_share<scope_type>(s);
    callback_.emplace(std::move(t), on_stop{this});
    if (!move_on(registering, listening) && !ignores_registration) stop();
  }

  /// Called by the thread that has finished the scope.
  void disarm() noexcept {
    if (move_on(listening, claimed) || mutated<Policy>(scope_mutant::listener_without_claim))
      deregister();
  }

 private:
  struct on_stop {
    stop_listener* of;
    void operator()() const noexcept { of->stopped(); }
  };

  static constexpr std::uint8_t registering = 0;
  static constexpr std::uint8_t listening = 1;
  static constexpr std::uint8_t stopped_early = 2;
  static constexpr std::uint8_t claimed = 3;
  static constexpr bool ignores_registration =
      mutated<Policy>(scope_mutant::stops_while_registering);

  /// The stop callback.
  void stopped() noexcept {
    if (move_on(registering, stopped_early)) return;
    if (move_on(listening, claimed)) stop();
  }
  void stop() noexcept {
    share_.cancel(false, {});
    deregister();
  }
  void deregister() noexcept {
    const memory_share<scope_type> last = std::move(share_);
    callback_.reset();
  }
  bool move_on(std::uint8_t from, std::uint8_t to) noexcept {
    return state_.compare_exchange_strong(from, to, std::memory_order_acq_rel,
                                          std::memory_order_acquire);
  }

  typename Policy::template atomic<std::uint8_t> state_{ignores_registration ? listening
                                                                             : registering};
  memory_share<scope_type> share_;
  std::optional<typename Policy::template stop_callback<on_stop>> callback_;
};

}  // namespace verge::detail
