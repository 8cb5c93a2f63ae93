// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <system_error>
#include <type_traits>
#include <utility>

#include <verge/detail/limit.h>
#include <verge/detail/sleep.h>
#include <verge/duration.h>
#include <verge/io.h>
#include <verge/task.h>
#include <verge/time.h>

#pragma GCC visibility push(default)

/// A limit on how long an operation or a task may take.
///
///   auto message = co_await verge::timeout(verge::recv(ch), 50ms);   // throws verge::timed_out
///   verge::timeout(verge::recv(ch), 50ms).wait();                    // on a plain thread
///   auto reply = co_await verge::timeout(call(server), 2s);          // or a task
///   auto [n, error] = co_await verge::timeout(conn.read_full(bytes), 2s);   // net_errc::timed_out
///
/// An operation that does not complete in time is given up. One that can complete at once does,
/// whatever the limit. What an operation that was given up does depends on whether its result
/// carries an error:
///
///  - recv, send, select, sleep, join: it has not happened, and timed_out is thrown.
///  - Operations of sockets and other descriptors: the result has the error net_errc::timed_out and
///    says what was done. A read_full that has read three bytes returns {3, timed_out}.
///
/// docs/tasks-and-channels.md has a table of all operations.
///
/// A task that does not end in time is cancelled: the operation in which it waits throws
/// verge::cancelled. timeout() returns after the task has ended, so no part of it still runs; a
/// task that computes must poll verge::is_cancelled().
namespace verge {

/// Thrown by an operation that did not complete in time and has no error in its result.
class timed_out : public std::exception {
 public:
  const char* what() const noexcept override;  ///< says that it was not done in time
};

namespace detail {

[[noreturn]] void throw_timed_out();

struct time_limit {
  std::chrono::nanoseconds length;

  /// Nothing to check: what can complete at once does, however short the limit.
  void begin() const noexcept {}
  template <class F>
  timer alarm(F f) const {
    return after_func(length, std::move(f));
  }
  [[noreturn]] void fail() const { throw_timed_out(); }

  class watch {
   public:
    explicit watch(const time_limit& l)
        : alarm_(
              sleep_operation::for_delay(l.length.count(), nullptr, 0, {.written = "time-out"})) {}

    bool reached() const noexcept { return false; }
    bool start(waiter& w, std::uint32_t ticket) noexcept {
      if (armed_) return alarm_.resume(w);
      return armed_ = alarm_.start(w, ticket);
    }
    void pause() noexcept {
      if (armed_) alarm_.pause();
    }
    void stop() noexcept {
      if (armed_) alarm_.withdraw();
    }
    bool kept() const noexcept { return !alarm_.failure(); }
    std::error_code why() const noexcept {
      return kept() ? make_error_code(net_errc::timed_out) : alarm_.failure();
    }
    [[noreturn]] void fail() {
      alarm_.finish(waiter::no_event);
      throw_timed_out();
    }

   private:
    sleep_action alarm_;
    bool armed_{false};
  };
};

}  // namespace detail

/// Performs `op`. If `limit` passes first, its result has the error net_errc::timed_out; if its
/// result has no error, throws timed_out. A join_handle passed by reference can be joined again.
template <detail::is_operation Op, class Rep, class Period>
auto timeout(Op&& op, std::chrono::duration<Rep, Period> limit) {
  return detail::limited(detail::time_limit{saturate(limit)}, std::forward<Op>(op));
}
/// Runs `work` and cancels it after `limit`.
template <class T, class Rep, class Period>
task<T> timeout(task<T>&& work, std::chrono::duration<Rep, Period> limit) {
  return detail::limited_task(detail::time_limit{saturate(limit)}, std::move(work));
}
template <class T, class Rep, class Period>
task<T> timeout(task<T>& /*work*/, std::chrono::duration<Rep, Period> /*limit*/) {
  static_assert(!std::is_same_v<T, T>, "a task is awaited once: write timeout(std::move(t), ...)");
  return {};
}

}  // namespace verge

#pragma GCC visibility pop
