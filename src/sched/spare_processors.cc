// SPDX-License-Identifier: Apache-2.0

#include <sched/spare_processors.h>

#include <new>

#include <base/log.h>
#include <base/runtime_thread.h>

namespace verge::detail {

processor* spare_processors::take_locked(processor_set& all) noexcept {
  processor* p = nullptr;
  if (at_rest_.any()) {
    const std::size_t i = at_rest_.first();
    at_rest_.reset(i);
    p = &all.spare(static_cast<unsigned>(i));
  } else if (all.spares_made() < limit_) {
    try {
      p = &all.make_spare_locked();
    } catch (const std::bad_alloc&) {
      return nullptr;  // the monitor asks again
    }
  }
  if (p != nullptr) p->returns_seen = returns_.load(std::memory_order_relaxed);
  return p;
}

void spare_processors::put_locked(processor& p) noexcept {
  if (p.begins_tasks) --for_tasks_;
  p.begins_tasks = false;
  at_rest_.set(p.id - processor_set::max_processors);
}

bool spare_processors::any_at_work_locked(const processor_set& all) const noexcept {
  for (unsigned i = 0; i < all.spares_made(); ++i) {
    if (!at_rest_.test(i)) return true;
  }
  return false;
}

bool spare_processors::one_is_coming_up() noexcept {
  if (coming_up_ != nullptr &&
      coming_up_->tick.load(std::memory_order_relaxed) == coming_up_tick_) {
    return true;
  }
  coming_up_ = nullptr;
  return false;
}

bool spare_processors::processor_time_is_short(const processor_set& all, const set& at_rest,
                                               const progress_watch& seen,
                                               std::int64_t now) noexcept {
  constexpr std::int64_t first_wait = 10'000'000;
  constexpr unsigned most_doublings = 16;
  unsigned computing = 0;
  const unsigned made = all.spares_made();
  for (unsigned i = 0; i < made; ++i) {
    const processor& p = all.spare(i);
    if (at_rest.test(i) || !seen.is_still(p)) continue;
    if (is_computing(p.thread.load(std::memory_order_relaxed))) ++computing;
  }
  if (computing > computing_) computing_since_ = now;
  computing_ = computing;
  return computing != 0 && now - computing_since_ < first_wait
                                                        << std::min(computing, most_doublings);
}

void spare_processors::say_once(const char* text, unsigned number) noexcept {
  if (said_) return;
  said_ = true;
  log(log_level::error, text, number);
}

}  // namespace verge::detail
