#include <timer/clockwork.h>

#include <algorithm>
#include <stdexcept>

#include <clock/arithmetic.h>
#include <clock/fast_clock.h>

namespace verge::detail {

clockwork::clockwork(std::unique_ptr<engine> e, scheduler& s, engine_host& host)
    : engine_(std::move(e)),
      nodes_(engine_->node_size(), this),
      scheduler_(s),
      host_(host),
      in_real_time_(!host.simulated()) {
  engine_->attach(nodes_);
}

timer_node& clockwork::make() {
  refuse_if_ended();
  return *engine_->construct(nodes_.allocate());
}

void clockwork::free(timer_node& t) noexcept {
  nodes_.free(engine_->destruct(t));
  if (ended_.load(std::memory_order_relaxed)) [[unlikely]]
    drop();
}

/// The host's, without asking it where that is the fast clock.
std::int64_t clockwork::cheap_now() noexcept {
  return in_real_time_ ? fast_clock::now() : host_.cheap_now();
}

std::int64_t clockwork::deadline(std::int64_t d, std::int64_t slack) noexcept {
  // What is due at once must be so on the true clock, which is a little behind the cheap one; and
  // not before this moment, lest a look at the timers that began earlier find it due: the time it
  // delivers would be from before its start.
  return with_slack(d > 0 ? saturating_add(cheap_now(), d) : as_time(host_.now()), slack);
}

std::int64_t clockwork::deadline_at(std::int64_t when) noexcept {
  // The cheap time is ahead of the true one: `when` may be between the two.
  return when > cheap_now() ? when : std::max(when, as_time(host_.now()));
}

void clockwork::end() noexcept {
  left_.store(nodes_.stats().nodes_live + 1, std::memory_order_relaxed);
  ended_.store(true, std::memory_order_release);
  drop();
}

void clockwork::drop() noexcept {
  if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void clockwork::throw_ended() {
  throw std::logic_error(
      "verge: the runtime of this timer has ended; a timer can only be started while its runtime "
      "lives");
}

}  // namespace verge::detail
