// SPDX-License-Identifier: Apache-2.0

// Run queues, and the agreement by which no wake-up is lost.

#include <orders/scene.h>

#include <base/fence.h>
#include <net/poller.h>
#include <sched/idle_set.h>
#include <sched/run_queue.h>

#include <array>
#include <atomic>
#include <cstddef>

namespace verge::orders {
namespace {

using detail::run_queue;
using detail::runnable;

/// What is queued, with something that its maker has written.
struct item : runnable {
  int written = 0;
  std::atomic<int> taken{0};
};

/// An owner with a queue of two or three, and thieves.
template <std::size_t Threads = 2>
class run_queue_scene : public scene_of<Threads> {
 public:
  void finish() override {
    while (runnable* r = queue_.take_next()) took(r);
    while (runnable* r = queue_.take()) took(r);
    while (runnable* r = thief_.take()) took(r);
    while (runnable* r = other_.take()) took(r);
    for (std::size_t i = 0; i < made_; ++i) {
      require(items_[i].taken.load(std::memory_order_relaxed) == 1, "each is taken once");
    }
  }

 protected:
  item& make() {
    item& one = items_[made_++];
    one.written = 1;
    return one;
  }
  void took(runnable* r) {
    if (r == nullptr) return;
    auto& one = static_cast<item&>(*r);
    require(one.written == 1, "what was queued is whole");
    one.written = 2;
    one.taken.fetch_add(1, std::memory_order_relaxed);
  }

  run_queue queue_, thief_, other_;
  std::array<item, 4> items_;
  std::size_t made_ = 0;
};

class owner_and_thief : public run_queue_scene<> {
 public:
  void run(std::size_t i) override {
    if (i == 0) {
      queue_.push(make());
      queue_.push(make());
      took(queue_.take());
      took(queue_.take());
    } else {
      took(thief_.steal_half(queue_, false));
      took(thief_.take());
    }
  }
};

class owner_with_a_batch_and_thief : public run_queue_scene<> {
 public:
  void run(std::size_t i) override {
    if (i == 0) {
      detail::ready_list batch;
      batch.push_back(make());
      batch.push_back(make());
      queue_.push_all(batch);
      took(queue_.take());
    } else {
      took(thief_.steal_half(queue_, false));
      took(thief_.take());
    }
  }
};

class two_thieves : public run_queue_scene<3> {
 public:
  void run(std::size_t i) override {
    if (i == 0) {
      queue_.push(make());
      queue_.push(make());
      took(queue_.take());
    } else {
      took((i == 1 ? thief_ : other_).steal_half(queue_, false));
    }
  }
};

class next_in_turn : public run_queue_scene<> {
 public:
  void run(std::size_t i) override {
    if (i == 0) {
      queue_.push_next(make());
      if (runnable* before = queue_.push_next(make())) queue_.push(*before);
      took(queue_.take_next());
      took(queue_.take());
    } else {
      took(thief_.steal_half(queue_, true));
      took(thief_.steal_half(queue_, true));
    }
  }
};

/// A thief that steals from a thief: what the first one has moved is whole for the second.
class second_hand : public run_queue_scene<> {
 public:
  second_hand() {
    for (int n = 0; n < 3; ++n) queue_.push(make());
  }
  void run(std::size_t i) override {
    if (i == 0) {
      took(thief_.steal_half(queue_, false));
      took(thief_.take());
    } else {
      took(other_.steal_half(thief_, false));
      took(other_.steal_half(queue_, false));
    }
  }
};

/// What moves from the next slot into the ring is not overlooked, also if what came next is taken
/// before what was moved.
template <bool NextFirst>
class never_empty : public run_queue_scene<> {
 public:
  never_empty() { queue_.push_next(make()); }
  void run(std::size_t i) override {
    if (i == 0) {
      runnable* before = queue_.push_next(make());
      queue_.push(*before);
      took(NextFirst ? queue_.take_next() : queue_.take());
    } else {
      require(!queue_.empty(), "something is queued all the time");
    }
  }
};

/// A thread queues something and looks whether a worker spins; the worker stops spinning and looks
/// whether something is queued (sched/live_scheduler.h).
class last_look : public run_queue_scene<> {
 public:
  last_look() {
    const detail::processor p(0, 1);
    idle_.add_locked(p);
    idle_.claim_wakeup();  // the worker that spins
  }
  void run(std::size_t i) override {
    if (i == 0) {
      queue_.push(make());
      detail::full_fence();
      starts_one_ = idle_.claim_wakeup() == detail::idle_set::wakeup::claimed;
    } else {
      idle_.unclaim_wakeup();  // as stop_spinning()
      detail::full_fence();
      finds_it_ = !queue_.empty();
    }
  }
  void finish() override {
    require(starts_one_ || finds_it_, "a worker comes for what was queued");
    run_queue_scene::finish();
  }

 private:
  detail::idle_set idle_;
  bool starts_one_ = false;
  bool finds_it_ = false;
};

/// Threads that break a poll: it returns, and sees what they wrote before.
template <int Breakers>
class poll_and_break : public scene_of<1 + Breakers> {
 public:
  void run(std::size_t i) override {
    if (i != 0) {
      posted_[i].store(1, std::memory_order_relaxed);
      poller_.break_poll();
      return;
    }
    // Until all have come: each break ends a poll, or is merged with one that has yet to end one.
    for (;;) {
      int all = 0;
      for (auto& p : posted_) all += p.load(std::memory_order_relaxed);
      if (all == Breakers) break;
      poller_.poll(-1);
    }
  }

 private:
  detail::poller poller_;
  std::array<std::atomic<int>, Breakers + 1> posted_{};
};

}  // namespace

std::vector<scene_kind> queue_scenes() {
  return {
      kind<owner_and_thief>("run_queue, owner and thief", 3),
      kind<owner_with_a_batch_and_thief>("run_queue, a batch and a thief", 3),
      kind<two_thieves>("run_queue, two thieves", 2, 1),
      kind<next_in_turn>("run_queue, what runs next", 3),
      kind<second_hand>("run_queue, second hand", 3),
      kind<never_empty<false>>("run_queue, never empty"),
      kind<never_empty<true>>("run_queue, moved into the ring"),
      kind<last_look>("idle_set, the last look"),
      kind<poll_and_break<1>>("poller, one breaks"),
      kind<poll_and_break<2>>("poller, two break", 2, 1),
  };
}

}  // namespace verge::orders
