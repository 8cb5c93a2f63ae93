// SPDX-License-Identifier: Apache-2.0
// A list of runnables to be moved to a run queue.
//
// It collects, in order, what a poll or a batch of fired timers made ready, until a run queue takes
// it. It is linked through `runnable::next`, so it never allocates. Not thread-safe.
#pragma once

#include <verge/detail/scheduling.h>

#include <cstddef>
#include <utility>

namespace verge::detail {

class ready_list {
 public:
  ready_list() noexcept = default;
  ready_list(ready_list&& other) noexcept
      : first_(std::exchange(other.first_, nullptr)),
        last_(std::exchange(other.last_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  ready_list& operator=(ready_list&& other) noexcept {
    first_ = std::exchange(other.first_, nullptr);
    last_ = std::exchange(other.last_, nullptr);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  bool empty() const noexcept { return first_ == nullptr; }
  std::size_t size() const noexcept { return size_; }
  const runnable* front() const noexcept { return first_; }

  void push_back(runnable& r) noexcept {
    r.next = nullptr;
    (last_ == nullptr ? first_ : last_->next) = &r;
    last_ = &r;
    ++size_;
  }

  /// Removes the oldest runnable, or returns nullptr.
  runnable* pop_front() noexcept {
    runnable* r = first_;
    if (r == nullptr) return nullptr;
    first_ = r->next;
    if (first_ == nullptr) last_ = nullptr;
    r->next = nullptr;
    --size_;
    return r;
  }

  /// Moves all of `other` to the end of this list.
  void append(ready_list&& other) noexcept {
    if (other.empty()) return;
    (last_ == nullptr ? first_ : last_->next) = other.first_;
    last_ = other.last_;
    size_ += other.size_;
    other.first_ = other.last_ = nullptr;
    other.size_ = 0;
  }

 private:
  runnable* first_{nullptr};
  runnable* last_{nullptr};
  std::size_t size_{0};
};

}  // namespace verge::detail
