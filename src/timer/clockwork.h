#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include <clock/arithmetic.h>
#include <clock/fast_clock.h>
#include <engine/engine.h>
#include <engine/hybrid.h>
#include <memory/slab_pool.h>
#include <verge/detail/scheduling.h>
#include <verge/detail/timer_node.h>

/// A runtime's timers: the engine, the memory of the nodes, and the clock they go by.
///
/// The default engine is called directly, and so that what it does can be inlined: a million timers
/// are spread over memory, and a processor that waits for the line of one goes on to the next if
/// there are no more than some 150 instructions in between. For the same reason one question,
/// quick(), stands for the usual three: whether the runtime is there, whether this process started
/// it, and whether the engine is that one.
///
/// A node's clockwork is found from the node's address, so a handle is one pointer. A clockwork
/// outlives its runtime for as long as handles to its timers are about: they can be stopped and
/// destroyed as before, and only refuse to be started again. Who started one just as the runtime
/// ended has a timer that will not fire.
///
/// Ground rules for its end, which may meet any other thread in the middle of stopping, resetting
/// or destroying a timer
///  - Who operates on a timer has a reference on its node, and nothing goes while a node is in use:
///    neither the clockwork and its engine, nor what the engine's host is part of (`keep_`). All
///    that needs care is the last thing that is done to a node, which is to free it.
///  - To free a node is a visit to the pool, in which one looks whether the clockwork closes. If it
///    does not, nothing of it is touched after the visit. If it does, the node is freed under a
///    lock that all clockworks share, and counted.
///  - close() says so first, and waits for visits that may not have seen it. From then on nodes are
///    freed under the lock, so end() knows how many are left; who frees the last one deletes the
///    clockwork.
///  - free_at_once() is no visit, for that would cost a tenth of what it takes to end a timer. A
///    thread that had asked quick() just before it closed is the exception to the above: its node
///    counts as in use until its last step, so nothing goes under its feet; and since there is at
///    most one such node per thread, the last few are counted anew each time. (Should that thread
///    be the very last, the clockwork stays.)
namespace verge::detail {

class [[gnu::visibility("hidden")]] clockwork {
 public:
  clockwork(std::unique_ptr<engine> e, scheduler & s, engine_host & host);
  clockwork(const clockwork&) = delete;
  clockwork& operator=(const clockwork&) = delete;

  static clockwork& of(const timer_node& t) noexcept;

  /// A node with one reference, the caller's, that does nothing yet. Throws std::bad_alloc, and
  /// std::logic_error once the runtime has ended.
  timer_node& make() {
    hybrid* const h = quick();
    if (h == nullptr) refuse_if_ended();
    void* const memory = nodes_.try_allocate();
    if (memory == nullptr) [[unlikely]]
      throw_bad_alloc();
    return *(h != nullptr ? h->hybrid::construct(memory) : engine_->construct(memory));
  }
  /// Asks for the engine's part of a node, for who is about to look at the rest of it.
  void fetch(const timer_node& t) const noexcept {
    __builtin_prefetch(reinterpret_cast<const std::byte*>(&t) - layout_.timer_at, 1);
  }
  /// Gives a node back whose payload has ended.
  void free(timer_node & t) noexcept {
    void* const memory = reinterpret_cast<std::byte*>(&t) - layout_.timer_at;
    {
      const slab_pool::visit here(nodes_, thread_slot());
      if (!closing()) [[likely]]
        return nodes_.free(memory);
    }
    free_late(memory);
  }
  /// What these two do for one who knows the engine, quick(), and his thread_slot(); or nothing.
  timer_node* make_at_once(std::uint32_t slot) noexcept {
    void* const memory = nodes_.allocate_at_once(slot);
    return memory == nullptr ? nullptr : hybrid::construct_node(memory);
  }
  /// The last thing that this one does to the pool is to count the node as free.
  bool free_at_once(timer_node & t, std::uint32_t slot) noexcept {
    return nodes_.free_at_once(hybrid::memory_of(t), slot);
  }
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
  std::int64_t deadline(std::int64_t d, std::int64_t slack = 0) noexcept {
    // What is due at once must be so on the true clock, which is a little behind the cheap one; and
    // not before this moment, lest a look at the timers that began earlier find it due: the time it
    // delivers would be from before its start. Where d is a few times that little, to wait for it
    // would cost more than to read the true clock.
    const std::int64_t when = d > soon ? saturating_add(cheap_now(), d)
                                       : as_time(host_.now() + std::max<std::int64_t>(d, 0));
    return slack <= 0 ? when : with_slack(when, slack);
  }
  /// The first tick of a ticker that begins now. However short the period, nobody waits for this
  /// one in particular: the cheap clock will do.
  std::int64_t first_tick(std::int64_t period) noexcept {
    return saturating_add(cheap_now(), period);
  }
  /// As deadline(), or 0 if that is not a matter of a few instructions.
  std::int64_t deadline_at_once(std::int64_t d, std::int64_t slack) const noexcept {
    if (d <= soon || slack > 0 || !in_real_time_) [[unlikely]]
      return 0;
    const std::int64_t now = fast_clock::now_at_once();
    return now == 0 ? 0 : saturating_add(now, d);
  }
  std::int64_t now() noexcept { return host_.now(); }
  /// The same for a timer that is due at `when` and delivers the time: not before this moment.
  std::int64_t deadline_at(std::int64_t when) noexcept;

  void start(timer_node & t, std::int64_t when, std::int64_t period) {
    if (hybrid* const h = quick()) return h->hybrid::start(t, when, period);
    refuse_if_ended();
    engine_->start(t, when, period);
    if (ended()) [[unlikely]]
      take_off_again(t);
  }
  bool stop(timer_node & t) noexcept {
    hybrid* const h = quick();
    return h != nullptr ? h->hybrid::stop(t) : engine_->stop(t);
  }
  retired retire(timer_node & t) noexcept {
    hybrid* const h = quick();
    return h != nullptr ? h->hybrid::retire(t) : engine_->retire(t);
  }
  bool reset(timer_node & t, std::int64_t when, std::int64_t period) {
    if (hybrid* const h = quick()) return h->hybrid::reset(t, when, period);
    refuse_if_ended();
    const bool was_waiting = engine_->reset(t, when, period);
    if (ended()) [[unlikely]]
      take_off_again(t);
    return was_waiting;
  }
  /// The same, if nobody else stops or resets it meanwhile.
  bool reset_alone(timer_node & t, std::int64_t when, std::int64_t period) {
    if (hybrid* const h = quick()) return h->hybrid::reset_alone(t, when, period);
    return reset(t, when, period);
  }

  /// The engine has let go of a timer that nobody else knew, and its payload is to be ended.
  void leave_dead() noexcept { state_.fetch_or(has_dead, std::memory_order_release); }
  /// Ends what start, stop and reset have left to be ended: their callers may have a lock, and to
  /// end a payload is the user's code. Called where there is none, after each of them.
  void clear_up() noexcept {
    if ((state_.load(std::memory_order_relaxed) & (has_dead | has_strays)) != 0) [[unlikely]]
      clear_up_now();
  }

  /// The engine, if it is the default one and the runtime has not ended in any way; else nullptr.
  hybrid* quick() const noexcept { return quick_.load(std::memory_order_relaxed); }

  engine& its_engine() noexcept { return *engine_; }
  scheduler& home() noexcept { return scheduler_; }
  slab_stats memory() const noexcept { return nodes_.stats(); }

  /// The runtime ends, and no timer fires any more; but others may be using handles.
  void close() noexcept;
  /// Closes it, and nothing is started any more. Deletes the clockwork now, or when the last handle
  /// has gone, and `keep` after it. If `hold`, not before let_go() either.
  void end(std::shared_ptr<void> keep = nullptr, bool hold = false) noexcept;
  void let_go() noexcept;
  /// The lock that all clockworks share, for a fork: it must be free in the child.
  static std::mutex& lock_of_all() noexcept;
  void refuse_if_ended() const {
    if (ended()) [[unlikely]]
      throw_ended();
  }
  bool closing() const noexcept {
    return (state_.load(std::memory_order_relaxed) & is_closing) != 0;
  }
  bool ended() const noexcept { return (state_.load(std::memory_order_relaxed) & has_ended) != 0; }
  /// In the child of a fork: the threads are gone, and locks may be held for ever.
  void lost_in_fork() noexcept {
    state_.fetch_or(is_forked, std::memory_order_relaxed);
    quick_.store(nullptr, std::memory_order_relaxed);
  }
  /// The calling thread ends the program: handles that go with static objects leave all as it is.
  void halt() noexcept;
  /// Whether a handle that goes here and now is to leave all as it is: after a fork locks may be
  /// held by threads that are no more; and the thread that ends the program must not wait for a
  /// callback that may never end.
  bool given_up() const noexcept;
  bool forked() const noexcept { return (state_.load(std::memory_order_relaxed) & is_forked) != 0; }

 private:
  static constexpr std::int64_t soon = 5'000;

  ~clockwork() = default;
  [[noreturn]] static void throw_ended();
  [[noreturn]] static void throw_bad_alloc();
  void free_late(void* memory) noexcept;
  void count_left() noexcept;
  /// A timer was started just as the runtime ended.
  void take_off_again(timer_node & t) noexcept;
  void clear_up_now() noexcept;
  void delete_all() noexcept;
  /// The host's, without asking it where that is the fast clock.
  std::int64_t cheap_now() noexcept {
    return in_real_time_ ? fast_clock::now() : host_.cheap_now();
  }

  std::unique_ptr<engine> engine_;
  struct node_pool : slab_pool {
    node_pool(std::size_t size, clockwork* c) : slab_pool(size), of(c) {}
    clockwork* const of;
  };
  std::atomic<hybrid*> quick_;
  const node_layout layout_;
  node_pool nodes_;
  scheduler& scheduler_;
  engine_host& host_;
  const bool in_real_time_;
  static constexpr std::uint8_t has_ended = 1;
  static constexpr std::uint8_t is_forked = 2;
  static constexpr std::uint8_t is_halted = 4;
  static constexpr std::uint8_t is_closing = 8;
  static constexpr std::uint8_t has_dead = 16;
  static constexpr std::uint8_t has_strays = 32;  ///< stopped, but a queue may know them
  std::atomic<std::uint8_t> state_{0};
  /// Nodes that are in use, once it has ended. Under the lock of those that come late.
  static constexpr std::size_t not_counted = SIZE_MAX;
  std::size_t left_{not_counted};
  bool all_seen_{false};
  bool held_{false};
  std::thread::id halted_by_;  ///< before is_halted is set
  std::shared_ptr<void> keep_;
};

inline clockwork& clockwork::of(const timer_node& t) noexcept {
  return *static_cast<node_pool&>(slab_pool::owner(&t)).of;
}

}  // namespace verge::detail
