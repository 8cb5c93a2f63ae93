#include <timer/clockwork.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>

#include <timer/channel_timer.h>

namespace verge::detail {

namespace {

/// Of all clockworks that close, so that it outlives each of them.
constinit std::mutex late;

}  // namespace

clockwork::clockwork(std::unique_ptr<engine> e, scheduler& s, engine_host& host)
    : engine_(std::move(e)),
      quick_(dynamic_cast<hybrid*>(engine_.get())),
      layout_(engine_->layout()),
      nodes_(layout_.size, this),
      scheduler_(s),
      host_(host),
      in_real_time_(!host.simulated()) {
  engine_->attach(nodes_);
  // To find that out takes a descriptor for a moment: better here than on a worker, anywhen.
  if (in_real_time_) static_cast<void>(fast_clock::source_in_use());
}

void clockwork::throw_bad_alloc() { throw std::bad_alloc(); }

std::int64_t clockwork::deadline_at(std::int64_t when) noexcept {
  // The cheap time is ahead of the true one: `when` may be between the two.
  return when > cheap_now() ? when : std::max(when, as_time(host_.now()));
}

void clockwork::close() noexcept {
  if (closing()) return;
  quick_.store(nullptr, std::memory_order_relaxed);
  state_.fetch_or(is_closing, std::memory_order_relaxed);
  all_seen_ = nodes_.wait_for_visits();
}

void clockwork::end(std::shared_ptr<void> keep, bool hold) noexcept {
  close();
  state_.fetch_or(has_ended, std::memory_order_relaxed);
  // Who starts a timer again, and has not seen that, is seen here; or sees it then: the lock of the
  // queue decides. Who still took the engine for quick() may have neither: his timer is armed, for
  // nobody, until it is stopped with its handle.
  engine_->drain();
  nodes_.for_each_live([this](void* memory) {
    close_channel_of(
        *reinterpret_cast<timer_node*>(static_cast<std::byte*>(memory) + layout_.timer_at));
  });
  {
    std::lock_guard held(late);
    keep_ = std::move(keep);
    held_ = hold;
    if (!all_seen_) return;  // one node may not have been counted: it is all left as it is
    count_left();
    if (left_ != 0) return;
  }
  delete_all();
}

void clockwork::let_go() noexcept {
  {
    std::lock_guard held(late);
    held_ = false;
    if (!all_seen_) return;
    count_left();
    if (left_ != 0) return;
  }
  delete_all();
}

void clockwork::free_late(void* memory) noexcept {
  {
    std::lock_guard held(late);
    nodes_.free(memory);
    if (left_ == not_counted) return;
    if (--left_ <= thread_slot_count) count_left();
    if (left_ != 0) return;
  }
  delete_all();
}

void clockwork::count_left() noexcept { left_ = nodes_.stats().nodes_live + (held_ ? 1 : 0); }

std::mutex& clockwork::lock_of_all() noexcept { return late; }

void clockwork::halt() noexcept {
  halted_by_ = std::this_thread::get_id();
  state_.fetch_or(is_halted, std::memory_order_release);
  quick_.store(nullptr, std::memory_order_relaxed);
}

bool clockwork::given_up() const noexcept {
  const std::uint8_t state = state_.load(std::memory_order_acquire);
  return (state & is_forked) != 0 ||
         ((state & is_halted) != 0 && halted_by_ == std::this_thread::get_id());
}

void clockwork::take_off_again(timer_node& t) noexcept {
  engine_->stop(t);
  state_.fetch_or(has_strays, std::memory_order_relaxed);
}

void clockwork::clear_up_now() noexcept {
  if (given_up()) return;
  // Acquire: who is told of one finds it on the list.
  const auto before = state_.fetch_and(std::uint8_t(~has_dead), std::memory_order_acquire);
  if ((before & has_strays) != 0) return engine_->drain();
  engine_->bury_dead();
}

void clockwork::delete_all() noexcept {
  const std::shared_ptr<void> after_this = std::move(keep_);
  delete this;
}

void clockwork::throw_ended() {
  throw std::logic_error(
      "verge: the runtime of this timer has ended; a timer can only be started while its runtime "
      "lives");
}

}  // namespace verge::detail
