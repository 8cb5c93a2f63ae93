// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

#include <verge/detail/outcome.h>
#include <verge/detail/transfer.h>

#pragma GCC visibility push(default)

/// The coroutine's side of task<T>.
namespace verge {

template <class T>
class task;

namespace detail {

/// Is told that a task has ended that no coroutine awaits: the record of a spawned task.
struct task_owner {
  void (*task_ended)(task_owner&) noexcept;
};

struct promise_base {
  /// What continues when the task ends: its owner, if it has one, or the coroutine that awaits it.
  task_owner* owner{nullptr};
  transfer continuation;
  /// To the task itself, when it is awaited.
  transfer start;

  struct final_awaiter {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> h) const noexcept {
      promise_base& promise = h.promise();
      if (promise.owner != nullptr) {
        promise.owner->task_ended(*promise.owner);  // destroys the coroutine
        return std::noop_coroutine();
      }
      return transfer_control(promise.continuation);
    }
    void await_resume() const noexcept {}
  };

  std::suspend_always initial_suspend() const noexcept { return {}; }
  final_awaiter final_suspend() const noexcept { return {}; }
};

template <class T>
struct returning_promise : promise_base {
  outcome<T> result;

  template <class U = T>
  void return_value(U&& value) {
    result.set_value(std::forward<U>(value));
  }
};

template <>
struct returning_promise<void> : promise_base {
  outcome<void> result;

  void return_void() const noexcept {}
};

template <class T>
struct promise : returning_promise<T> {
  task<T> get_return_object() noexcept {
    return task<T>(std::coroutine_handle<promise>::from_promise(*this));
  }
  void unhandled_exception() noexcept { this->result.set_error(std::current_exception()); }
};

/// What `co_await task` runs: starts the task, continues when it ends. It owns nothing: the task
/// does.
template <class T>
struct task_awaiter {
  std::coroutine_handle<promise<T>> child;

  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> parent) const noexcept {
    promise_base& promise = child.promise();
    promise.start.to = child;
    promise.continuation.to = parent;
    return transfer_control(promise.start);
  }
  T await_resume() const { return child.promise().result.take(); }
};

}  // namespace detail
}  // namespace verge

#pragma GCC visibility pop
