// SPDX-License-Identifier: Apache-2.0

#include <sched/waiting_threads.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <new>

#include <verge/detail/lock.h>
#include <verge/detail/scheduling.h>

namespace verge::detail {

namespace {

struct alignas(64) waiting_list {
  short_lock lock;
  waiting_thread_record* first{nullptr};
};
constinit std::array<waiting_list, 32> lists{};

waiting_list& list_of(pid_t thread) noexcept {
  return lists[static_cast<std::size_t>(thread) % lists.size()];
}

}  // namespace

waiting_thread_record::waiting_thread_record(const char* waiting_for, const void* code) noexcept
    : view_{.thread = ::gettid(),
            .waiting_for = waiting_for,
            .since = coarse_now.load(std::memory_order_relaxed),
            .code = code} {
  waiting_list& list = list_of(view_.thread);
  const std::lock_guard held(list.lock);
  next_ = list.first;
  if (next_ != nullptr) next_->previous_ = this;
  list.first = this;
}

waiting_thread_record::~waiting_thread_record() {
  waiting_list& list = list_of(view_.thread);
  const std::lock_guard held(list.lock);
  if (next_ != nullptr) next_->previous_ = previous_;
  (previous_ != nullptr ? previous_->next_ : list.first) = next_;
}

std::vector<waiting_thread_view> waiting_threads(std::size_t most) {
  std::vector<waiting_thread_view> all;
  for (waiting_list& list : lists) {
    // Not under the lock: a thread that wants to sleep would wait for the allocator.
    std::array<waiting_thread_view, 64> found{};
    std::size_t n = 0;
    {
      const std::lock_guard held(list.lock);
      for (const auto* r = list.first; r != nullptr && n < found.size(); r = r->next_) {
        found[n++] = r->view_;
      }
    }
    all.insert(all.end(), found.begin(), found.begin() + static_cast<std::ptrdiff_t>(n));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.since < b.since; });
  if (all.size() > most) all.resize(most);
  return all;
}

void forget_waiting_threads_in_child() noexcept {
  for (waiting_list& list : lists) ::new (static_cast<void*>(&list)) waiting_list;
}

}  // namespace verge::detail
