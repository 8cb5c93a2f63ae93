#include <timer/clockwork.h>

#include <algorithm>
#include <new>
#include <stdexcept>

namespace verge::detail {

clockwork::clockwork(std::unique_ptr<engine> e, scheduler& s, engine_host& host)
    : engine_(std::move(e)),
      quick_(dynamic_cast<hybrid*>(engine_.get())),
      layout_(engine_->layout()),
      nodes_(layout_.size, this),
      scheduler_(s),
      host_(host),
      in_real_time_(!host.simulated()) {
  engine_->attach(nodes_);
}

void clockwork::throw_bad_alloc() { throw std::bad_alloc(); }

std::int64_t clockwork::deadline_at(std::int64_t when) noexcept {
  // The cheap time is ahead of the true one: `when` may be between the two.
  return when > cheap_now() ? when : std::max(when, as_time(host_.now()));
}

void clockwork::end() noexcept {
  left_.store(nodes_.stats().nodes_live + 1, std::memory_order_relaxed);
  quick_.store(nullptr, std::memory_order_relaxed);
  state_.fetch_or(has_ended, std::memory_order_release);
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
