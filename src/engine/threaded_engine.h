// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include <engine/engine.h>
#include <engine/queue_thread.h>
#include <queue/heap_queue.h>
#include <queue/simple_wheel.h>
#include <queue/timing_wheel.h>

/// The engines with threads of their own: one queue of a kind, or several, each with its thread.
///
/// Timers do not live in processors here, so the scheduler finds nothing to check and no time to
/// sleep until. A timer stays with the queue that it was first put on.
namespace verge::detail {

template <class Queue, unsigned Queues>
class threaded_engine : public timer_engine {
 public:
  template <class... Args>
  explicit threaded_engine(engine_host& host, const Args&... args) : host_(host) {
    for (auto& q : queues_) q = std::make_unique<queue>(host, args...);
  }

  node_layout layout() const noexcept override { return node_layout::of<node>(); }
  timer_node* construct(void* memory) noexcept override { return ::new (memory) node; }

  void start(timer_node& t, std::int64_t when, std::int64_t period) override {
    node& n = static_cast<node&>(t);
    if constexpr (Queues > 1) n.on = queues_[host_.home_processor() % Queues].get();
    queue_of(n).insert(n, when, period);
  }
  bool stop(timer_node& t) noexcept override {
    node& n = static_cast<node&>(t);
    return queue_of(n).erase(n);
  }
  bool reset(timer_node& t, std::int64_t when, std::int64_t period) override {
    node& n = static_cast<node&>(t);
    return queue_of(n).insert(n, when, period);
  }

  timer_check check_timers(unsigned p, std::int64_t now, bool /*own*/) noexcept override {
    if (!host_.simulated() || p != 0) return {.now = now, .next = 0, .ran = 0};
    unsigned ran = 0;
    for (auto& q : queues_) ran += q->run_due(now);
    return {.now = now, .next = next_exactly(0), .ran = ran};
  }
  std::int64_t next_when(unsigned /*p*/) const noexcept override { return 0; }
  std::int64_t next_exactly(unsigned /*p*/) noexcept override {
    std::int64_t first = 0;
    for (auto& q : queues_) {
      const std::int64_t next = q->next_exactly();
      if (next != 0 && (first == 0 || next < first)) first = next;
    }
    return first;
  }
  void grow(unsigned /*n*/) override {}
  void move_timers(unsigned /*from*/, unsigned /*to*/) noexcept override {}
  void drain() noexcept override {
    for (auto& q : queues_) q->drain();
  }

  /// By queue: processor p's figures are those of queue p, as long as there are that many.
  timer_counts counts(unsigned p) const noexcept override {
    return {.live = p < Queues ? queues_[p]->size() : 0, .deleted = 0};
  }
  void for_each_pending(void (*f)(void*, const timer_node&, std::int64_t),
                        void* arg) const override {
    for (const auto& q : queues_) q->for_each(f, arg);
  }
  std::size_t bytes() const noexcept override {
    std::size_t sum = 0;
    for (const auto& q : queues_) sum += q->bytes();
    return sum;
  }
  std::string verify() const override {
    for (const auto& q : queues_) {
      if (std::string wrong = q->verify(); !wrong.empty()) return wrong;
    }
    return "";
  }

 private:
  using queue = queue_thread<Queue>;

  struct on_the_only_one {};
  struct on_one_of_many {
    queue* on{nullptr};
  };
  struct node : queue::node, std::conditional_t<Queues == 1, on_the_only_one, on_one_of_many> {};

  queue& queue_of(const node& n) const noexcept {
    if constexpr (Queues == 1) {
      return *queues_[0];
    } else {
      return *n.on;
    }
  }

  engine_host& host_;
  std::array<std::unique_ptr<queue>, Queues> queues_;
};

/// Go up to 1.9: one heap under one lock, and one thread.
using global_heap = threaded_engine<heap_queue, 1>;
/// Go 1.10 to 1.13: sixty-four of them, by processor.
using sharded_heap = threaded_engine<heap_queue, 64>;
/// A ring of buckets with a hand that comes by at every tick.
using simple_wheel_engine = threaded_engine<simple_wheel, 1>;
/// Kafka's wheels of wheels with a delay queue.
using timing_wheel_engine = threaded_engine<timing_wheel, 1>;

}  // namespace verge::detail
