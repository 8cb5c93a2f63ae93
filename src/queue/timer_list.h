// SPDX-License-Identifier: Apache-2.0
// timer_list: a doubly-linked list of timers, the bucket of a wheel.
//
// It is intrusive, so that adding and removing a timer anywhere is a few stores and does not
// allocate. It knows neither threads nor the clock.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verge::detail {

class timer_list;

/// A timer's links in a list. A queue derives its hook from it.
struct list_hook {
  list_hook* prev{nullptr};
  list_hook* next{nullptr};
  timer_list* list{nullptr};  ///< the list it is on, or nullptr
  std::int64_t when{0};       ///< when it is due
  bool periodic{false};
};

class timer_list {
 public:
  timer_list() noexcept = default;
  timer_list(const timer_list&) = delete;
  timer_list& operator=(const timer_list&) = delete;

  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] list_hook* first() const noexcept { return first_; }

  void push_back(list_hook& t) noexcept {
    t.prev = last_;
    t.next = nullptr;
    t.list = this;
    (last_ == nullptr ? first_ : last_->next) = &t;
    last_ = &t;
  }

  void remove(list_hook& t) noexcept {
    (t.prev == nullptr ? first_ : t.prev->next) = t.next;
    (t.next == nullptr ? last_ : t.next->prev) = t.prev;
    t.list = nullptr;
  }

  list_hook* pop_front() noexcept {
    list_hook* t = first_;
    if (t != nullptr) remove(*t);
    return t;
  }

  /// Returns whether links and owners are consistent; counts the timers into n.
  [[nodiscard]] bool verify(std::size_t& n) const noexcept {
    const list_hook* before = nullptr;
    for (const list_hook* t = first_; t != nullptr; before = t, t = t->next, ++n) {
      if (t->prev != before || t->list != this) return false;
    }
    return last_ == before;
  }

 private:
  list_hook* first_{nullptr};
  list_hook* last_{nullptr};
};

}  // namespace verge::detail
