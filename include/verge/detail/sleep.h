// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <system_error>

#include <verge/detail/operation.h>
#include <verge/detail/timer_node.h>

#pragma GCC visibility push(default)

namespace verge::detail {

/// One wait for a time: a timer whose firing is the event.
class sleep_action {
 public:
  static constexpr const char* waiting_for = "sleep";
  static constexpr bool cancellable = true;

  /// `when` is a time, or if `relative` a delay.
  explicit sleep_action(const class sleep_operation& op);
  sleep_action(const sleep_action&) = delete;
  sleep_action& operator=(const sleep_action&) = delete;
  ~sleep_action();

  bool start(waiter& w) noexcept { return start(w, by_time); }
  /// `ticket` is what the waiter knows this event by, if it waits for others as well.
  bool start(waiter& w, std::uint32_t ticket) noexcept;
  void withdraw() noexcept;
  /// Unregisters the waiter while the timer runs on; registers it again, false if the time is up.
  void pause() noexcept;
  bool resume(waiter& w) noexcept;
  void finish(std::uint32_t winner);
  /// Why start() failed, if it was not that the time is up: what finish() throws, as a code.
  std::error_code failure() const noexcept;

 private:
  static constexpr std::uint32_t by_time = waiter::by_event;

  timer_node* node_{nullptr};
  waiter* waiter_{nullptr};
  std::int64_t when_{0};
  std::exception_ptr error_;
};

class [[nodiscard(
    "a sleep does nothing until it is awaited: co_await it, or call wait()")]] sleep_operation
    : public awaitable<sleep_operation> {
 public:
  using action = sleep_action;

  /// By these timers, or if that is nullptr by those of the scheduler of the waiter.
  static sleep_operation for_delay(std::int64_t ns, clockwork* of = nullptr, std::int64_t slack = 0,
                                   const work_name& name = {}) noexcept {
    return {ns, true, of, slack, name};
  }
  static sleep_operation until(std::int64_t when, clockwork* of = nullptr, std::int64_t slack = 0,
                               const work_name& name = {}) noexcept {
    return {when, false, of, slack, name};
  }

 private:
  friend sleep_action;
  sleep_operation(std::int64_t time, bool relative, clockwork* of, std::int64_t slack,
                  const work_name& name) noexcept
      : timers_(of), time_(time), slack_(slack), name_(name), relative_(relative) {}

  clockwork* timers_;
  std::int64_t time_;
  std::int64_t slack_;
  work_name name_;
  bool relative_;
};

}  // namespace verge::detail

#pragma GCC visibility pop
