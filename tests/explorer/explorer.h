// SPDX-License-Identifier: Apache-2.0
// explorer: runs a small concurrent program under every schedule.
//
// The program's threads are fibers. Each of their atomic steps (a load, a store, a
// compare-and-swap, taking a lock) is announced before it is made (point()); there the explorer
// decides which thread continues. It repeats the program from the start, each time with another
// sequence of decisions, depth first, until all have been tried: with any number of preemptions, or
// with a limited number (switches away from a thread that could have continued).
//
// These rules keep the number of schedules finite, and lose none that matters:
//   - A thread that waits for a lock is not chosen until the lock is free.
//   - A thread that yields has read something and found that it must wait. It is not chosen again
//     until the place that it read last is written to: before that it would read the same value and
//     yield again, without any effect.
// If no thread can be chosen and not all have finished, that is a deadlock, or two threads that
// wait for each other by yielding; both are reported.
//
// Steps may say what they access. Two that access different places, or only read, can be exchanged
// without any effect, and of the schedules that differ by such exchanges one is enough: sleep sets
// leave out the others. A thread whose step has been tried here "sleeps" in the branches tried
// after that, until a step is made that cannot be exchanged with its own; if only sleeping threads
// could continue, everything from here on has been seen, and the schedule just runs to its end. Not
// with a bound on preemptions, which the exchanged schedule may exceed.
//
// A step is more than its access: it goes on to the thread's next one, and what it changes
// meanwhile may be seen by others. A program whose steps do that says afterwards what each has
// touched (touches()), its own notes included: whatever a check reads. Every state that can be
// reached is reached all the same, so that inspect() sees each.
//
// Steps happen one after the other, as if every atomic were sequentially consistent. What a weaker
// memory model allows besides is explored if the atomics say so: weak_memory.h.
//
// A failure carries its schedule: one digit per step, the thread that made it. Given a schedule,
// the explorer runs only that and describes each step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <explorer/fiber.h>

namespace verge::test {

/// What the explorer runs.
class program {
 public:
  virtual ~program() = default;
  [[nodiscard]] virtual std::size_t threads() const = 0;
  /// Builds the initial state, before every schedule.
  virtual void prepare() = 0;
  /// What thread `i` does.
  virtual void run(std::size_t i) = 0;
  /// Called after every step.
  virtual void inspect() = 0;
  /// Called when all threads have finished.
  virtual void finish() = 0;
};

struct failure {
  /// The name of the check.
  std::string check;
  std::string detail;
  std::string schedule;
  std::string story;
};

struct outcome {
  /// Without those that sleep sets have cut short.
  std::uint64_t schedules = 0;
  std::uint64_t steps = 0;
  std::optional<failure> failed;
};

inline constexpr int any_number = std::numeric_limits<int>::max();

/// What a step accesses. No place: it may concern everything, unless the program tells.
struct access {
  const void* place = nullptr;
  bool writes = true;
  bool is_told = false;  ///< by touches(), while the step is made
  [[nodiscard]] bool independent_of(const access& other) const {
    if (place == nullptr || other.place == nullptr) return false;
    return place != other.place || (!writes && !other.writes);
  }
};

/// What a step has touched: a bit for each part of the program's state, by numbers of its own,
/// which are the same in every schedule.
struct footprint {
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  [[nodiscard]] bool independent_of(const footprint& other) const {
    return (writes & (other.reads | other.writes)) == 0 && (other.writes & reads) == 0;
  }
};

class explorer {
 public:
  static constexpr std::size_t most_threads = 4;
  static constexpr std::size_t most_steps = 2000;
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  /// Runs p under all schedules with a limited number of preemptions; stops at the first failure.
  outcome explore(program& p, int preemptions = any_number) {
    outcome result;
    path_.clear();
    bound_ = preemptions;
    replay_ = nullptr;
    do {
      fresh_from_ = path_.empty() ? 0 : path_.size() - 1;
      execute(p);
      if (!coasting_) ++result.schedules;
      result.steps += step_;
      if (failed_) {
        result.failed = std::move(failed_);
        const auto again = replay(p, result.failed->schedule);
        result.failed->story = again.failed ? again.failed->story : "the replay did not fail";
        break;
      }
    } while (backtrack());
    return result;
  }

  /// Runs p under one schedule and describes each step, whether it fails or not.
  outcome replay(program& p, const std::string& schedule) {
    outcome result;
    path_.clear();
    bound_ = any_number;
    replay_ = &schedule;
    fresh_from_ = 0;
    execute(p);
    replay_ = nullptr;
    result.schedules = 1;
    result.steps = step_;
    result.failed = std::move(failed_);
    if (result.failed) result.failed->story = story_;
    return result;
  }

  [[nodiscard]] const std::string& story() const { return story_; }

  // For the program while it runs.

  /// The explorer whose threads are running; null outside schedules, when steps are made directly.
  static explorer* active() { return active_; }

  /// The thread is about to make a step.
  void point(access a = {}) { wait_for({}, a); }

  /// A choice between n possibilities that is not about threads: which of several stores a load
  /// reads, say. All are tried; 0 comes first. It counts as a step, and in the schedule it is a
  /// letter.
  std::size_t choose_one_of(std::size_t n) {
    if (n <= 1) return 0;
    if (step_ >= path_.size()) {
      decision d{};
      d.count = static_cast<std::uint8_t>(coasting_ ? 1 : n);
      d.preemptions = preemptions_;
      if (replay_ != nullptr && step_ < replay_->size()) {
        d.chosen = static_cast<std::uint8_t>((*replay_)[step_] - 'a');
        if (d.chosen >= n) fail("schedule", "it does not fit this scenario");
      }
      path_.push_back(d);
    }
    const std::size_t chosen = path_[step_].chosen;
    ++step_;
    schedule_ += static_cast<char>('a' + chosen);
    return chosen;
  }

  /// As point(), for a step that can be made once `taken` is false.
  void lock_point(const bool& taken, access a = {}) {
    wait w;
    w.taken = &taken;
    wait_for(w, a);
  }

  /// The step that is being made touches these parts of the program's state.
  void touches(footprint f) {
    made_.reads |= f.reads;
    made_.writes |= f.writes;
  }

  /// The thread has read the place whose writes `stamp` counts.
  void looked_at(const std::uint32_t& stamp) {
    threads_[current_].looked = &stamp;
    threads_[current_].seen = stamp;
  }

  /// The thread cannot continue before the place it read last has been written to.
  void yield() {
    wait w;
    w.stamp = threads_[current_].looked;
    w.seen = threads_[current_].seen;
    threads_[current_].pending = w;
    // The next read is the step; it will announce itself, and this must not count as another.
    threads_[current_].yielded = true;
  }

  [[nodiscard]] std::size_t current() const { return current_; }
  /// The number of the current step, from 1.
  [[nodiscard]] std::size_t step() const { return step_; }

  /// Reports a failure. Does not return: the schedule ends here.
  [[noreturn]] void fail(std::string check, std::string detail) {
    if (!failed_) {
      failed_ = failure{std::move(check), std::move(detail), schedule_, {}};
    }
    if (in_fiber_) {
      in_fiber_ = false;
      fiber::switch_to(threads_[current_].stack, main_);
      std::abort();
    }
    throw abandoned{};
  }

  /// Returns whether the output of tell() is used.
  [[nodiscard]] bool telling() const { return replay_ != nullptr; }
  void tell(const std::string& what) {
    story_ += "  step " + std::to_string(step_) + ", thread " + std::to_string(current_) + ": " +
              what + "\n";
  }

 private:
  struct abandoned {};
  /// What a thread waits for before it can make its step; all null: nothing.
  struct wait {
    const bool* taken = nullptr;
    const std::uint32_t* stamp = nullptr;
    std::uint32_t seen = 0;
    [[nodiscard]] bool over() const {
      return (taken == nullptr || !*taken) && (stamp == nullptr || *stamp != seen);
    }
  };
  struct thread {
    fiber stack;
    bool done = true;
    bool yielded = false;
    wait pending;
    access step;  ///< that it makes next
    const std::uint32_t* looked = nullptr;
    std::uint32_t seen = 0;
  };
  /// One decision: the threads that could continue, in the order of trying, and the current choice.
  struct decision {
    std::uint8_t order[most_threads];
    std::uint8_t count;
    std::uint8_t chosen;
    bool could_stay;
    bool coasts;        ///< only sleeping threads could continue
    unsigned sleeping;  ///< a bit for each thread
    int preemptions;
    footprint made[most_threads];  ///< by the step of each thread that sleeps or was tried
  };

  void execute(program& p) {
    program_ = &p;
    step_ = 0;
    decided_ = none;
    preemptions_ = 0;
    sleeping_ = 0;
    coasting_ = false;
    failed_.reset();
    story_.clear();
    schedule_.clear();
    active_ = nullptr;
    try {
      p.prepare();
      run_threads();
      active_ = nullptr;
      if (!failed_) p.finish();
    } catch (const abandoned&) {
    }
    active_ = nullptr;
  }

  void run_threads() {
    active_ = this;
    // Each up to its first step.
    starting_ = true;
    for (std::size_t i = 0; i < program_->threads() && !failed_; ++i) {
      thread& t = threads_[i];
      t.done = t.yielded = false;
      t.pending = {};
      t.step = {};
      t.looked = nullptr;
      current_ = i;
      t.stack.start(&thread_main, this);
      enter(i);
    }
    starting_ = false;
    if (failed_) return;
    current_ = most_threads;
    const std::size_t first = choose();
    if (first != most_threads) enter(first);
  }

  void enter(std::size_t i) {
    current_ = i;
    in_fiber_ = true;
    fiber::switch_to(main_, threads_[i].stack);
    in_fiber_ = false;
  }

  static void thread_main(void* self) {
    auto& e = *static_cast<explorer*>(self);
    const std::size_t me = e.current_;
    e.program_->run(me);
    e.threads_[me].done = true;
    if (e.step_ > e.fresh_from_) e.program_->inspect();
    const std::size_t next = e.starting_ ? most_threads : e.choose();
    e.go_to(me, next);
    std::abort();
  }

  void wait_for(wait w, access a) {
    const std::size_t me = current_;
    thread& t = threads_[me];
    t.step = a;
    if (t.yielded) {
      t.yielded = false;  // waits for what yield() said
    } else {
      t.pending = w;
    }
    std::size_t next = most_threads;
    if (!starting_) {
      if (step_ > fresh_from_) program_->inspect();
      next = choose();
    }
    if (next != me) go_to(me, next);
  }

  /// most_threads: back to the caller that started the threads.
  void go_to(std::size_t me, std::size_t next) {
    if (next == most_threads) {
      in_fiber_ = false;
      fiber::switch_to(threads_[me].stack, main_);
    } else {
      current_ = next;
      fiber::switch_to(threads_[me].stack, threads_[next].stack);
    }
  }

  /// The thread that makes the next step. most_threads if all have finished.
  std::size_t choose() {
    decision* d = nullptr;
    if (step_ < path_.size()) {
      d = &path_[step_];
    } else {
      settle();
      path_.push_back(look_around());
      d = &path_.back();
      if (d->count == 0) {
        path_.pop_back();
        for (std::size_t i = 0; i < program_->threads(); ++i) {
          if (!threads_[i].done) {
            fail("deadlock", "thread " + std::to_string(i) + " waits and no thread can continue");
          }
        }
        return most_threads;
      }
      if (path_.size() > most_steps) fail("no end", "more steps than any schedule should have");
    }
    const std::size_t next = d->order[d->chosen];
    if (next >= program_->threads() || threads_[next].done || !threads_[next].pending.over()) {
      fail("repetition", "the program does not do the same when it is run again");
    }
    coasting_ = coasting_ || d->coasts;
    decided_ = step_;
    step_made_ = threads_[next].step;
    made_ = {};
    preemptions_ = d->preemptions + (d->could_stay && d->chosen != 0 ? 1 : 0);
    ++step_;
    schedule_ += static_cast<char>('0' + next);
    return next;
  }

  /// A step has been made, and what it touched is known. Those that had been tried in its place
  /// sleep now, and those that slept, unless it has woken them.
  void settle() {
    sleeping_ = 0;
    if (bound_ != any_number || replay_ != nullptr || decided_ == none) return;
    decision& d = path_[decided_];
    const std::size_t me = d.order[d.chosen];
    d.made[me].reads |= made_.reads;
    d.made[me].writes |= made_.writes;
    unsigned candidates = d.sleeping;
    for (std::size_t i = 0; i < d.chosen; ++i) candidates |= 1U << d.order[i];
    for (std::size_t i = 0; i < program_->threads(); ++i) {
      if ((candidates >> i & 1) != 0 && is_independent(i, d.made[i])) sleeping_ |= 1U << i;
    }
  }

  /// Whether thread i's next step, which touches `its`, can be exchanged with the one just made.
  [[nodiscard]] bool is_independent(std::size_t i, const footprint& its) const {
    const access& step = threads_[i].step;
    if (step.is_told && step_made_.is_told) return its.independent_of(made_);
    return step.independent_of(step_made_);
  }

  decision look_around() {
    decision d{};
    d.preemptions = preemptions_;
    d.sleeping = sleeping_;
    if (sleeping_ != 0) std::copy_n(path_[decided_].made, most_threads, d.made);
    for (std::size_t i = 0; i < most_threads; ++i) {
      if ((sleeping_ >> i & 1) == 0) d.made[i] = {};
    }
    const auto ready = [&](std::size_t i) {
      return !threads_[i].done && threads_[i].pending.over();
    };
    if (replay_ != nullptr && step_ < replay_->size()) {
      const auto told = static_cast<std::size_t>((*replay_)[step_] - '0');
      if (told >= program_->threads() || !ready(told)) {
        fail("schedule", "it does not fit this scenario at step " + std::to_string(step_ + 1));
      }
      d.order[d.count++] = static_cast<std::uint8_t>(told);
      return d;
    }
    if (sleeping_ != 0 || coasting_) return look_around_sleepers(d, ready);
    if (current_ != most_threads && ready(current_)) {
      d.could_stay = true;
      d.order[d.count++] = static_cast<std::uint8_t>(current_);
      if (preemptions_ >= bound_) return d;
    }
    for (std::size_t i = 0; i < program_->threads(); ++i) {
      if (i != current_ && ready(i)) d.order[d.count++] = static_cast<std::uint8_t>(i);
    }
    return d;
  }

  template <class Ready>
  decision look_around_sleepers(decision d, Ready ready) {
    // The current thread first, as below.
    const std::size_t n = program_->threads();
    std::size_t asleep = most_threads;
    for (std::size_t k = 0; k < n; ++k) {
      const std::size_t i = current_ < n ? (current_ + k) % n : k;
      if (!ready(i)) continue;
      if ((sleeping_ >> i & 1) == 0) {
        d.order[d.count++] = static_cast<std::uint8_t>(i);
      } else if (asleep == most_threads) {
        asleep = i;
      }
    }
    if (d.count == 0 && asleep != most_threads) {
      d.coasts = true;
      d.order[d.count++] = static_cast<std::uint8_t>(asleep);
    }
    if (coasting_ && d.count > 1) d.count = 1;
    return d;
  }

  /// The next path in depth-first order; false if this was the last.
  bool backtrack() {
    while (!path_.empty()) {
      decision& d = path_.back();
      if (++d.chosen < d.count) return true;
      path_.pop_back();
    }
    return false;
  }

  inline static explorer* active_ = nullptr;
  program* program_ = nullptr;
  fiber main_;
  thread threads_[most_threads];
  std::vector<decision> path_;
  /// Steps before this one were made, and inspected, in the previous schedule.
  std::size_t fresh_from_ = 0;
  std::size_t step_ = 0;
  /// The decision that led to the step being made, that step, and what it has touched so far.
  std::size_t decided_ = none;
  access step_made_;
  footprint made_;
  std::size_t current_ = 0;
  int bound_ = any_number;
  int preemptions_ = 0;
  unsigned sleeping_ = 0;
  bool coasting_ = false;
  bool starting_ = false;
  bool in_fiber_ = false;
  std::optional<failure> failed_;
  std::string schedule_;
  const std::string* replay_ = nullptr;
  std::string story_;
};

}  // namespace verge::test
