#pragma once

#include <array>
#include <cstdint>
#include <mutex>

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
    j.number = ++begun_;
    j.prev_live = last_;
    j.next_live = nullptr;
    (last_ == nullptr ? first_ : last_->next_live) = &j;
    last_ = &j;
  }

  void remove(job& j) noexcept {
    std::lock_guard held(lock_);
    (j.prev_live == nullptr ? first_ : j.prev_live->next_live) = j.next_live;
    (j.next_live == nullptr ? last_ : j.next_live->prev_live) = j.prev_live;
  }

  /// Abandons every job but `running`, which takes them off the list.
  void abandon_all(const job* running = nullptr) noexcept {
    while (job* const j = first_but(running)) j->abandon(*j);
  }

  template <class F>
  void for_each(F&& f) const {
    std::lock_guard held(lock_);
    for (const job* j = first_; j != nullptr; j = j->next_live) f(*j);
  }

 private:
  job* first_but(const job* running) const noexcept {
    std::lock_guard held(lock_);
    return first_ != nullptr && first_ == running ? first_->next_live : first_;
  }

  mutable std::mutex lock_;
  job* first_{nullptr};
  job* last_{nullptr};
  std::uint64_t begun_{0};
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

 private:
  job_list& list_of(const job& j) noexcept {
    return lists_[(reinterpret_cast<std::uintptr_t>(&j) >> 6) % lists_.size()];
  }

  std::array<job_list, 16> lists_;
};

}  // namespace verge::detail
