// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <type_traits>
#include <utility>

#include <verge/detail/operation.h>
#include <verge/detail/outcome.h>
#include <verge/detail/promise.h>
#include <verge/detail/site.h>

#pragma GCC visibility push(default)

/// The record of a spawned task: its job, what it runs, and how it ended. One allocation.
///
/// Ground rules
///  - Two parties hold the record: the task while it runs, and the join_handle. Each sets its bit
///    in `let_go_`; the one that finds the other's bit set deletes the record. The task sets its
///    bit, and then fires `ended` as its last touch; a handle that finds the bit waits for that.
///  - The result belongs to the task until `ended` fires, then to the owner of the handle.
///  - The task's frames and its callable are destroyed before `ended` fires. And it fires after the
///    last instruction of the task's own code, that of templates which its types have instantiated
///    included: the scheduler fires it, when what it has called has returned, and when the worker
///    that the task was last suspended on has returned from its code, too. So the code of a task
///    that was joined may be unloaded.
///  - An exception that was not taken when the record is destroyed is passed to the handler of its
///    home, or if the home has ended, of the runtime on which the handle is dropped.
namespace verge {

template <class T>
class join_handle;

namespace detail {

class spawned_base : public job, public runnable {
 public:
  one_shot ended;

  spawned_base(const spawned_base&) = delete;
  spawned_base& operator=(const spawned_base&) = delete;

  /// Hands the record to its scheduler. If that throws, the record is destroyed.
  void launch();

  /// For the handle.
  void drop_handle() noexcept;
  bool is_joined() const noexcept { return joined_; }
  /// Throws std::logic_error if the task was started before a fork, and will not end here.
  void refuse_if_lost() const {
    if (!ended.fired()) made_in_.refuse("task");
  }
  void set_joined() noexcept { joined_ = true; }

  /// Whether r is a task that has yet to begin.
  static bool is_new(const runnable& r) noexcept { return r.run == &run_spawned; }

  /// Ends a job that is not running, without letting it run again.
  static void abandon_spawned(job& j) noexcept;

 protected:
  /// The type of what it runs, and the address of its code, if that is known: for reports.
  spawned_base(scheduler& s, const char* type, const void* address) noexcept
      : runnable{&run_spawned} {
    home = &s;
    abandon = &abandon_spawned;
    written = type;
    code = address;
  }
  virtual ~spawned_base() = default;

  /// Runs what the record holds, or begins to; calls finish() when that has ended.
  virtual void begin() noexcept = 0;
  /// Destroys what the record holds.
  virtual void destroy_work() noexcept = 0;
  virtual void set_error(std::exception_ptr) noexcept = 0;
  virtual std::exception_ptr take_error() noexcept = 0;

  /// The task has ended: the last call that its own code makes. The record may be deleted when
  /// this returns.
  void finish() noexcept;

 private:
  friend void run_ready(runnable& r) noexcept;

  static constexpr std::uint32_t by_task = 1;
  static constexpr std::uint32_t by_handle = 2;

  static void run_spawned(runnable& r) noexcept;
  [[gnu::visibility("hidden")]] void finish_cancelled() noexcept;
  [[gnu::visibility("hidden")]] void complete() noexcept;

  const process_mark made_in_;
  std::atomic<std::uint32_t> let_go_{0};
  bool joined_{false};  // the handle's
};

template <class T>
class spawned : public spawned_base {
 public:
  outcome<T> result;

 protected:
  using spawned_base::spawned_base;
  void set_error(std::exception_ptr e) noexcept override { result.set_error(std::move(e)); }
  std::exception_ptr take_error() noexcept override { return result.take_error(); }
};

/// The private parts of tasks and their handles, for the inline code here.
struct task_access {
  template <class T>
  static std::coroutine_handle<promise<T>> coroutine(const task<T>& t) noexcept {
    return t.coroutine_.get();
  }
  template <class T>
  static join_handle<T> handle_of(spawned<T>& t) noexcept {
    return join_handle<T>(&t);
  }
  template <class T>
  static spawned<T>* record_of(const join_handle<T>& h) noexcept {
    return h.task_.get();
  }
};

/// What a record runs. It is destroyed when that has ended, before the record is.
template <class Work>
class kept_work {
 public:
  explicit kept_work(Work&& w) noexcept(std::is_nothrow_move_constructible_v<Work>)
      : work_(static_cast<Work&&>(w)) {}
  ~kept_work() { destroy(); }
  kept_work(const kept_work&) = delete;
  kept_work& operator=(const kept_work&) = delete;

  decltype(auto) run() { return static_cast<Work&&>(work_)(); }
  void destroy() noexcept {
    if (destroyed_) return;
    destroyed_ = true;
    work_.~Work();
  }

 private:
  union {
    Work work_;
  };
  bool destroyed_{false};
};

/// A callable that runs to its end on one worker.
template <class T, class Call>
class spawned_call final : public spawned<T> {
 public:
  spawned_call(scheduler& s, Call&& call)
      : spawned<T>(s, written_as<typename Call::work>(), call.code()),
        call_(static_cast<Call&&>(call)) {}

 private:
  void begin() noexcept override {
    this->abandon = nullptr;
    try {
      if constexpr (std::is_void_v<T>) {
        call_.run();
      } else {
        this->result.set_value(call_.run());
      }
    } catch (...) {
      this->result.set_error(std::current_exception());
    }
    destroy_work();
    this->finish();
  }
  void destroy_work() noexcept override { call_.destroy(); }

  kept_work<Call> call_;
};

/// A coroutine, and the callable that makes it, which may well be the lambda whose captures the
/// coroutine uses: it is kept until the coroutine is destroyed.
template <class T, class Make>
class spawned_task final : public spawned<T>, private task_owner {
 public:
  spawned_task(scheduler& s, Make&& make)
      : spawned<T>(s, written_as<typename Make::work>(), make.code()),
        task_owner{&on_task_ended},
        make_(static_cast<Make&&>(make)) {}

 private:
  void begin() noexcept override {
    try {
      task_ = make_.run();
      if (!task_) throw_no_task();
    } catch (...) {
      this->result.set_error(std::current_exception());
    }
    if (!task_) return end();
    auto coroutine = task_access::coroutine(task_);
    coroutine.promise().owner = this;
    run_coroutine(coroutine);  // may destroy the record
  }

  static void on_task_ended(task_owner& owner) noexcept {
    auto& self = static_cast<spawned_task&>(owner);
    try {
      self.result = std::move(task_access::coroutine(self.task_).promise().result);
    } catch (...) {
      self.result.set_error(std::current_exception());
    }
    self.end();
  }

  void end() noexcept {
    destroy_work();
    this->finish();
  }
  void destroy_work() noexcept override {
    task_ = task<T>();
    make_.destroy();
  }

  kept_work<Make> make_;
  task<T> task_;
};

/// Waiting for a spawned task to end.
template <class T, bool Cancellable>
class end_action {
 public:
  static constexpr const char* waiting_for = "join";
  static constexpr bool cancellable = Cancellable;

  explicit end_action(const join_handle<T>& h) : record_(task_access::record_of(h)) {
    if (record_ == nullptr || record_->is_joined()) throw_nothing_to_join();
    record_->refuse_if_lost();
  }
  bool start(waiter& w) noexcept {
    waiter_ = &w;
    return record_->ended.subscribe(w);
  }
  void withdraw() noexcept { record_->ended.unsubscribe(*waiter_); }
  void finish(std::uint32_t /*winner*/) const noexcept {}

 protected:
  spawned<T>& record() const noexcept { return *record_; }

 private:
  spawned<T>* record_;
  waiter* waiter_{nullptr};
};

/// The same, and taking its result.
template <class T, bool Cancellable = true>
class join_action : public end_action<T, Cancellable> {
 public:
  using end_action<T, Cancellable>::end_action;
  T finish(std::uint32_t /*winner*/) {
    this->record().set_joined();
    return this->record().result.take();
  }
};

/// A wait for a task that stays with its handle. `Wait` says what the end of the task gives.
template <class T, class Wait>
class wait_through_handle : public awaitable<wait_through_handle<T, Wait>> {
 public:
  explicit wait_through_handle(const join_handle<T>& h) noexcept : handle_(h) {}

  class action : public Wait {
   public:
    explicit action(const wait_through_handle& op) : Wait(op.handle_) {}
  };

 private:
  const join_handle<T>& handle_;
};

/// Waits for a task to end and leaves its result where it is.
template <class T>
auto end_of(const join_handle<T>& h) noexcept {
  return wait_through_handle<T, end_action<T, true>>(h);
}
/// Joins a task even in one that has been cancelled: for callers that make sure that it ends.
template <class T>
auto shielded_join(const join_handle<T>& h) noexcept {
  return wait_through_handle<T, join_action<T, false>>(h);
}

}  // namespace detail
}  // namespace verge

#pragma GCC visibility pop
