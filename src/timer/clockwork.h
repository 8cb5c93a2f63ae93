#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include <engine/engine.h>
#include <memory/slab_pool.h>
#include <verge/detail/scheduling.h>
#include <verge/detail/timer_node.h>

/// A runtime's timers: the engine, the memory of the nodes, and the clock they go by.
///
/// A node's clockwork is found from the node's address, so a handle is one pointer. A clockwork
/// outlives its runtime for as long as handles to its timers are about: they can be stopped and
/// destroyed as before, and only refuse to be started again.
namespace verge::detail {

class [[gnu::visibility("hidden")]] clockwork {
 public:
  clockwork(std::unique_ptr<engine> e, scheduler & s, engine_host & host);
  clockwork(const clockwork&) = delete;
  clockwork& operator=(const clockwork&) = delete;

  static clockwork& of(const timer_node& t) noexcept;

  /// A node with one reference, the caller's, that does nothing yet. Throws std::bad_alloc, and
  /// std::logic_error once the runtime has ended.
  timer_node& make();
  /// Gives a node back whose payload has ended.
  void free(timer_node & t) noexcept;
  /// Ends the payload of a node that nobody refers to any more, and gives it back.
  void bury(timer_node & t) noexcept {
    if (auto* destroy = t.does.load(std::memory_order_acquire)->destroy) destroy(t);
    free(t);
  }
  /// Drops a reference.
  void release(timer_node & t) noexcept {
    if (t.refs.fetch_sub(1, std::memory_order_acq_rel) == 1) bury(t);
  }

  /// The time `d` nanoseconds from now, or up to `slack` after it.
  std::int64_t deadline(std::int64_t d, std::int64_t slack = 0) noexcept;
  std::int64_t now() noexcept { return host_.now(); }
  /// The same for a timer that is due at `when` and delivers the time: not before this moment.
  std::int64_t deadline_at(std::int64_t when) noexcept;

  void start(timer_node & t, std::int64_t when, std::int64_t period) {
    refuse_if_ended();
    engine_->start(t, when, period);
  }
  bool stop(timer_node & t) noexcept { return engine_->stop(t); }
  bool retire(timer_node & t) noexcept { return engine_->retire(t); }
  bool reset(timer_node & t, std::int64_t when, std::int64_t period) {
    refuse_if_ended();
    return engine_->reset(t, when, period);
  }

  engine& its_engine() noexcept { return *engine_; }
  scheduler& home() noexcept { return scheduler_; }
  slab_stats memory() const noexcept { return nodes_.stats(); }

  /// The runtime ends: no timer fires any more. Deletes the clockwork now, or when the last handle
  /// has gone. Nothing else may use it at the same time.
  void end() noexcept;
  void refuse_if_ended() const {
    if (ended_.load(std::memory_order_relaxed)) [[unlikely]]
      throw_ended();
  }
  bool ended() const noexcept { return ended_.load(std::memory_order_relaxed); }
  /// In the child of a fork: the threads are gone, and locks may be held for ever.
  void lost_in_fork() noexcept { forked_.store(true, std::memory_order_relaxed); }
  bool forked() const noexcept { return forked_.load(std::memory_order_relaxed); }

 private:
  ~clockwork() = default;
  [[noreturn]] static void throw_ended();
  void drop() noexcept;
  std::int64_t cheap_now() noexcept;

  std::unique_ptr<engine> engine_;
  struct node_pool : slab_pool {
    node_pool(std::size_t size, clockwork* c) : slab_pool(size), of(c) {}
    clockwork* const of;
  };
  node_pool nodes_;
  scheduler& scheduler_;
  engine_host& host_;
  const bool in_real_time_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> forked_{false};
  /// Counted only once ended_: nodes that are still referred to, and one for end() itself.
  std::atomic<std::size_t> left_{0};
};

inline clockwork& clockwork::of(const timer_node& t) noexcept {
  return *static_cast<node_pool&>(slab_pool::owner(&t)).of;
}

}  // namespace verge::detail
