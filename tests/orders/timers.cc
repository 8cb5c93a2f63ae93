// The default engine, with its handles, its nodes and its callbacks, and nothing else around it.

#include <orders/scene.h>

#include <verge/detail/timer_functions.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "../../bench/bare_host.h"

namespace verge::orders {
namespace {

using detail::timer_node;

constexpr std::int64_t second = 1'000'000'000;
constexpr std::int64_t start_of_time = 3600 * second;

thread_local unsigned this_processor = 0;

class [[gnu::visibility("hidden")]] host final
    : public bench::bare_host{public : host() : bare_host(verge::engine::hybrid){this_processor = 0;
engine().grow(2);
}  // namespace
~host() { end(); }
std::int64_t now() noexcept override { return start_of_time; }
std::int64_t cheap_now() noexcept override { return start_of_time; }
unsigned home_processor() noexcept override { return this_processor; }
void timer_fired(std::int64_t when, std::int64_t now) noexcept override {
  require(when <= now, "no timer fires early");
}
};  // namespace verge::orders

/// One timer, whose function owns what it writes to.
class timer_scene : public scene {
 public:
  [[nodiscard]] std::size_t threads() const override { return 2; }

 protected:
  struct payload {
    timer_scene* of;
    std::unique_ptr<int> own = std::make_unique<int>(0);
    void operator()() {
      ++*own;
      ++of->fired_;
    }
  };

  timer_node* start(std::int64_t delay) {
    return detail::start_func_timer(host_.timers(), delay, payload{this}, 0);
  }
  /// As the worker that holds processor p at that time.
  void check(unsigned p, std::int64_t after, bool own = true) {
    this_processor = p;
    host_.engine().check_timers(p, start_of_time + after, own);
  }

  host host_;
  int fired_ = 0;  ///< calls of one timer happen one before the other
};

/// A stop that says true, or a call, and never both.
class stop_or_fire : public timer_scene {
 public:
  stop_or_fire() : timer_(start(second)) {}
  void run(std::size_t i) override {
    if (i == 0) {
      stopped_ = detail::stop_timer(timer_);
    } else {
      check(0, 2 * second);
    }
  }
  void finish() override {
    require(stopped_ ? fired_ == 0 : fired_ == 1, "stopped or fired");
    detail::destroy_timer(*timer_);
  }

 private:
  timer_node* timer_;
  bool stopped_ = false;
};

/// Of two threads that stop it one has stopped it.
class stop_and_stop : public timer_scene {
 public:
  stop_and_stop() : timer_(start(second)) {}
  void run(std::size_t i) override {
    this_processor = static_cast<unsigned>(i);
    stopped_[i] = detail::stop_timer(timer_);
  }
  void finish() override {
    require(stopped_[0] != stopped_[1], "one of the two has stopped it");
    check(0, 2 * second);
    require(fired_ == 0, "it does not fire");
    detail::destroy_timer(*timer_);
  }

 private:
  timer_node* timer_;
  bool stopped_[2] = {false, false};
};

/// The end of a handle while the timer is due: what the function owns is destroyed once, after the
/// call, or without one.
class end_or_fire : public timer_scene {
 public:
  end_or_fire() : timer_(start(second)) {}
  void run(std::size_t i) override {
    if (i == 0) {
      detail::destroy_timer(*timer_);
      at_end_ = fired_;
    } else {
      check(0, 2 * second);
    }
  }
  void finish() override { require(fired_ == at_end_, "no call after the end of the handle"); }

 private:
  timer_node* timer_;
  int at_end_ = 0;
};

/// Put off while it is due: it fires now or then, and is not lost.
class put_off_or_fire : public timer_scene {
 public:
  put_off_or_fire() : timer_(start(second)) {}
  void run(std::size_t i) override {
    if (i == 0) {
      this_processor = 1;
      waited_ = detail::reset_timer_after(timer_, 10 * second);
    } else {
      check(0, 2 * second);
    }
  }
  void finish() override {
    const int before = fired_;
    require(before == (waited_ ? 0 : 1), "a reset that says true is in time");
    check(0, 11 * second);
    check(1, 11 * second);
    require(fired_ == before + 1, "it fires at its new time");
    detail::destroy_timer(*timer_);
  }

 private:
  timer_node* timer_;
  bool waited_ = false;
};

/// A timer is started while the processor's timers are looked at: it is seen by one of the looks.
class start_and_check : public timer_scene {
 public:
  void run(std::size_t i) override {
    if (i == 0) {
      timer_ = start(second);
      check(0, 2 * second);
    } else {
      check(0, 2 * second, false);
    }
  }
  void finish() override {
    check(0, 3 * second);
    require(fired_ == 1, "it fires once");
    detail::destroy_timer(*timer_);
  }

 private:
  timer_node* timer_ = nullptr;
};

/// Reset to an earlier time from another processor, where it gets a new entry, while the old one
/// comes up: it fires once.
class earlier_elsewhere : public timer_scene {
 public:
  earlier_elsewhere() : timer_(start(second)) {}
  void run(std::size_t i) override {
    if (i == 0) {
      this_processor = 1;
      waited_ = detail::reset_timer_after(timer_, second / 2);
    } else {
      check(0, 2 * second);
    }
  }
  void finish() override {
    check(1, 3 * second);
    check(0, 3 * second);
    require(fired_ == (waited_ ? 1 : 2), "it fires once for each time that it was armed");
    detail::destroy_timer(*timer_);
  }

 private:
  timer_node* timer_;
  bool waited_ = false;
};

/// Destroyed, and its node used again for a timer of another processor, while the entry of its
/// first life comes up: that entry fires nothing.
class second_life : public timer_scene {
 public:
  second_life() : timer_(start(second)) {}
  void run(std::size_t i) override {
    if (i == 0) {
      this_processor = 1;
      detail::destroy_timer(*timer_);
      before_ = fired_;
      timer_ = start(second / 2);
    } else {
      check(0, 2 * second);
    }
  }
  void finish() override {
    require(fired_ == before_, "the new timer was not looked at");
    check(1, 3 * second);
    check(0, 3 * second);
    require(fired_ == before_ + 1, "it fires once");
    detail::destroy_timer(*timer_);
  }

 private:
  timer_node* timer_;
  int before_ = 0;
};

/// The same with a later time, for which the entry of the first life is used again.
class second_life_later : public timer_scene {
 public:
  second_life_later() : timer_(start(second)) {}
  void run(std::size_t i) override {
    if (i == 0) {
      this_processor = 1;
      detail::destroy_timer(*timer_);
      before_ = fired_;
      timer_ = start(10 * second);
    } else {
      check(0, 2 * second);
    }
  }
  void finish() override {
    require(fired_ == before_, "the new timer was not due");
    check(1, 11 * second);
    check(0, 11 * second);
    require(fired_ == before_ + 1, "it fires once");
    detail::destroy_timer(*timer_);
  }

 private:
  timer_node* timer_;
  int before_ = 0;
};

/// Put off, then earlier again, while its entry is moved.
class moved_and_reset : public timer_scene {
 public:
  moved_and_reset() : timer_(start(second)) { detail::reset_timer_after(timer_, 100 * second); }
  void run(std::size_t i) override {
    if (i == 0) {
      this_processor = 1;
      detail::reset_timer_after(timer_, 5 * second);
    } else {
      check(0, 2 * second);  // the entry comes up, and goes to where its timer is
    }
  }
  void finish() override {
    require(fired_ == 0, "it is not due");
    check(0, 6 * second);
    check(1, 6 * second);
    require(fired_ == 1, "it fires at its new time, and not at that of the moved entry");
    detail::destroy_timer(*timer_);
  }

 private:
  timer_node* timer_;
};

/// A ticker is stopped while it fires; it is armed again by the firing.
class ticker_and_stop : public timer_scene {
 public:
  ticker_and_stop() {
    timer_ = &detail::make_func_timer<detail::periodic_payload_bytes>(host_.timers(), tick{this});
    host_.timers().start(*timer_, host_.timers().deadline(second), second);
  }
  void run(std::size_t i) override {
    if (i == 0) {
      detail::stop_timer(timer_);
      at_stop_ = 1;
    } else {
      check(0, 2 * second);
    }
  }
  void finish() override {
    const int before = fired_;
    check(0, 10 * second);
    require(fired_ == before, "no tick after the stop");
    detail::destroy_timer(*timer_);
  }

 private:
  struct tick {
    ticker_and_stop* of;
    void operator()() const { ++of->fired_; }
  };
  timer_node* timer_ = nullptr;
  int at_stop_ = 0;
};

/// The function starts its own timer again, and the handle ends meanwhile.
class again_and_end : public timer_scene {
 public:
  again_and_end() { timer_ = detail::start_func_timer(host_.timers(), second, again{this}, 0); }
  void run(std::size_t i) override {
    if (i == 0) {
      detail::destroy_timer(*timer_);
      at_end_ = fired_;
    } else {
      check(0, 2 * second);
    }
  }
  void finish() override {
    check(0, 100 * second);
    require(fired_ == at_end_, "no call after the end of the handle");
  }

 private:
  /// Trivial, so that its end has nothing to destroy.
  struct again {
    again_and_end* of;
    void operator()() const {
      detail::reset_timer_after(of->timer_, 10 * second);
      ++of->fired_;
    }
  };
  timer_node* timer_ = nullptr;
  int at_end_ = 0;
};

/// A processor is added while others look at all of them.
class growing : public timer_scene {
 public:
  growing() : timer_(start(100 * second)) { detail::stop_timer(timer_); }
  void run(std::size_t i) override {
    if (i == 0) {
      host_.engine().grow(3);
    } else {
      host_.engine().tidy_before_sleep(2);
      host_.engine().bytes();
    }
  }
  void finish() override { detail::destroy_timer(*timer_); }

 private:
  timer_node* timer_;
};

}  // namespace

std::vector<scene_kind> timer_scenes() {
  return {
      kind<stop_or_fire>("hybrid, stop or fire", 2, 1),
      kind<stop_and_stop>("hybrid, stop and stop", 3),
      kind<end_or_fire>("hybrid, end or fire", 2, 1),
      kind<put_off_or_fire>("hybrid, put off or fire", 2, 1),
      kind<start_and_check>("hybrid, start and check", 2, 1),
      kind<earlier_elsewhere>("hybrid, earlier elsewhere", 2, 1),
      kind<second_life>("hybrid, a second life", 2, 1),
      kind<second_life_later>("hybrid, a second life later", 2, 1),
      kind<moved_and_reset>("hybrid, moved and reset", 2, 1),
      kind<ticker_and_stop>("hybrid, ticker and stop", 2, 1),
      kind<again_and_end>("hybrid, again and end", 2, 1),
      kind<growing>("hybrid, growing", 2, 1),
  };
}

}  // namespace verge::orders
