// SPDX-License-Identifier: Apache-2.0

// Events that one party waits for, the count of a timer's calls, and a coroutine that parks.

#include <orders/engine_host.h>
#include <orders/scene.h>

#include <base/futex.h>
#include <timer/call_count.h>
#include <verge/detail/scheduling.h>
#include <verge/detail/waiter.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

namespace verge::orders {
namespace {

using detail::one_shot;
using detail::thread_waiter;
using detail::waiter;

/// A thread waits for one of two events, each of which another thread makes happen. The waiter is
/// freed as soon as it has been taken off both: none may touch it after that.
template <int Events>
class wait_for_events : public scene_of<1 + Events> {
 public:
  void run(std::size_t i) override {
    if (i != 0) {
      text_[i] = 1;
      events_[i].fire(static_cast<std::uint32_t>(i));
      return;
    }
    auto w = std::make_unique<thread_waiter>();
    bool waits = true;
    for (std::size_t e = 1; e <= Events; ++e) {
      if (!events_[e].subscribe(*w)) {
        if (!w->claim(static_cast<std::uint32_t>(e))) continue;  // another one wakes it
        waits = false;
        break;
      }
    }
    if (waits) w->wait("an event");
    const std::size_t winner = w->winner();
    for (std::size_t e = 1; e <= Events; ++e) events_[e].unsubscribe(*w);
    require(winner >= 1 && winner <= Events, "an event has ended the wait");
    require(events_[winner].fired(), "that event has fired");
    require(text_[winner] == 1, "what was written before the event");
    w.reset();
  }

 private:
  std::array<one_shot, Events + 1> events_;
  std::array<int, Events + 1> text_{};
};

/// Thread 1 writes something and makes an event happen, which is held by a pointer so that it can
/// be destroyed; thread 0 is the scene's.
class written_and_fired : public scene_of<2> {
 public:
  void run(std::size_t i) final {
    if (i == 0) return wait();
    text_ = 1;
    event_->fire(1);
  }

 protected:
  virtual void wait() = 0;
  void require_written() const { require(text_ == 1, "what was written before the event"); }

  std::unique_ptr<one_shot> event_ = std::make_unique<one_shot>();

 private:
  int text_ = 0;
};

/// Waiting gives up while the event fires.
class event_and_withdrawal : public written_and_fired {
  void wait() override {
    auto w = std::make_unique<thread_waiter>();
    if (!event_->subscribe(*w)) return require_written();
    if (!w->claim(waiter::by_owner)) w->wait("the event, which has won");
    event_->unsubscribe(*w);
    if (w->winner() == 1) require_written();
    w.reset();
  }
};

/// A thread that sees that the event has fired may destroy it.
class end_of_an_event : public written_and_fired {
  void wait() override {
    thread_waiter w;
    if (event_->subscribe(w)) w.wait("the event");
    event_->wait_until_fired();
    require_written();
    event_.reset();
  }
};

/// A waiter is withdrawn, and another one begins to wait where it was, while the event fires: it is
/// woken as what it is now.
class same_address : public written_and_fired {
  void wait() override {
    alignas(thread_waiter) unsigned char place[sizeof(thread_waiter)];
    for (int n = 0; n < 2; ++n) {
      auto* const w = new (place) thread_waiter;
      const bool waits = event_->subscribe(*w);
      if (waits && (n == 1 || !w->claim(waiter::by_owner))) w->wait("the event");
      event_->unsubscribe(*w);
      w->~thread_waiter();
    }
  }
};

/// A thread that only looks.
class looked_at : public written_and_fired {
  void wait() override {
    if (event_->fired()) require_written();
  }
};

/// An event that has to wait for its end only: nothing else orders it.
class waited_out : public written_and_fired {
  void wait() override {
    event_->wait_until_fired();
    require_written();
    event_.reset();
  }
};

/// One that is to happen in silence, while it fires: when that returns the waiter may be freed, if
/// the event has not won it.
class silenced : public written_and_fired {
  void wait() override {
    auto w = std::make_unique<thread_waiter>();
    const bool waits = event_->subscribe(*w);
    event_->fire_in_silence();
    require(event_->fired(), "it has happened");
    if (waits && !w->claim(waiter::by_owner)) w->wait("the event, which has won");
    w.reset();
    event_->wait_until_fired();
  }
};

/// Two that fire: the waiter is woken once.
class fired_twice : public scene_of<3> {
 public:
  void run(std::size_t i) override {
    if (i == 0) {
      thread_waiter w;
      if (event_.subscribe(w)) w.wait("the event");
      event_.unsubscribe(w);
      require(event_.fired(), "it has fired");
    } else {
      event_.fire(static_cast<std::uint32_t>(i));
    }
  }

 private:
  one_shot event_;
};

/// What is made ready there was destroyed before: nothing of it is touched. Its own memory is.
class [[gnu::visibility("hidden")]] ended_host final : public bench::bare_host {
 public:
  ended_host() : bare_host(verge::engine::hybrid) { engine().grow(1); }
  ended_host(const ended_host&) = delete;
  ended_host& operator=(const ended_host&) = delete;
  ~ended_host() { end(); }
  using detail::scheduler::wait_for_visitors;

  std::int64_t now() noexcept override { return start_of_time; }
  std::int64_t cheap_now() noexcept override { return start_of_time; }
  unsigned home_processor() noexcept override { return 0; }
  void timer_fired(std::int64_t, std::int64_t) noexcept override {}
  void ready_next(detail::runnable&) noexcept override { readied_ = left_behind_ + 1; }

  /// By the coroutine, before it parks.
  void leave_behind() noexcept { left_behind_ = 1; }
  /// When no visit is under way.
  void look_around() noexcept { left_behind_ = readied_ = 0; }

 private:
  int left_behind_ = 0;
  int readied_ = 0;
};

/// A coroutine that waits for the event is destroyed, as its runtime ends.
class abandoned : public written_and_fired {
 public:
  abandoned() { job_.home = &host_; }

 private:
  void wait() override {
    auto w = std::make_unique<detail::coroutine_waiter>(&job_);
    const bool waits = event_->subscribe(*w);
    host_.leave_behind();
    if (waits && w->park()) {
      w->abandon_wait();
      event_->unsubscribe(*w);
      w.reset();
      host_.wait_for_visitors();
      host_.look_around();
    } else {
      event_->unsubscribe(*w);
    }
  }

  ended_host host_;
  detail::job job_;
};

/// The calls of one timer (timer/call_count.h). Firings come from two threads; the one that is to
/// queue the node runs it. A call uses what is not atomic, and so does the thread that ends the
/// handle.
class calls_of_a_timer : public scene_of<3> {
 public:
  void run(std::size_t i) override {
    if (i == 2) return end();
    references_.fetch_add(1, std::memory_order_relaxed);
    switch (calls(word_).add()) {
      case calls::added::queue:
        return work();
      case calls::added::counted:
        return;
      case calls::added::refused:
        return drop();
    }
  }
  void finish() override {
    require(references_.load(std::memory_order_relaxed) == 0, "no reference is left");
    require(payload_ == nullptr, "the payload is destroyed");
  }

 private:
  using calls = detail::call_count<std::atomic<std::uint32_t>>;

  void work() {
    for (bool more = true; more;) {
      if (calls(word_).begin()) {
        require(payload_ != nullptr, "no call after the end of the handle");
        ++*payload_;
      }
      const auto ended = calls(word_).end();
      if (ended.wake) woken_.leave();
      more = ended.queue;
      drop();
    }
  }
  /// As end_callbacks() and the destructor of a handle.
  void end() {
    for (bool runs = calls(word_).close(); runs; runs = calls(word_).runs()) {
      if (!calls(word_).ask()) break;
      woken_.wait();
    }
    ++*payload_;
    payload_.reset();
    drop();
  }
  void drop() { references_.fetch_sub(1, std::memory_order_acq_rel); }

  std::atomic<std::uint32_t> word_{0};
  std::atomic<int> references_{1};
  std::unique_ptr<int> payload_ = std::make_unique<int>(0);
  detail::note woken_;
};

}  // namespace

std::vector<scene_kind> event_scenes() {
  return {
      kind<wait_for_events<1>>("one_shot, one event", 3),
      kind<wait_for_events<2>>("one_shot, two events", 2, 1),
      kind<event_and_withdrawal>("one_shot, withdrawal", 3),
      kind<end_of_an_event>("one_shot, destroyed", 3),
      kind<same_address>("one_shot, the same address again", 3),
      kind<looked_at>("one_shot, looked at"),
      kind<waited_out>("one_shot, waited out"),
      kind<silenced>("one_shot, in silence", 3),
      kind<abandoned>("a coroutine, abandoned", 3),
      kind<fired_twice>("one_shot, fired twice", 2, 1),
      kind<calls_of_a_timer>("call_count, two firings and an end", 2, 1),
  };
}

}  // namespace verge::orders
