// A list of runnables on their way to a run queue.
//
// What a poll or a batch of fired timers made ready travels in one of these, in order, from where
// it became ready to the run queue that takes it. It is linked through `runnable::next`, so it
// never allocates; it belongs to one thread at a time.
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

  /// The runnable that has been in the list for longest, or nullptr.
  runnable* pop_front() noexcept {
    runnable* r = first_;
    if (r == nullptr) return nullptr;
    first_ = r->next;
    if (first_ == nullptr) last_ = nullptr;
    r->next = nullptr;
    --size_;
    return r;
  }

  /// Moves all of `other` behind what is here.
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
