// SPDX-License-Identifier: Apache-2.0

// Locks, notes, and the agreement of two threads that each store first and then look.

#include <orders/scene.h>

#include <base/futex.h>
#include <base/turn_lock.h>
#include <sched/poll_turn.h>
#include <verge/detail/lock.h>

#include <atomic>
#include <cstddef>
#include <mutex>

namespace verge::orders {
namespace {

using detail::note;
using detail::short_lock;

/// What a lock is for: a number that is not atomic. Three threads sleep for one lock.
template <class Lock, std::size_t Threads, int Times>
class counting : public scene_of<Threads> {
 public:
  void run(std::size_t /*i*/) override {
    for (int n = 0; n < Times; ++n) {
      const std::lock_guard held(lock_);
      ++count_;
    }
  }
  void finish() override {
    require(count_ == static_cast<int>(Threads) * Times, "each has counted");
    require(!lock_.taken(), "it is free in the end");
  }

 private:
  Lock lock_;
  int count_ = 0;
};

/// try_lock, of which one may fail.
class trying : public scene_of<2> {
 public:
  void run(std::size_t /*i*/) override {
    for (int n = 0; n < 2; ++n) {
      if (!lock_.try_lock()) continue;
      ++count_;
      lock_.unlock();
    }
  }
  void finish() override { require(count_ >= 2 && count_ <= 4, "no count is lost"); }

 private:
  short_lock lock_;
  int count_ = 0;
};

/// One thread takes the lock again and again, and lets others in.
class pieces : public scene_of<2> {
 public:
  void run(std::size_t i) override {
    if (i == 1) {
      const std::lock_guard held(lock_);
      ++count_;
      return;
    }
    for (int n = 0; n < 2; ++n) {
      {
        const std::lock_guard held(lock_);
        ++count_;
      }
      lock_.let_others_in();
    }
  }
  void finish() override { require(count_ == 3, "each has counted"); }

 private:
  detail::turn_lock lock_;
  int count_ = 0;
};

/// A note carries what was written before it was left. Twice: it can be used again.
class letters : public scene_of<2> {
 public:
  void run(std::size_t i) override {
    if (i == 0) {
      text_ = 1;
      there_.leave();
      back_.wait();
      require(text_ == 2, "the answer");
    } else {
      there_.wait();
      require(text_ == 1, "the letter");
      text_ = 2;
      back_.leave_surely();
    }
  }

 private:
  note there_, back_;
  int text_ = 0;
};

/// Two threads leave the same note; the waiting one sees what one of them wrote, and does not
/// sleep on.
class two_letters : public scene_of<3> {
 public:
  void run(std::size_t i) override {
    if (i == 2) {
      there_.wait();
      require(
          text_[0].load(std::memory_order_relaxed) + text_[1].load(std::memory_order_relaxed) != 0,
          "one of the letters");
      return;
    }
    text_[i].store(1, std::memory_order_relaxed);
    if (i == 0) {
      there_.leave();
    } else {
      there_.leave_surely();
    }
  }

 private:
  note there_;
  std::atomic<int> text_[2] = {0, 0};
};

/// A wait with a limit: true only if the note was left, and then with what was written.
class impatient : public scene_of<2> {
 public:
  void run(std::size_t i) override {
    if (i == 0) {
      text_ = 1;
      there_.leave();
    } else if (there_.wait_until(1)) {
      require(text_ == 1, "the letter");
    } else {
      there_.wait();
      require(text_ == 1, "it comes in the end");
    }
  }

 private:
  note there_;
  int text_ = 0;
};

/// No timer is slept past: a worker that goes to sleep sees the timer, or the thread that started
/// it sees the worker (sched/poll_turn.h).
class sleeper_and_timer : public scene_of<2> {
 public:
  void run(std::size_t i) override {
    if (i == 0) {
      require(turn_.try_begin(), "no other has the turn");
      sees_timer_ = timer_.load(std::memory_order_relaxed) != 0;
      if (sees_timer_) turn_.sleeps_until(7);
    } else {
      timer_.store(7, std::memory_order_relaxed);
      detail::full_fence();
      sees_sleeper_ = turn_.until() != 0;
    }
  }
  void finish() override { require(sees_timer_ || sees_sleeper_, "one of the two sees the other"); }

 private:
  detail::poll_turn turn_;
  std::atomic<std::int64_t> timer_{0};
  bool sees_timer_ = false;
  bool sees_sleeper_ = false;
};

/// The turn to poll: one thread at a time, and what it did happens before the next has it.
class turns : public scene_of<2> {
 public:
  void run(std::size_t /*i*/) override {
    for (int n = 0; n < 2; ++n) {
      if (!turn_.try_begin()) continue;
      ++polls_;
      turn_.end(1);
    }
  }
  void finish() override {
    require(polls_ >= 2, "a thread alone has its turns");
    require(turn_.no_worker_sleeps() && !turn_.taken(), "the turn is given back");
  }

 private:
  detail::poll_turn turn_;
  int polls_ = 0;
};

/// The same agreement with all fences on one side: a thread that enters often pays none
/// (base/fence.h).
class one_sided : public scene_of<2> {
 public:
  void run(std::size_t i) override {
    if (i == 0) {
      enters_.store(1, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      sees_end_ = ends_.load(std::memory_order_relaxed) != 0;
    } else {
      ends_.store(1, std::memory_order_relaxed);
      require(detail::fence_all_threads(), "the kernel makes fences");
      sees_entry_ = enters_.load(std::memory_order_relaxed) != 0;
    }
  }
  void finish() override { require(sees_end_ || sees_entry_, "one of the two sees the other"); }

 private:
  std::atomic<int> enters_{0}, ends_{0};
  bool sees_end_ = false;
  bool sees_entry_ = false;
};

}  // namespace

std::vector<scene_kind> lock_scenes() {
  return {
      kind<counting<short_lock, 2, 2>>("short_lock, two threads twice"),
      kind<counting<short_lock, 3, 1>>("short_lock, three threads", 3),
      kind<trying>("short_lock, tried"),
      kind<pieces>("turn_lock, pieces", 3),
      kind<letters>("note, there and back"),
      kind<two_letters>("note, left by two"),
      kind<impatient>("note, with a limit"),
      kind<turns>("poll_turn, two threads"),
      kind<sleeper_and_timer>("poll_turn, sleeper and timer"),
      kind<one_sided>("fence_all_threads"),
  };
}

}  // namespace verge::orders
