// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include <engine/dead_nodes.h>
#include <engine/engine.h>
#include <engine/ten_states/state_machine.h>
#include <memory/slab_pool.h>
#include <verge/detail/lock.h>

/// The engine of Go 1.14 to 1.22: a 4-ary heap per processor, lazy removal, the ten-state machine.
///
/// Any thread stops or resets a timer by changing its state; the thread that has the lock of the
/// heap next does the rest. A timer is inserted into the heap of the caller's processor. Driven by
/// the scheduler: check_timers runs what is due, for the processor itself or for a thief.
namespace verge::detail {

class processor_heap final : public timer_engine {
 public:
  explicit processor_heap(engine_host& host) : host_(host) {}

  node_layout layout() const noexcept override { return node_layout::of<node>(); }
  timer_node* construct(void* memory) noexcept override { return ::new (memory) node; }

  void start(timer_node& t, std::int64_t when, std::int64_t period) override;
  bool stop(timer_node& t) noexcept override;
  left_with stop_for_good(timer_node& t, bool& was_waiting) noexcept override;
  bool reset(timer_node& t, std::int64_t when, std::int64_t period) override;

  timer_check check_timers(unsigned p, std::int64_t now, bool own) noexcept override;
  std::int64_t next_when(unsigned p) const noexcept override;
  std::int64_t next_exactly(unsigned p) noexcept override;
  bool tidy_before_sleep(unsigned n) noexcept override;
  void grow(unsigned n) override;
  void move_timers(unsigned from, unsigned to) noexcept override;
  void drain() noexcept override;
  void bury_dead() noexcept override { dead_.bury(); }

  timer_counts counts(unsigned p) const noexcept override;
  void for_each_pending(void (*f)(void*, const timer_node&, std::int64_t),
                        void* arg) const override;
  std::size_t bytes() const noexcept override;
  [[nodiscard]] std::string verify() const override;

 private:
  struct node;
  struct policy {
    template <class T>
    using atomic = std::atomic<T>;
    using lock = short_lock;
    static void yield() noexcept;
    static void wake_net_poller(basic_timers<policy>& ts, std::int64_t when) noexcept;
    static void fired(basic_timers<policy>& ts, basic_timer<policy>& t, std::int64_t now) noexcept;
    static void fire(basic_timer<policy>& t, std::int64_t now) noexcept;
    static void acquire(basic_timer<policy>& t) noexcept;
    static void acquire_new(basic_timers<policy>& ts, basic_timer<policy>& t) noexcept;
    static void release(basic_timer<policy>& t) noexcept;
    static void release_shared(node& n) noexcept;
    [[noreturn]] static void bad_timer(const char* operation, const basic_timer<policy>& t,
                                       timer_state s) noexcept;
  };
  using machine_timer = basic_timer<policy>;

  /// The machine's part comes first, beside the slab's header: on one cache line is all that a
  /// sweep looks at, and all that it writes of a timer that was left to the heap. Such a timer is
  /// marked in the slab's note: no reference but the heap's, no payload to destroy.
  struct node : machine_timer, timer_node {
    static constexpr std::uint32_t left_to_heap = 1;
    std::atomic<std::uint32_t>& note() noexcept { return slab_pool::note(this); }
  };
  static_assert(sizeof(node) + slab_pool::header_bytes == 96,
                "32-byte halves of a line: the first has the header, the state and the owner");

  struct alignas(128) timers : basic_timers<policy> {
    explicit timers(processor_heap& e) noexcept : engine(e) {}

    processor_heap& engine;
    /// Nodes that were left to the heap and that a sweep has taken off. Each timer that is started
    /// here frees one of them into the caller's cache of the slab, where it is the next to be used.
    /// To free all at once would overflow that cache: the rest would move to other processors, and
    /// theirs here, each time from one core's cache to the other's. At most as many as one sweep
    /// takes off. Linked by next_moved; guarded by `lock`.
    machine_timer* spare{nullptr};

    void give_back_one() noexcept;
    void give_back_all() noexcept {
      while (spare != nullptr) give_back_one();
    }
  };

  static std::string verify(const timers& ts);
  static void sweep(timers& ts) noexcept;
  static void tidy(timers& ts) noexcept;
  timers& home() noexcept { return *timers_[host_.home_processor()]; }

  engine_host& host_;
  dead_nodes dead_;  ///< of all heaps: a thread that starts or resets a timer may hold locks
  std::array<std::unique_ptr<timers>, 256> timers_;
};

}  // namespace verge::detail
