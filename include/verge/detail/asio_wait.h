// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include <verge/detail/asio_service.h>

#pragma GCC visibility push(default)

namespace verge::detail {

/// How a cancellation slot reaches a wait, which may have ended: the two share a ticket, and the
/// wait takes itself off it before it ends. Its mutex is taken before that of the service.
template <class Asio>
class asio_ticket {
 public:
  asio_ticket(asio_service<Asio>& service, asio_wait_base& w) noexcept
      : service_(service), wait_(&w) {}

  void cancel() {
    asio_wait_base* to_post = nullptr;
    {
      const std::lock_guard held(mutex_);
      if (wait_ != nullptr) to_post = service_.cancel(*wait_);
    }
    if (to_post == nullptr) return;
    // The wait is out of the queue and not posted: it is this thread's. Once it is posted, it is
    // work of the context, whose service therefore exists.
    to_post->post();
    service_.drop_if_idle();
  }
  void detach() noexcept {
    const std::lock_guard held(mutex_);
    wait_ = nullptr;
  }

 private:
  std::mutex mutex_;
  asio_service<Asio>& service_;
  asio_wait_base* wait_;
};

/// An async_wait with its handler. It lies in memory of the handler's allocator, which is released
/// before the handler is called.
///
/// Until it is posted, the service's alarm is work of the context (asio_service.h, rule 4). It is
/// work of the timer's executor as well if that may count its work otherwise, and of the handler's
/// if that is another one, until the handler has returned.
template <class Asio, class Handler, class TimerExecutor>
class asio_wait final : public asio_wait_base {
  using service = asio_service<Asio>;
  using executor = decltype(Asio::executor_of(std::declval<const Handler&>(),
                                              std::declval<const TimerExecutor&>()));
  using allocator = decltype(Asio::allocator_of(std::declval<const Handler&>()));
  using own_allocator = typename std::allocator_traits<allocator>::template rebind_alloc<asio_wait>;
  using own_traits = std::allocator_traits<own_allocator>;

 public:
  /// Begins a wait of the timer. Throws what the allocator and moving the handler throw; then
  /// nothing has begun.
  static void start(service& s, asio_timer_state& timer, const TimerExecutor& ex, Handler&& h) {
    auto slot = Asio::slot_of(h);
    own_allocator memory(Asio::allocator_of(h));
    asio_wait* const w = own_traits::allocate(memory, 1);
    try {
      ::new (static_cast<void*>(w)) asio_wait(s, ex, std::move(h));
    } catch (...) {
      own_traits::deallocate(memory, w, 1);
      throw;
    }
    try {
      if (slot.is_connected()) {
        w->ticket_ = std::make_shared<asio_ticket<Asio>>(s, *w);
        slot.template emplace<on_cancel>(on_cancel{w->ticket_});
      }
      s.start(timer, *w);
    } catch (...) {
      w->destroy();
      throw;
    }
  }

  void post() noexcept override {
    // Out of the wait, which may have ended before post() returns.
    [[maybe_unused]] const auto timer_work = std::move(timer_work_);
    Asio::post(executor_, call(this));
  }
  void destroy() noexcept override {
    if (ticket_) ticket_->detach();
    destroy(own_allocator(Asio::allocator_of(handler_)));
  }

 private:
  asio_wait(service& s, const TimerExecutor& ex, Handler&& h)
      : service_(s), timer_work_(ex), executor_(Asio::executor_of(h, ex)), handler_(std::move(h)) {
    if (is_same_as(ex)) return;
    if constexpr (is_erased) {
      executor_ = Asio::tracked(executor_);
    } else {
      handler_work_.emplace(executor_);
    }
  }
  ~asio_wait() override = default;
  void destroy(own_allocator memory) noexcept {
    this->~asio_wait();
    own_traits::deallocate(memory, this, 1);
  }

  /// A type-erased executor can count its work itself: 56 bytes instead of a guard's 128.
  static constexpr bool is_erased = std::is_same_v<executor, typename Asio::any_io_executor>;
  struct nothing {};
  using handler_guard =
      std::conditional_t<is_erased, nothing,
                         std::optional<typename Asio::template work_guard<executor>>>;
  auto keep_erased() noexcept {
    if constexpr (is_erased) {
      return std::move(executor_);
    } else {
      return nothing{};
    }
  }

  [[nodiscard]] bool is_same_as(const TimerExecutor& ex) const noexcept {
    if constexpr (std::is_same_v<executor, TimerExecutor>) {
      return executor_ == ex;
    } else {
      return false;
    }
  }

  /// What is posted. If the executor destroys it uncalled, it destroys the wait.
  class call {
   public:
    using allocator_type = allocator;
    explicit call(asio_wait* w) noexcept : wait_(w) {}
    call(call&& other) noexcept : wait_(std::exchange(other.wait_, nullptr)) {}
    call& operator=(call&&) = delete;
    ~call() {
      if (wait_ == nullptr) return;
      wait_->service_.claim(*wait_);
      wait_->destroy();
    }
    void operator()() { std::exchange(wait_, nullptr)->end(); }
    [[nodiscard]] allocator_type get_allocator() const noexcept {
      return Asio::allocator_of(wait_->handler_);
    }

   private:
    asio_wait* wait_;
  };

  struct on_cancel {
    std::shared_ptr<asio_ticket<Asio>> ticket;
    template <class Type>
    void operator()(Type type) const {
      if (type != Type::none) ticket->cancel();
    }
  };

  void end() {
    if (ticket_) ticket_->detach();
    const bool cancelled = service_.claim(*this);
    // The handler's executor has work until the handler has returned.
    [[maybe_unused]] const auto handler_work = std::move(handler_work_);
    [[maybe_unused]] const auto erased = keep_erased();
    // Asked for while the handler still has it.
    own_allocator memory(Asio::allocator_of(handler_));
    Handler handler(std::move(handler_));
    destroy(std::move(memory));
    std::move(handler)(cancelled ? Asio::aborted() : typename Asio::error_code());
  }

  /// Instead of a work guard, where the alarm is enough.
  struct no_guard {
    explicit no_guard(const TimerExecutor& /*ex*/) noexcept {}
  };
  using timer_guard = std::conditional_t<Asio::template is_plain<TimerExecutor>, no_guard,
                                         typename Asio::template work_guard<TimerExecutor>>;

  service& service_;
  [[no_unique_address]] timer_guard timer_work_;
  std::shared_ptr<asio_ticket<Asio>> ticket_;
  [[no_unique_address]] handler_guard handler_work_;
  executor executor_;
  Handler handler_;
};

/// Stands for the cancellation slot where Asio has none.
struct no_slot {
  static constexpr bool is_connected() noexcept { return false; }
  template <class T, class U>
  void emplace(U&& /*handler*/) const noexcept {}
};

}  // namespace verge::detail

#pragma GCC visibility pop
