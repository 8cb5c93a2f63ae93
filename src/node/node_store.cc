// SPDX-License-Identifier: Apache-2.0

#include <node/node_store.h>

#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>

namespace verge::detail {

namespace {

/// Shared by all stores that close, so that it outlives each of them.
constinit std::mutex late;

}  // namespace

node_store::node_store(node_layout layout, scheduler& s)
    : layout_(layout), nodes_(layout.size, this), scheduler_(s) {}

void node_store::throw_bad_alloc() { throw std::bad_alloc(); }

void node_store::throw_ended() {
  throw std::logic_error(
      "verge: the runtime of this timer has ended; a timer can only be started while its runtime "
      "lives");
}

bool node_store::given_up() const noexcept {
  const std::uint8_t state = state_.load(std::memory_order_acquire);
  return (state & is_forked) != 0 ||
         ((state & is_halted) != 0 && halted_by_ == std::this_thread::get_id());
}

void node_store::halt_store() noexcept {
  halted_by_ = std::this_thread::get_id();
  state_.fetch_or(is_halted, std::memory_order_release);
}

void node_store::close_store() noexcept {
  mark(is_closing);
  all_seen_ = nodes_.wait_for_visits();
}

void node_store::for_each_live(void (*f)(timer_node&) noexcept) noexcept {
  nodes_.for_each_live([&](void* memory) {
    f(*reinterpret_cast<timer_node*>(static_cast<std::byte*>(memory) + layout_.timer_at));
  });
}

void node_store::end_store(std::shared_ptr<void> keep, bool hold) noexcept {
  {
    std::lock_guard held(late);
    keep_ = std::move(keep);
    held_ = hold;
    if (!all_seen_) return;  // a node may not have been counted: leak the store
    count_left();
    if (left_ != 0) return;
  }
  delete_all();
}

void node_store::let_go() noexcept {
  {
    std::lock_guard held(late);
    held_ = false;
    if (!all_seen_) return;
    count_left();
    if (left_ != 0) return;
  }
  delete_all();
}

void node_store::free_late(void* memory) noexcept {
  {
    std::lock_guard held(late);
    nodes_.free(memory);
    if (left_ == not_counted) return;
    if (--left_ <= thread_slot_count) count_left();
    if (left_ != 0) return;
  }
  delete_all();
}

void node_store::count_left() noexcept { left_ = nodes_.stats().nodes_live + (held_ ? 1 : 0); }

std::mutex& node_store::lock_of_all() noexcept { return late; }

void node_store::delete_all() noexcept {
  const std::shared_ptr<void> after_this = std::move(keep_);
  delete this;
}

}  // namespace verge::detail
