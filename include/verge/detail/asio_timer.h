// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <verge/clock.h>
#include <verge/detail/asio_service.h>
#include <verge/detail/asio_wait.h>
#include <verge/duration.h>
#include <verge/simulation.h>
#include <verge/task.h>
#include <verge/time.h>

#pragma GCC visibility push(default)

namespace verge::detail {

/// A timer for programs on Asio, with the interface of asio::steady_timer. <verge/asio.h> tells
/// what differs.
///
/// Every member may be called from any thread at any time, except that the destructor, moving and
/// assignment must not overlap with other uses of the object.
template <class Asio, class Executor>
class asio_timer {
  using service = asio_service<Asio>;

 public:
  using executor_type = Executor;
  using clock_type = clock;
  using duration = clock::duration;
  using time_point = clock::time_point;
  template <class Other>
  struct rebind_executor {
    using other = asio_timer<Asio, Other>;
  };

  /// A timer that has expired.
  explicit asio_timer(const Executor& ex)
      : executor_(ex), service_(&Asio::template use_service<service>(Asio::context_of(ex))) {
    service_->use(typename Asio::any_io_executor(ex));
  }
  asio_timer(const Executor& ex, time_point when) : asio_timer(ex) { expires_at(when); }
  template <class Rep, class Period>
  asio_timer(const Executor& ex, std::chrono::duration<Rep, Period> d) : asio_timer(ex) {
    expires_after(d);
  }
  /// With the executor of a context, such as an io_context.
  template <class Context>
  requires std::is_convertible_v<Context&, typename Asio::execution_context&>
  explicit asio_timer(Context& context) : asio_timer(Executor(context.get_executor())) {}
  template <class Context, class Expiry>
  requires std::is_convertible_v<Context&, typename Asio::execution_context&> asio_timer(
      Context& context, Expiry expiry)
      : asio_timer(Executor(context.get_executor()), expiry) {}

  /// The waits move with it.
  asio_timer(asio_timer&& other) noexcept : executor_(other.executor_), service_(other.service_) {
    service_->move(other.state_, state_);
  }
  asio_timer& operator=(asio_timer&& other) noexcept {
    if (this == &other) return *this;
    cancel();
    executor_ = other.executor_;
    service_ = other.service_;
    service_->move(other.state_, state_);
    return *this;
  }
  /// Cancels the waits.
  ~asio_timer() { cancel(); }

  [[nodiscard]] executor_type get_executor() const noexcept { return executor_; }

  /// Returns how many waits this call cancels. Their handlers see operation_aborted, and no others
  /// do: a wait that is not counted sees success, or was counted by an earlier call.
  std::size_t cancel() { return service_->cancel(state_, SIZE_MAX); }
  /// The same for the oldest wait alone.
  std::size_t cancel_one() { return service_->cancel(state_, 1); }

  [[nodiscard]] time_point expiry() const { return service_->expiry(state_); }
  /// Sets when waits that begin from now on end. Cancels the others; returns what cancel() would.
  std::size_t expires_at(time_point when) { return service_->expire_at(state_, when); }
  /// The same, `d` from now. A zero or negative `d` has passed; one past the end of the clock never
  /// does.
  template <class Rep, class Period>
  std::size_t expires_after(std::chrono::duration<Rep, Period> d) {
    const auto delay = saturate(d);
    if (delay <= delay.zero()) return expires_at(clock::now() + delay);
    const auto now = clock::fast_now();
    return expires_at(delay > time_point::max() - now ? time_point::max() : now + delay);
  }

  /// Blocks until the expiry.
  void wait() const { sleep_until(expiry()).wait(); }

  /// Waits until the expiry, asynchronously. The token's signature is void(error_code): success, or
  /// operation_aborted if the wait was cancelled.
  template <class Token = typename Asio::template default_token<Executor>>
  auto async_wait(Token&& token = Token()) {
    return Asio::template initiate<Token>(begin{this}, token);
  }

 private:
  struct begin {
    using executor_type = Executor;
    asio_timer* self;
    [[nodiscard]] executor_type get_executor() const noexcept { return self->executor_; }
    template <class Handler>
    void operator()(Handler&& h) const {
      using wait = asio_wait<Asio, std::decay_t<Handler>, Executor>;
      std::decay_t<Handler> own(std::forward<Handler>(h));
      wait::start(*self->service_, self->state_, self->executor_, std::move(own));
    }
  };

  Executor executor_;
  service* service_;
  asio_timer_state state_;
};

/// Runs a context until `limit` or until it has no work left. A task, as moving time from a task
/// needs no change of threads.
template <class Asio, class Context>
task<std::size_t> simulated_loop(asio_service<Asio>& timers, Context& context,
                                 clock::time_point limit) {
  for (std::size_t handlers = 0;;) {
    handlers += context.poll();
    if (context.stopped()) co_return handlers;
    const auto next = timers.next();
    if (limit != clock::time_point::max() && (!next || *next > limit)) {
      co_await sleep_until(limit);
      co_return handlers;
    }
    if (!next) {
      throw deadlock(
          "verge: the context waits for something that is not a timer of verge, and no timer is "
          "pending; in simulated time all time-outs must be timers of verge, and all other work "
          "must be ready when time moves");
    }
    co_await sleep_until(*next);
    timers.run_due();
  }
}

template <class Asio, class Context>
std::size_t run_simulated(simulation& sim, Context& context, clock::time_point limit) {
  auto& timers = Asio::template use_service<asio_service<Asio>>(context);
  timers.simulate(sim.seed());
  return sim.run(simulated_loop<Asio>(timers, context, limit));
}

/// Which Asio an io_context is of.
template <class Context>
struct asio_of {};

}  // namespace verge::detail

namespace verge {

/// Runs the context in simulated time: handlers run at once, and when none is ready, time moves to
/// the next timer. A day takes milliseconds, and the same seed gives the same run: it decides the
/// order of timers that are due at the same time. `Context` is asio::io_context or
/// boost::asio::io_context.
///
///   verge::simulation sim(seed);
///   asio::io_context io;
///   ...                                                 // verge::asio_timer, verge::clock
///   verge::run_simulated(sim, io);
///
/// Returns the number of handlers that ran when the context has no work left or is stopped, or when
/// `d` of simulated time has passed. Throws verge::deadlock if the context waits for something else
/// than verge's timers, which no time brings. Handlers run on a thread of the simulation, while the
/// caller waits, and must not block. Sockets work if both ends are in the context. From the first
/// call on, timers of this context fire only in this function.
template <class Context>
requires requires { typename detail::asio_of<Context>::type; }
std::size_t run_simulated(simulation& sim, Context& context) {
  using asio = typename detail::asio_of<Context>::type;
  return detail::run_simulated<asio>(sim, context, clock::time_point::max());
}
template <class Context, class Rep, class Period>
requires requires { typename detail::asio_of<Context>::type; }
std::size_t run_simulated(simulation& sim, Context& context, std::chrono::duration<Rep, Period> d) {
  using asio = typename detail::asio_of<Context>::type;
  const auto left = clock::time_point::max() - sim.now();
  const auto limit = sim.now() + std::clamp<clock::duration>(saturate(d), {}, left);
  return detail::run_simulated<asio>(sim, context, limit);
}

}  // namespace verge

#pragma GCC visibility pop
