// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <type_traits>
#include <utility>

#include <verge/detail/errors.h>
#include <verge/detail/operation.h>
#include <verge/detail/owned.h>
#include <verge/detail/promise.h>
#include <verge/detail/spawn.h>
#include <verge/detail/spawned.h>
#include <verge/detail/yield.h>
#include <verge/errors.h>

#pragma GCC visibility push(default)

/// Tasks: coroutines that return a value, and ways to run them concurrently.
///
///   verge::task<int> answer() { co_return 42; }
///
///   verge::task<void> ask() {
///     int a = co_await answer();                     // runs it here
///     verge::join_handle h = verge::go(answer());    // runs it concurrently
///     int b = co_await h;                            // waits; or h.join() on a plain thread
///   }
///
/// A task does nothing until it is awaited or spawned. Awaiting a task is a jump and does not
/// involve the scheduler. Awaiting or joining a task rethrows its exception.
///
/// A task runs until it has to wait. A task that never has to, because it always finds data, yields
/// after 128 operations or 16 system calls. One that computes for long should call yield().
namespace verge {

/// A coroutine that has not been started. The object owns the coroutine: destroying it destroys the
/// coroutine and everything that it awaits; its pending waits are abandoned.
template <class T = void>
class [[nodiscard("a task does nothing until it is awaited or spawned")]] task {
 public:
  using promise_type = detail::promise<T>;  ///< what makes a function that returns it a coroutine
  using value_type = T;                     ///< the type of its result

  /// No coroutine.
  task() noexcept = default;
  void swap(task & other) noexcept { coroutine_.swap(other.coroutine_); }

  /// Returns whether there is a coroutine.
  explicit operator bool() const noexcept { return static_cast<bool>(coroutine_); }

  /// Runs the task and returns its result. A task can be awaited once.
  auto operator co_await()&& {
    if (!coroutine_) detail::throw_no_task();
    return detail::task_awaiter<T>{coroutine_.get()};
  }
  /// Always a compile-time error that says what to write.
  template <class Task = task>
  detail::task_awaiter<T> operator co_await()& {
    static_assert(!std::is_same_v<Task, task>, "a task is awaited once: co_await std::move(t)");
    return {coroutine_.get()};
  }

 private:
  friend detail::promise<T>;
  friend struct detail::task_access;
  explicit task(std::coroutine_handle<promise_type> h) noexcept : coroutine_(h) {}

  struct destroy {
    void operator()(std::coroutine_handle<promise_type> h) const noexcept { h.destroy(); }
  };
  detail::owned<std::coroutine_handle<promise_type>, destroy> coroutine_;
};

/// A handle to a spawned task, for joining or cancelling it.
///
/// Destroying the handle detaches: the task continues. The handle is not thread-safe, except for
/// cancel() and done(): any thread may call these during the handle's lifetime. On an empty handle,
/// join() and detach() throw std::logic_error, cancel() does nothing, and done() returns false.
template <class T = void>
class [[nodiscard("join() the task, or detach() it to let it run on its own")]] join_handle
    : public detail::awaitable<join_handle<T>> {
 public:
  /// An empty handle.
  join_handle() noexcept = default;
  void swap(join_handle & other) noexcept { task_.swap(other.task_); }

  /// Waits on a plain thread until the task has ended. Returns its result or throws its exception,
  /// once. In a coroutine, `co_await handle` does the same. If it is given up, the task continues
  /// and can be joined again. No code of the task runs after join() has returned: its shared object
  /// may be unloaded once the handle is destroyed.
  T join() { return this->wait(); }

  /// Keeps the task running without a handle. Its exception is then passed to the runtime's
  /// handler.
  void detach() {
    if (!task_) detail::throw_nothing_to_join();
    join_handle().swap(*this);
  }

  /// Asks the task to end: the operation in which it waits throws `cancelled` inside it, and so
  /// does every operation that it starts from then on; a cancelled task stays cancelled. A task
  /// that has not begun never begins. A task that computes can poll verge::is_cancelled(). May be
  /// called from any thread, returns at once, and does not allocate.
  void cancel() noexcept {
    if (task_) task_.get()->cancellation.fire(detail::waiter::by_cancellation);
  }

  /// Returns whether the task has ended, so that joining it does not wait.
  bool done() const noexcept { return task_ && task_.get()->ended.fired(); }

  /// Returns whether there is a task that has not been joined.
  explicit operator bool() const noexcept { return task_ && !task_.get()->is_joined(); }

  /// What a wait for it does (detail/operation.h).
  using action = detail::join_action<T>;

 private:
  friend struct detail::task_access;
  explicit join_handle(detail::spawned<T> * t) noexcept : task_(t) {}

  struct drop {
    void operator()(detail::spawned<T>* t) const noexcept { t->drop_handle(); }
  };
  detail::owned<detail::spawned<T>*, drop> task_;
};

/// Runs a task, or f(args...), concurrently with the caller: on the runtime given as the first
/// argument, else on the caller's runtime, else on the default one.
///
/// f may be a coroutine function, including a lambda with captures: the lambda and the arguments
/// are kept until the coroutine has ended. f may also be a plain function: it runs on a worker and
/// may use .wait(), .join() and so on.
template <class F, class... Args>
auto go(F&& f, Args&&... args) {
  return detail::spawn(detail::scheduler_or_default(), std::forward<F>(f),
                       std::forward<Args>(args)...);
}
template <class F, class... Args>
auto go(runtime& rt, F&& f, Args&&... args) {
  return detail::spawn(detail::scheduler_of(rt), std::forward<F>(f), std::forward<Args>(args)...);
}

/// Lets all other ready tasks run first: `co_await verge::yield()`.
inline detail::yield_operation yield() noexcept { return {}; }

/// Returns whether the calling task has been cancelled, for tasks that compute for long without
/// waiting.
inline bool is_cancelled() noexcept {
  const detail::job* j = detail::current_job();
  return j != nullptr && j->cancellation.fired();
}

}  // namespace verge

#pragma GCC visibility pop
