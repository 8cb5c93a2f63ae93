// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include <verge/detail/scheduling.h>

/// The jobs of a scheduler that have begun and not ended, so that a report can list them and the
/// end of a runtime can abandon them.
///
/// Ground rules
///  - The lock of a list guards its ends, and `number`, `prev_live` and `next_live` of the jobs in
///    it. It is never held while a job is abandoned, since that runs user code and takes the job
///    off.
///  - abandon_all() is called when no thread of the scheduler runs any more, so no job is added and
///    none ends but those it abandons, and those that these end.
namespace verge::detail {

/// One list, in the order in which the jobs have begun.
class alignas(64) job_list {
 public:
  void add(job& j) noexcept {
    std::lock_guard held(lock_);
    j.number = begun_.load(std::memory_order_relaxed) + 1;
    begun_.store(j.number, std::memory_order_relaxed);
    j.prev_live = last_;
    j.next_live = nullptr;
    (last_ == nullptr ? first_ : last_->next_live) = &j;
    last_ = &j;
  }

  void remove(job& j) noexcept {
    std::lock_guard held(lock_);
    (j.prev_live == nullptr ? first_ : j.prev_live->next_live) = j.next_live;
    (j.next_live == nullptr ? last_ : j.next_live->prev_live) = j.prev_live;
    ended_.store(ended_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  /// From any thread, without the lock: written under it.
  std::uint64_t begun() const noexcept { return begun_.load(std::memory_order_relaxed); }
  std::uint64_t ended() const noexcept { return ended_.load(std::memory_order_relaxed); }

  /// Abandons every job but `running`, which takes them off the list.
  void abandon_all(const job* running = nullptr) noexcept {
    while (job* const j = first_but(running)) j->abandon(*j);
  }

  /// The first `most`, in the order in which they have begun. Returns how many.
  template <class F>
  std::size_t for_each(std::size_t most, F&& f) const {
    std::lock_guard held(lock_);
    std::size_t n = 0;
    for (const job* j = first_; j != nullptr && n < most; j = j->next_live, ++n) f(*j);
    return n;
  }
  template <class F>
  void for_each(F&& f) const {
    for_each(SIZE_MAX, std::forward<F>(f));
  }

 private:
  job* first_but(const job* running) const noexcept {
    std::lock_guard held(lock_);
    return first_ != nullptr && first_ == running ? first_->next_live : first_;
  }

  mutable std::mutex lock_;
  job* first_{nullptr};
  job* last_{nullptr};
  std::atomic<std::uint64_t> begun_{0};
  std::atomic<std::uint64_t> ended_{0};
};

/// Several lists, so that workers that spawn tasks seldom meet at one lock. A job's address decides
/// which one it is in.
class job_lists {
 public:
  void add(job& j) noexcept { list_of(j).add(j); }
  void remove(job& j) noexcept { list_of(j).remove(j); }
  void abandon_all(const job* running) noexcept {
    for (job_list& list : lists_) list.abandon_all(running);
  }
  /// Calls f for at most so many: of each list those that have begun first.
  template <class F>
  void for_each(std::size_t most, F&& f) const {
    std::size_t lists_left = lists_.size();
    for (const job_list& list : lists_) most -= list.for_each(most / lists_left--, f);
  }
  std::uint64_t begun() const noexcept {
    std::uint64_t n = 0;
    for (const job_list& list : lists_) n += list.begun();
    return n;
  }
  /// The ended ones are read first, so that none is missing.
  std::uint64_t live() const noexcept {
    std::uint64_t ended = 0;
    for (const job_list& list : lists_) ended += list.ended();
    return begun() - ended;
  }

 private:
  job_list& list_of(const job& j) noexcept {
    return lists_[(reinterpret_cast<std::uintptr_t>(&j) >> 6) % lists_.size()];
  }

  std::array<job_list, 16> lists_;
};

}  // namespace verge::detail
