// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>

#include <verge/detail/errors.h>
#include <verge/detail/scheduling.h>

#pragma GCC visibility push(default)

namespace verge::detail {

/// Goes to the end of the queue. Nothing is waited for, so nothing here can be cancelled half-way.
class [[nodiscard(
    "a yield does nothing until it is awaited: co_await it, or call wait()")]] yield_operation {
 public:
  class awaiter : private runnable {
   public:
    awaiter()
        : runnable{&resume_coroutine},
          job_(current_job()),
          scheduler_(job_ != nullptr ? job_->home : &scheduler_or_default()) {}
    awaiter(const awaiter&) = delete;
    awaiter& operator=(const awaiter&) = delete;

    bool await_ready() const {
      if (job_ != nullptr && job_->cancellation.fired()) throw_cancelled();
      return false;
    }
    void await_suspend(std::coroutine_handle<> h) noexcept {
      handle_ = h;
      scheduler_->ready_last(*this);
    }
    void await_resume() const noexcept {}

   private:
    static void resume_coroutine(runnable& r) noexcept {
      auto& self = static_cast<awaiter&>(r);
      set_current_job(self.job_);
      run_coroutine(self.handle_);  // destroys self
      set_current_job(nullptr);
    }

    std::coroutine_handle<> handle_;
    job* job_;
    scheduler* scheduler_;
  };

  awaiter operator co_await() const { return awaiter(); }

  /// Lets others run while the calling thread waits for its turn.
  void wait() const;
};

}  // namespace verge::detail

#pragma GCC visibility pop
