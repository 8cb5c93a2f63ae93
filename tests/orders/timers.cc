// SPDX-License-Identifier: Apache-2.0

// The default engine, with its handles, its nodes and its callbacks, and nothing else around it.

#include <orders/engine_host.h>
#include <orders/scene.h>

#include <verge/detail/timer_functions.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace verge::orders {
namespace {

using detail::timer_node;

/// One timer of processor 0, whose function owns what it writes to. Thread 1 looks at it two
/// seconds after the start of time; what thread 0 does is the scene's.
class timer_scene : public scene_of<2> {
 public:
  void run(std::size_t i) override {
    if (i == 0) {
      act();
    } else {
      check(0, 2 * second);
    }
  }
  void finish() override {
    judge();
    if (timer_ != nullptr) detail::destroy_timer(*timer_);
  }

 protected:
  struct payload {
    timer_scene* of;
    std::unique_ptr<int> own = std::make_unique<int>(0);
    void operator()() {
      ++*own;
      ++of->fired_;
    }
  };

  timer_scene() = default;
  explicit timer_scene(std::int64_t delay) { start(delay); }

  virtual void act() {}
  virtual void judge() {}

  void start(std::int64_t delay) {
    timer_ = detail::start_func_timer(host_.timers(), delay, payload{this}, 0);
  }
  bool reset(std::int64_t delay) { return detail::reset_timer_after(timer_, delay); }
  bool stop() { return detail::stop_timer(timer_); }
  void destroy() { detail::destroy_timer(*std::exchange(timer_, nullptr)); }
  /// As the worker that holds processor p at that time.
  void check(unsigned p, std::int64_t after, bool own = true) {
    this_processor = p;
    host_.engine().check_timers(p, start_of_time + after, own);
  }
  void check_both(std::int64_t after) {
    check(1, after);
    check(0, after);
  }

  engine_host host_;
  timer_node* timer_ = nullptr;
  int fired_ = 0;  ///< calls of one timer happen one before the other
};

/// A stop that says true, or a call, and never both.
class stop_or_fire : public timer_scene {
 public:
  stop_or_fire() : timer_scene(second) {}

 private:
  void act() override { stopped_ = stop(); }
  void judge() override { require(fired_ == (stopped_ ? 0 : 1), "stopped or fired"); }

  bool stopped_ = false;
};

/// Of two threads that stop it one has stopped it.
class stop_and_stop : public timer_scene {
 public:
  stop_and_stop() : timer_scene(second) {}
  void run(std::size_t i) override {
    this_processor = static_cast<unsigned>(i);
    stopped_[i] = stop();
  }

 private:
  void judge() override {
    require(stopped_[0] != stopped_[1], "one of the two has stopped it");
    check(0, 2 * second);
    require(fired_ == 0, "it does not fire");
  }

  bool stopped_[2] = {false, false};
};

/// The end of a handle while the timer is due: what the function owns is destroyed once, after the
/// call, or without one.
class end_or_fire : public timer_scene {
 public:
  end_or_fire() : timer_scene(second) {}

 private:
  void act() override {
    destroy();
    at_end_ = fired_;
  }
  void judge() override { require(fired_ == at_end_, "no call after the end of the handle"); }

  int at_end_ = 0;
};

/// Put off while it is due: it fires now or then, and is not lost.
class put_off_or_fire : public timer_scene {
 public:
  put_off_or_fire() : timer_scene(second) {}

 private:
  void act() override {
    this_processor = 1;
    waited_ = reset(10 * second);
  }
  void judge() override {
    const int before = fired_;
    require(before == (waited_ ? 0 : 1), "a reset that says true is in time");
    check_both(11 * second);
    require(fired_ == before + 1, "it fires at its new time");
  }

  bool waited_ = false;
};

/// Stopped, with its reference kept, and started again, while its entry comes up and may be
/// dropped: it fires at its new time.
class stopped_and_started : public timer_scene {
 public:
  stopped_and_started() : timer_scene(second) {}

 private:
  void act() override {
    stopped_ = stop();
    require(!reset(10 * second) || !stopped_, "it was not armed after a stop");
  }
  void judge() override {
    const int before = fired_;
    require(before == (stopped_ ? 0 : 1), "stopped or fired");
    check_both(11 * second);
    require(fired_ == before + 1, "it fires at its new time");
  }

  bool stopped_ = false;
};

/// Stopped and destroyed while its entry comes up: what the function owns is destroyed once.
class stopped_and_ended : public timer_scene {
 public:
  stopped_and_ended() : timer_scene(second) {}

 private:
  void act() override {
    stop();
    destroy();
  }
};

/// The same with two that look: the node may be left to the one and be freed by the other.
class stopped_and_ended_beside_two : public scene_of<3> {
 public:
  stopped_and_ended_beside_two() {
    timer_ = detail::start_func_timer(host_.timers(), second, owner{}, 0);
  }
  void run(std::size_t i) override {
    if (i == 0) {
      detail::stop_timer(timer_);
      detail::destroy_timer(*timer_);
    } else {
      host_.engine().check_timers(0, start_of_time + 2 * second, i == 1);
    }
  }

 private:
  struct owner {
    std::unique_ptr<int> own = std::make_unique<int>(0);
    void operator()() const { ++*own; }
  };
  engine_host host_;
  timer_node* timer_ = nullptr;
};

/// Four threads: one stops it, one starts it again, two look at it.
class crowd : public scene_of<4> {
 public:
  crowd() {
    timer_ = detail::start_func_timer(
        host_.timers(), second, [this] { ++fired_; }, 0);
  }
  void run(std::size_t i) override {
    this_processor = i % 2;
    if (i == 0) {
      stopped_ = detail::stop_timer(timer_);
    } else if (i == 1) {
      waited_ = detail::reset_timer_after(timer_, 10 * second);
    } else {
      host_.engine().check_timers(0, start_of_time + 2 * second, i == 2);
    }
  }
  void finish() override {
    const int before = fired_;
    require(before <= 1, "it was due once");
    this_processor = 0;
    for (const unsigned p : {0U, 1U}) {
      host_.engine().check_timers(p, start_of_time + 11 * second, true);
    }
    // Stopped after the reset, or started by it.
    const int later = fired_ - before;
    require(later == 1 || (stopped_ && (waited_ || before == 1)), "a reset that came last counts");
    detail::destroy_timer(*timer_);
  }

 private:
  engine_host host_;
  timer_node* timer_ = nullptr;
  int fired_ = 0;
  bool stopped_ = false;
  bool waited_ = false;
};

/// A timer is started while the processor's timers are looked at: it is seen by one of the looks.
class start_and_check : public timer_scene {
 public:
  void run(std::size_t i) override {
    if (i == 0) start(second);
    check(0, 2 * second, i == 0);
  }

 private:
  void judge() override {
    check(0, 3 * second);
    require(fired_ == 1, "it fires once");
  }
};

/// Reset to an earlier time from another processor, where it gets a new entry, while the old one
/// comes up: it fires once.
class earlier_elsewhere : public timer_scene {
 public:
  earlier_elsewhere() : timer_scene(second) {}

 private:
  void act() override {
    this_processor = 1;
    waited_ = reset(second / 2);
  }
  void judge() override {
    check_both(3 * second);
    require(fired_ == (waited_ ? 1 : 2), "it fires once for each time that it was armed");
  }

  bool waited_ = false;
};

/// Destroyed, and its node used again for a timer of another processor, while the entry of its
/// first life comes up: that entry fires nothing. If the new time is a later one, the entry of the
/// first life is used again.
template <std::int64_t Delay, std::int64_t Due>
class second_life : public timer_scene {
 public:
  second_life() : timer_scene(second) {}

 private:
  void act() override {
    this_processor = 1;
    destroy();
    before_ = fired_;
    start(Delay);
  }
  void judge() override {
    require(fired_ == before_, "the new timer was not looked at, or was not due");
    check_both(Due);
    require(fired_ == before_ + 1, "it fires once");
  }

  int before_ = 0;
};

/// Put off, then earlier again, while its entry is moved.
class moved_and_reset : public timer_scene {
 public:
  moved_and_reset() : timer_scene(second) { reset(100 * second); }

 private:
  /// The other thread's look finds the entry, and moves it to where its timer is.
  void act() override {
    this_processor = 1;
    reset(5 * second);
  }
  void judge() override {
    require(fired_ == 0, "it is not due");
    check_both(6 * second);
    require(fired_ == 1, "it fires at its new time, and not at that of the moved entry");
  }
};

/// The same while a worker looks ahead before a short sleep, and another one begins its sleep: it
/// sleeps no longer than until the new time, or is woken.
class looked_ahead_and_reset : public scene_of<3> {
 public:
  looked_ahead_and_reset() {
    timer_ = detail::start_func_timer(
        host_.timers(), second, [] {}, 0);
    detail::reset_timer_after(timer_, 100 * second);
  }
  void run(std::size_t i) override {
    this_processor = i == 0 ? 1 : 0;
    if (i == 0) {
      detail::reset_timer_after(timer_, 5 * second);
    } else if (i == 1) {
      host_.engine().look_ahead(0, start_of_time + 2 * second);
    } else {
      host_.sleep();
    }
  }
  void finish() override {
    require(host_.wakes_by(start_of_time + 5 * second), "no thread sleeps past the timer");
    detail::destroy_timer(*timer_);
  }

 private:
  engine_host host_;
  timer_node* timer_ = nullptr;
};

/// A ticker is stopped while it fires; it is armed again by the firing.
class ticker_and_stop : public timer_scene {
 public:
  ticker_and_stop() {
    timer_ = &detail::make_func_timer(host_.timers(), tick{this});
    host_.timers().start(*timer_, host_.timers().deadline(second), second);
  }

 private:
  struct tick {
    ticker_and_stop* of;
    void operator()() const { ++of->fired_; }
  };

  void act() override { stop(); }
  void judge() override {
    const int before = fired_;
    check(0, 10 * second);
    require(fired_ == before, "no tick after the stop");
  }
};

/// The function starts its own timer again, and the handle ends meanwhile.
class again_and_end : public timer_scene {
 public:
  again_and_end() { timer_ = detail::start_func_timer(host_.timers(), second, again{this}, 0); }

 private:
  /// Trivial, so that its end has nothing to destroy.
  struct again {
    again_and_end* of;
    void operator()() const {
      of->reset(10 * second);
      ++of->fired_;
    }
  };

  void act() override {
    detail::destroy_timer(*timer_);
    at_end_ = fired_;
  }
  void judge() override {
    timer_ = nullptr;
    check(0, 100 * second);
    require(fired_ == at_end_, "no call after the end of the handle");
  }

  int at_end_ = 0;
};

/// A processor is added while others look at all of them.
class growing : public timer_scene {
 public:
  growing() : timer_scene(100 * second) { stop(); }
  void run(std::size_t i) override {
    if (i == 0) {
      host_.engine().grow(3);
    } else {
      host_.engine().tidy_before_sleep(2);
      host_.engine().bytes();
    }
  }
};

}  // namespace

std::vector<scene_kind> timer_scenes() {
  return {
      kind<stop_or_fire>("hybrid, stop or fire", 2, 1),
      kind<stop_and_stop>("hybrid, stop and stop", 3),
      kind<end_or_fire>("hybrid, end or fire", 2, 1),
      kind<put_off_or_fire>("hybrid, put off or fire", 2, 1),
      kind<stopped_and_started>("hybrid, stopped and started again", 2, 1),
      kind<stopped_and_ended>("hybrid, stopped and ended", 2, 1),
      kind<stopped_and_ended_beside_two>("hybrid, stopped and ended beside two", 1, 1),
      kind<crowd>("hybrid, four threads", 1, 1),
      kind<start_and_check>("hybrid, start and check", 2, 1),
      kind<earlier_elsewhere>("hybrid, earlier elsewhere", 2, 1),
      kind<second_life<second / 2, 3 * second>>("hybrid, a second life", 2, 1),
      kind<second_life<10 * second, 11 * second>>("hybrid, a second life later", 2, 1),
      kind<moved_and_reset>("hybrid, moved and reset", 2, 1),
      kind<looked_ahead_and_reset>("hybrid, looked ahead and reset", 2, 0),
      kind<ticker_and_stop>("hybrid, ticker and stop", 2, 1),
      kind<again_and_end>("hybrid, again and end", 2, 1),
      kind<growing>("hybrid, growing", 2, 1),
  };
}

}  // namespace verge::orders
