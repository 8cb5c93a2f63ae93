#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include <clock/arithmetic.h>
#include <clock/fast_clock.h>
#include <engine/engine.h>
#include <engine/hybrid.h>
#include <node/node_store.h>
#include <verge/detail/scheduling.h>
#include <verge/detail/timer_node.h>

/// A runtime's timers: the engine and the clock they go by, above the store of their nodes
/// (node/node_store.h).
///
/// The default engine is called directly, and so that what it does can be inlined: a million timers
/// are spread over memory, and a processor that waits for the line of one goes on to the next if
/// there are no more than some 150 instructions in between. For the same reason one question,
/// quick(), stands for the usual three: whether the runtime has ended, whether this process started
/// it, and whether the engine is that one.
namespace verge::detail {

class [[gnu::visibility("hidden")]] clockwork final : public node_store {
 public:
  clockwork(std::unique_ptr<engine> e, scheduler & s, engine_host & host);

  static clockwork& of(const timer_node& t) noexcept {
    return static_cast<clockwork&>(node_store::of(t));
  }

  /// A node with one reference, the caller's, that does nothing yet. Throws std::bad_alloc, and
  /// std::logic_error once the runtime has ended.
  timer_node& make() {
    hybrid* const h = quick();
    if (h == nullptr) refuse_if_ended();
    void* const memory = allocate();
    return *(h != nullptr ? h->hybrid::construct(memory) : engine_->construct(memory));
  }
  /// Fast make and free for callers that hold quick() and a slot. Do nothing off the fast path.
  timer_node* make_at_once(std::uint32_t slot) noexcept {
    void* const memory = nodes().allocate_at_once(slot);
    return memory == nullptr ? nullptr : hybrid::construct_node(memory);
  }
  /// The last thing that this one does to the pool is to count the node as free.
  bool free_at_once(timer_node & t, std::uint32_t slot) noexcept {
    return nodes().free_at_once(hybrid::memory_of(t), slot);
  }
  /// The time `d` nanoseconds from now, or up to `slack` after it.
  std::int64_t deadline(std::int64_t d, std::int64_t slack = 0) noexcept {
    // What is due at once must be so on the true clock, which is a little behind the cheap one; and
    // not before this moment, so that a scan already in progress cannot fire it: the time it
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

  /// Ends what start, stop and reset have left to be ended: their callers may have a lock, and to
  /// end a payload is the user's code. Called where there is none, after each of them.
  void clear_up() noexcept {
    if (has(has_dead | has_strays)) [[unlikely]]
      clear_up_now();
  }

  /// The engine, if it is the default one and the runtime has not ended in any way; else nullptr.
  hybrid* quick() const noexcept { return quick_.load(std::memory_order_relaxed); }

  engine& its_engine() noexcept { return *engine_; }

  /// The runtime ends, and no timer fires any more; but other threads may be using handles.
  void close() noexcept;
  /// Closes it, and nothing is started any more. Calls `at_end`, if any, for each node in use.
  /// Deletes the clockwork now, or with the last handle, and `keep` after it. If `hold`, not before
  /// let_go() either.
  void end(void (*at_end)(timer_node&) noexcept = nullptr, std::shared_ptr<void> keep = nullptr,
           bool hold = false) noexcept;
  /// In the child of a fork: the threads do not exist, and locks may be held for ever.
  void lost_in_fork() noexcept {
    mark(is_forked);
    quick_.store(nullptr, std::memory_order_relaxed);
  }
  /// The calling thread ends the program: handles destroyed with static objects leave all as it is.
  void halt() noexcept {
    halt_store();
    quick_.store(nullptr, std::memory_order_relaxed);
  }

 private:
  static constexpr std::int64_t soon = 5'000;

  ~clockwork() override = default;
  /// A timer was started just as the runtime ended.
  void take_off_again(timer_node & t) noexcept;
  void clear_up_now() noexcept;
  /// The host's, without asking it where that is the fast clock.
  std::int64_t cheap_now() noexcept {
    return in_real_time_ ? fast_clock::now() : host_.cheap_now();
  }

  std::unique_ptr<engine> engine_;
  std::atomic<hybrid*> quick_;
  engine_host& host_;
  const bool in_real_time_;
};

}  // namespace verge::detail
