// SPDX-License-Identifier: Apache-2.0
// call_world: the calls of one timer under the explorer: firings, workers that run what is queued,
// and the destruction of the handle.
//
// The word (timer/call_count.h) is the real one. Around it is a model of callback.cc: a run queue,
// references, and a waiting destructor.
//
//   overlap     two calls never run at the same time
//   queue       the node is on the run queue at most once
//   lost        each firing has its call, unless the handle was destroyed
//   after       no call begins, and none runs, once the destructor has returned
//   references  all are dropped in the end
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <explorer/explorer.h>
#include <explorer/explorer_policy.h>
#include <timer/call_count.h>

namespace verge::test {

using detail::call_mutant;

/// fire: the engine finds the timer due; work: a worker runs what is queued, until everything has
/// fired and run; destroy: the handle is destroyed.
enum class call_action { fire, work, destroy };

struct call_scenario {
  std::vector<std::vector<call_action>> threads;
};

inline std::string to_text(const call_scenario& s) {
  static constexpr const char* names[] = {"fire", "work", "destroy"};
  std::string text;
  for (const auto& thread : s.threads) {
    if (&thread != &s.threads.front()) text += "|";
    for (const call_action& a : thread) {
      if (&a != &thread.front()) text += ";";
      text += names[static_cast<int>(a)];
    }
  }
  return text;
}

/// 32 bits in a word of which every operation is a step.
class explored_word {
 public:
  std::uint32_t load(std::memory_order o) const { return narrow(value_.load(o)); }
  bool compare_exchange_weak(std::uint32_t& expected, std::uint32_t desired, std::memory_order a,
                             std::memory_order b) {
    std::uint64_t wide = expected;
    const bool done = value_.compare_exchange_weak(wide, desired, a, b);
    expected = narrow(wide);
    return done;
  }
  std::uint32_t fetch_add(std::uint32_t n, std::memory_order o) {
    return narrow(value_.fetch_add(n, o));
  }
  std::uint32_t fetch_sub(std::uint32_t n, std::memory_order o) {
    return narrow(value_.fetch_sub(n, o));
  }
  std::uint32_t fetch_or(std::uint32_t n, std::memory_order o) {
    std::uint64_t seen = value_.peek();
    while (!value_.compare_exchange_strong(seen, seen | n, o, o)) {
    }
    return narrow(seen);
  }
  void reset() { value_.reset(0); }

 private:
  static std::uint32_t narrow(std::uint64_t v) { return static_cast<std::uint32_t>(v); }
  explored_atomic<std::uint64_t> value_{0};
};

template <call_mutant Mutation = call_mutant::none>
class call_world final : public program, public watcher {
 public:
  using calls = detail::call_count<explored_word, Mutation>;

  call_world(explorer& e, const call_scenario& s) : explorer_(e), scenario_(s) {}

  [[nodiscard]] std::size_t threads() const override { return scenario_.threads.size(); }

  void prepare() override {
    watcher::now = this;
    word_.reset();
    queued_.reset(0);
    waiting_.reset(false);
    to_fire_ = count(call_action::fire);
    references_ = 1;  // the handle's
    made_ = 0;
    running_ = false;
    closed_ = false;
  }

  void run(std::size_t i) override {
    for (const call_action a : scenario_.threads[i]) {
      switch (a) {
        case call_action::fire:
          fire();
          break;
        case call_action::work:
          work();
          break;
        case call_action::destroy:
          destroy();
          break;
      }
    }
  }
  void inspect() override {}

  void finish() override {
    const std::uint64_t fired = count(call_action::fire);
    const bool has_handle = count(call_action::destroy) == 0;
    if (has_handle && made_ != fired) {
      explorer_.fail("lost",
                     std::to_string(fired) + " firings, " + std::to_string(made_) + " calls");
    }
    if (references_ != (has_handle ? 1 : 0)) {
      explorer_.fail("references", std::to_string(references_) + " are left");
    }
  }

  std::string name_of(const void* p) override {
    if (p == &queued_) return "the queue";
    if (p == &waiting_) return "the waiting thread";
    return "the word";
  }

 private:
  [[nodiscard]] std::uint64_t count(call_action a) const {
    std::uint64_t n = 0;
    for (const auto& thread : scenario_.threads)
      n += static_cast<std::uint64_t>(std::count(thread.begin(), thread.end(), a));
    return n;
  }

  void fire() {
    ++references_;
    switch (calls(word_).add()) {
      case calls::added::queue:
        ready();
        break;
      case calls::added::counted:
        break;
      case calls::added::refused:
        release();
        break;
    }
    --to_fire_;
    poke();
  }

  void ready() {
    if (queued_.fetch_add(1, std::memory_order_relaxed) != 0) {
      explorer_.fail("queue", "the node is queued a second time");
    }
  }

  /// Runs what is queued. Ends when nothing more will be queued.
  void work() {
    for (;;) {
      std::uint64_t one = queued_.load();
      if (one != 0) {
        if (queued_.compare_exchange_strong(one, 0, std::memory_order_relaxed,
                                            std::memory_order_relaxed)) {
          run_one();
        }
      } else if (to_fire_ == 0 && references_ <= idle_references()) {
        return;
      } else {
        explorer_.yield();
      }
    }
  }
  /// Of a node that is neither queued nor running.
  [[nodiscard]] int idle_references() const {
    return count(call_action::destroy) != 0 && closed_ ? 0 : 1;
  }

  void run_one() {
    if (calls(word_).begin()) {
      if (running_) explorer_.fail("overlap", "a call begins while another one runs");
      if (closed_) explorer_.fail("after", "a call begins after the handle's destructor");
      running_ = true;
      explorer_.point();  // it takes its time
      running_ = false;
      ++made_;
    }
    const auto ended = calls(word_).end();
    if (ended.wake) waiting_.store(false);
    if (ended.queue) ready();
    release();
  }

  void destroy() {
    bool runs = calls(word_).close();
    while (runs) {
      waiting_.store(true);
      if (!calls(word_).ask()) break;
      while (waiting_.load()) explorer_.yield();
      runs = calls(word_).runs();
    }
    if (running_) explorer_.fail("after", "the destructor returns while a call runs");
    closed_ = true;
    release();
  }

  void release() {
    if (--references_ < 0) explorer_.fail("references", "dropped once too often");
    poke();
  }
  /// Lets workers check again whether they are finished.
  void poke() { queued_.fetch_add(0, std::memory_order_relaxed); }

  explorer& explorer_;
  const call_scenario& scenario_;
  explored_word word_;
  explored_atomic<std::uint64_t> queued_{0};
  explored_atomic<bool> waiting_{false};
  std::uint64_t to_fire_ = 0;
  int references_ = 0;
  std::uint64_t made_ = 0;
  bool running_ = false;
  bool closed_ = false;
};

}  // namespace verge::test
