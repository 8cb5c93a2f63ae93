// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <verge/clock.h>
#include <verge/queue.h>

#pragma GCC visibility push(default)

/// The timers of one Asio context: a timer_queue, and one timer of Asio's that wakes the context
/// for the first of them. `Asio` says where the library is: <asio.hpp> or <boost/asio.hpp>.
///
/// Ground rules
///
/// 1. One mutex per context guards the queue, the alarm, and the links and the stage of every wait.
///    No handler is called, moved or destroyed with the mutex held.
/// 2. A wait is in one of three stages:
///
///      waiting  --- due ---> fired ---.
///         |                    |      |  its handler runs: it sees success
///       cancel               cancel   v
///         |                    |    (ended)
///         '---> cancelled <----'      ^
///                    '----------------'  its handler runs: it sees operation_aborted
///
///    A waiting wait is in the queue; a fired or cancelled one is on its way through its executor.
///    As long as it is waiting or fired it is linked to its timer. The outcome is decided where the
///    handler runs, by claim(), which unlinks the wait. (A wait that a cancel() has unlinked is
///    known by its stage, without the mutex.) cancel() counts exactly the waits that it unlinks,
///    under the same mutex. So a wait is counted by one cancel() and its handler sees
///    operation_aborted, or it is counted by none and its handler sees success: from any thread,
///    however long the handler has been queued.
/// 3. A wait that was taken out of the queue belongs to the thread that took it, until that thread
///    has posted it; from then on to the executor, which calls it or destroys it.
/// 4. The alarm is set for the queue's next() or earlier whenever the queue is not empty. It is the
///    work that keeps the context's run() from returning, for all waits in the queue; so it is
///    set for waits that never end, too. If the queue has become empty it is dropped, but not
///    before the last wait has been posted, and so is work of its executor. Each setting has a
///    number, by which a handler of an earlier setting recognises that it is outdated. Two of
///    Asio's timers take turns as the alarm: the one before is cancelled once the new one is set,
///    so that an alarm which cannot be set, for lack of memory, leaves that one as it was.
namespace verge::detail {

template <class Asio>
class asio_service;

/// A place in the list of a timer's waits: a ring that the list itself closes. No neighbour before:
/// not linked.
struct asio_wait_links {
  asio_wait_links* before = nullptr;
  asio_wait_links* after = nullptr;
};

/// One async_wait. What follows it depends on the handler (asio_wait.h).
class asio_wait_base : asio_wait_links {
 public:
  asio_wait_base() = default;
  asio_wait_base(const asio_wait_base&) = delete;
  asio_wait_base& operator=(const asio_wait_base&) = delete;

  /// Passes the wait to its executor, which will call its handler. For that Asio allocates; if
  /// there is no memory the program ends, as the handler would be lost.
  virtual void post() noexcept = 0;
  /// Destroys the wait without calling its handler.
  virtual void destroy() noexcept = 0;

 protected:
  virtual ~asio_wait_base() = default;

 private:
  template <class Asio>
  friend class asio_service;
  friend class asio_wait_list;
  using queue = basic_timer_queue<asio_wait_base*, clock>;
  enum class stage : std::uint8_t { waiting, fired, cancelled };

  asio_wait_base* next_ = nullptr;  ///< the next that the thread which cancelled it has to post
  queue::id id_;
  clock::time_point when_;
  std::atomic<stage> stage_ = stage::waiting;  ///< written under the mutex
};

/// The waits of one timer, oldest first.
class asio_wait_list {
 public:
  asio_wait_list() noexcept { clear(); }
  asio_wait_list(const asio_wait_list&) = delete;
  asio_wait_list& operator=(const asio_wait_list&) = delete;

  [[nodiscard]] asio_wait_base* first() const noexcept {
    return ring_.after == &ring_ ? nullptr : static_cast<asio_wait_base*>(ring_.after);
  }
  void add(asio_wait_base& w) noexcept {
    w.before = ring_.before;
    w.after = &ring_;
    w.before->after = &w;
    ring_.before = &w;
  }
  static bool has(const asio_wait_base& w) noexcept { return w.before != nullptr; }
  static void remove(asio_wait_base& w) noexcept {
    if (!has(w)) return;
    w.after->before = w.before;
    std::exchange(w.before, nullptr)->after = w.after;
  }
  /// This list is empty.
  void take_from(asio_wait_list& other) noexcept {
    if (other.first() == nullptr) return;
    ring_ = other.ring_;
    ring_.before->after = &ring_;
    ring_.after->before = &ring_;
    other.clear();
  }

 private:
  void clear() noexcept { ring_.before = ring_.after = &ring_; }

  asio_wait_links ring_;
};

/// The part of a timer that the service guards.
struct asio_timer_state {
  clock::time_point expiry{};
  asio_wait_list waits;
};

template <class Asio>
class asio_service : public Asio::execution_context::service {
  using execution_context = typename Asio::execution_context;
  using any_executor = typename Asio::any_io_executor;
  using stage = asio_wait_base::stage;
  using lock = std::unique_lock<std::mutex>;

 public:
  static inline typename execution_context::id id;

  explicit asio_service(execution_context& context) : execution_context::service(context) {}
  asio_service(const asio_service&) = delete;
  asio_service& operator=(const asio_service&) = delete;
  ~asio_service() override = default;

  /// Gives the service an executor of its context for the alarm. It need not be a plain one: the
  /// alarm's handler runs where Asio completes it, whatever the executor.
  void use(const any_executor& executor) {
    const lock held(mutex_);
    if (is_shut_down_) return;
    for (auto& alarm : alarms_)
      if (!alarm) alarm.emplace(executor);
  }

  /// Begins a wait until the timer's expiry. Throws std::bad_alloc, and has changed nothing then.
  void start(asio_timer_state& timer, asio_wait_base& w) {
    lock held(mutex_);
    if (is_shut_down_) {
      held.unlock();
      return w.destroy();
    }
    w.when_ = std::min(timer.expiry, never);
    // If it is due after the alarm, the alarm will find it, and the clock need not be read.
    const bool passed = (!is_set_ || w.when_ < set_for_) && has_passed(w.when_);
    if (passed) {
      w.stage_.store(stage::fired, std::memory_order_relaxed);
    } else {
      schedule(w);
    }
    timer.waits.add(w);
    held.unlock();
    if (passed) w.post();
  }

  /// Cancels at most `at_most` waits of the timer, and returns how many: their handlers will see
  /// operation_aborted.
  std::size_t cancel(asio_timer_state& timer, std::size_t at_most) {
    return cancel(timer, at_most, [] {});
  }
  /// The same, and sets the expiry: no wait begins in between.
  std::size_t expire_at(asio_timer_state& timer, clock::time_point when) {
    return cancel(timer, SIZE_MAX, [&] { timer.expiry = when; });
  }
  [[nodiscard]] clock::time_point expiry(const asio_timer_state& timer) {
    const lock held(mutex_);
    return timer.expiry;
  }
  void move(asio_timer_state& from, asio_timer_state& to) {
    const lock held(mutex_);
    to.expiry = from.expiry;
    to.waits.take_from(from.waits);
  }

  /// Cancels one wait. Returns it if the caller must post it, and then call drop_if_idle().
  asio_wait_base* cancel(asio_wait_base& w) noexcept {
    const lock held(mutex_);
    if (!asio_wait_list::has(w)) return nullptr;  // claimed or cancelled before
    asio_wait_list::remove(w);
    return unschedule(w) ? &w : nullptr;
  }

  /// Where the handler runs: decides the outcome. True: it was cancelled.
  bool claim(asio_wait_base& w) noexcept {
    // Pairs with unschedule(), whose last access to the wait this is: it is unlinked already.
    if (w.stage_.load(std::memory_order_acquire) == stage::cancelled) return true;
    const lock held(mutex_);
    asio_wait_list::remove(w);
    return w.stage_.load(std::memory_order_relaxed) == stage::cancelled;
  }

  /// For simulated time (verge/asio.h): from now on no alarm is set, and the caller calls
  /// run_due(). What is due at the same time is called in an order that the seed decides.
  void simulate(std::uint64_t seed) {
    const lock held(mutex_);
    if (simulated_) return;
    simulated_.emplace(seed);
    if (std::exchange(is_set_, false)) alarm().cancel();
    set_alarm();
  }
  /// When the first wait ends; nothing if none can.
  [[nodiscard]] std::optional<clock::time_point> next() {
    const lock held(mutex_);
    const auto next = queue_.next();
    return next && *next < never ? next : std::nullopt;
  }

  /// Lets the context's run() return if no wait is left.
  void drop_if_idle() {
    const lock held(mutex_);
    if (!queue_.empty() || !is_set_ || is_shut_down_) return;
    is_set_ = false;
    alarm().cancel();
    ++setting_;
  }

  /// Posts what is due. If there is no memory for the next alarm the program ends, as later waits
  /// would never end.
  void run_due() noexcept {
    lock held(mutex_);
    if (simulated_) return run_simulated(held);
    for (;;) {
      std::array<asio_wait_base*, 128> batch{};
      const std::size_t n = take_due(batch);
      if (n < batch.size()) set_alarm();
      held.unlock();
      for (asio_wait_base* w : std::span(batch).first(n)) w->post();
      if (n < batch.size()) return;
      held.lock();
    }
  }

 private:
  /// Rule 4's number of a setting, in the alarm's handler.
  struct on_alarm {
    asio_service* self;
    std::uint64_t setting;
    template <class Error>
    void operator()(const Error& /*cancelled or not*/) const {
      self->alarm_rang(setting);
    }
  };

  /// The context is being destroyed: handlers are destroyed without being called.
  void shutdown() override {
    std::vector<asio_wait_base*> pending;
    std::array<std::optional<typename Asio::steady_timer>, 2> alarms;
    {
      const lock held(mutex_);
      is_shut_down_ = true;
      // Asio's service of timers may be younger than this one, and is destroyed first then.
      for (std::size_t i = 0; i < alarms.size(); ++i) {
        if (alarms_[i]) alarms[i].emplace(std::move(*alarms_[i]));
        alarms_[i].reset();
      }
      pending.reserve(queue_.size());
      while (auto w = queue_.pop(clock::time_point::max())) pending.push_back(*w);
      for (asio_wait_base* w : pending) asio_wait_list::remove(*w);
    }
    for (asio_wait_base* w : pending) w->destroy();
  }

  template <class Also>
  std::size_t cancel(asio_timer_state& timer, std::size_t at_most, Also also) {
    std::size_t count = 0;
    asio_wait_base* to_post = nullptr;
    asio_wait_base** last = &to_post;
    bool idle = false;
    {
      const lock held(mutex_);
      for (; count < at_most && timer.waits.first() != nullptr; ++count) {
        asio_wait_base& w = *timer.waits.first();
        asio_wait_list::remove(w);
        if (!unschedule(w)) continue;
        w.next_ = nullptr;
        *last = &w;
        last = &w.next_;
      }
      also();
      idle = to_post != nullptr && queue_.empty();
    }
    while (to_post != nullptr) {
      asio_wait_base& w = *to_post;
      to_post = w.next_;
      w.post();
    }
    if (idle) drop_if_idle();
    return count;
  }

  /// Makes a wait that is no longer linked cancelled. True: it was in the queue, and the caller
  /// must post it.
  bool unschedule(asio_wait_base& w) noexcept {
    const bool was_queued = queue_.stop(w.id_);
    // The last access to a wait that has fired: its handler may run at once, without the mutex.
    w.stage_.store(stage::cancelled, std::memory_order_release);
    return was_queued;
  }

  void schedule(asio_wait_base& w) {
    w.id_ = queue_.start(w.when_, &w);
    try {
      set_alarm();
    } catch (...) {
      queue_.stop(w.id_);
      throw;
    }
  }

  /// Exact, but asks the fast clock first.
  static bool has_passed(clock::time_point t) noexcept {
    return t <= clock::fast_now() && t <= clock::now();
  }

  std::size_t take_due(std::span<asio_wait_base*> batch) {
    const auto now = clock::now();
    std::size_t n = 0;
    for (; n < batch.size(); ++n) {
      const auto w = queue_.pop(now);
      if (!w) break;
      (*w)->stage_.store(stage::fired, std::memory_order_relaxed);
      batch[n] = *w;
    }
    return n;
  }

  void run_simulated(lock& held) {
    std::vector<asio_wait_base*> due(queue_.size());
    due.resize(take_due(due));
    for (auto from = due.begin(); from != due.end();) {
      const auto to =
          std::find_if(from, due.end(), [&](auto* w) { return w->when_ != (*from)->when_; });
      std::shuffle(from, to, *simulated_);
      from = to;
    }
    const bool idle = queue_.empty();
    held.unlock();
    for (asio_wait_base* w : due) w->post();
    if (idle) drop_if_idle();
  }

  void set_alarm() {
    if (queue_.empty() || is_shut_down_) return;
    const auto when = simulated_ ? never : std::min(queue_.next().value_or(never), never);
    if (is_set_ && when >= set_for_) return;
    auto& next = *alarms_[(setting_ + 1) % 2];
    next.expires_at(std::chrono::steady_clock::time_point(when.time_since_epoch()));
    next.async_wait(Asio::run_inline(on_alarm{this, setting_ + 1}));
    if (is_set_) alarm().cancel();
    ++setting_;
    set_for_ = when;
    is_set_ = true;
  }
  /// The one of the last setting.
  auto& alarm() noexcept { return *alarms_[setting_ % 2]; }

  void alarm_rang(std::uint64_t setting) {
    {
      const lock held(mutex_);
      if (setting != setting_ || is_shut_down_) return;
      is_set_ = false;
    }
    run_due();
  }

  /// The clock counts from the machine's start: a wait past a hundred years never ends. The queue
  /// could tell such times apart, and would not give them out in shutdown().
  static constexpr clock::time_point never{std::chrono::hours(24) * 365 * 100};

  std::mutex mutex_;
  asio_wait_base::queue queue_;
  std::array<std::optional<typename Asio::steady_timer>, 2> alarms_;
  clock::time_point set_for_;
  std::uint64_t setting_ = 0;
  bool is_set_ = false;
  bool is_shut_down_ = false;
  std::optional<std::mt19937_64> simulated_;
};

}  // namespace verge::detail

#pragma GCC visibility pop
