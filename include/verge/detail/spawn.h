// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <verge/detail/spawned.h>

#pragma GCC visibility push(default)

/// Which record runs what: a task, a callable that makes one, a callable that does not.
namespace verge::detail {

template <class T>
struct task_traits {
  static constexpr bool is_task = false;
};
template <class T>
struct task_traits<task<T>> {
  static constexpr bool is_task = true;
  using value_type = T;
};

/// Whether a result is an operation that has yet to be awaited, such as verge::sleep(1s), and not a
/// task: a function that returns one has done nothing so far.
template <class T>
inline constexpr bool is_pending_operation =
    !task_traits<T>::is_task &&
    (
        requires { std::declval<std::add_lvalue_reference_t<T>>().operator co_await(); } ||
        requires { std::declval<std::add_lvalue_reference_t<T>>().await_ready(); });

/// Where the code is, if a function is called.
template <class Work>
const void* code_of(const Work& work) noexcept {
  if constexpr (std::is_pointer_v<Work> && std::is_function_v<std::remove_pointer_t<Work>>) {
    return reinterpret_cast<const void*>(work);
  } else {
    return nullptr;
  }
}

/// A call with its arguments, to be made later.
template <class Work, class... Parts>
class bound_call {
 public:
  using work = Work;

  template <class... Args>
  explicit bound_call(std::in_place_t, Args&&... args) : parts_(std::forward<Args>(args)...) {}

  decltype(auto) operator()() && {
    return std::apply(
        [](auto&&... parts) -> decltype(auto) { return std::invoke(std::move(parts)...); },
        std::move(parts_));
  }
  const void* code() const noexcept { return code_of(std::get<0>(parts_)); }

 private:
  std::tuple<Work, Parts...> parts_;
};

/// The same without arguments, as nearly all are: a lambda more in a program costs its compilation
/// half as much as with a tuple.
template <class Work>
class bound_call<Work> {
 public:
  using work = Work;

  template <class F>
  explicit bound_call(std::in_place_t, F&& f) : work_(std::forward<F>(f)) {}

  decltype(auto) operator()() && { return static_cast<Work&&>(work_)(); }
  const void* code() const noexcept { return code_of(work_); }

 private:
  Work work_;
};

/// "Makes" the task that it was given.
template <class T>
class given_task {
 public:
  using work = task<T>;

  explicit given_task(task<T>&& t) noexcept : task_(std::move(t)) {}
  task<T> operator()() && noexcept { return std::move(task_); }
  /// Where it resumes: the first word of a coroutine's frame, with gcc and with clang.
  const void* code() const noexcept {
    return *static_cast<void* const*>(task_access::coroutine(task_).address());
  }

 private:
  task<T> task_;
};

template <class Record, class Work>
auto launch(scheduler& s, Work&& work) {
  auto* const record = new Record(s, std::forward<Work>(work));
  record->launch();
  return task_access::handle_of(*record);
}

/// Whether go(f, args...), run(f) or spawn(f) can run that. If not, that is an error which says
/// why, and the only one.
template <class F, class... Args>
constexpr bool check_work() {
  using work = std::decay_t<F>;
  if constexpr (task_traits<work>::is_task) {
    static_assert(std::is_same_v<F, work>, "a task is run once: pass it with std::move(t)");
    static_assert(sizeof...(Args) == 0, "a task takes no arguments: it has them already");
    return std::is_same_v<F, work> && sizeof...(Args) == 0;
  } else {
    static_assert(std::is_invocable_v<work, std::decay_t<Args>...>,
                  "this runs a task, or something that can be called with the arguments: these do "
                  "not fit (they are copied or moved, wrap a reference in std::ref)");
    if constexpr (std::is_invocable_v<work, std::decay_t<Args>...>) {
      using result = std::invoke_result_t<work, std::decay_t<Args>...>;
      static_assert(!is_pending_operation<result>,
                    "this function returns an operation and does not wait for it: make it a "
                    "coroutine, []() -> verge::task<> { co_await ...; }");
      return !is_pending_operation<result>;
    } else {
      return false;
    }
  }
}

/// Runs f(args...), or the task f, on s: the inside of verge::go.
template <class F, class... Args>
auto spawn(scheduler& s, F&& f, Args&&... args) {
  using work = std::decay_t<F>;
  if constexpr (!check_work<F, Args...>()) {
    // void, but dependent: join_handle is incomplete here
    return join_handle<std::conditional_t<std::is_same_v<work, work>, void, work>>();
  } else if constexpr (task_traits<work>::is_task) {
    using value = typename task_traits<work>::value_type;
    if (!f) throw_no_task();
    return launch<spawned_task<value, given_task<value>>>(s, given_task<value>(std::forward<F>(f)));
  } else {
    using call = bound_call<work, std::decay_t<Args>...>;
    using value = std::invoke_result_t<work, std::decay_t<Args>...>;
    call c(std::in_place, std::forward<F>(f), std::forward<Args>(args)...);
    if constexpr (task_traits<value>::is_task) {
      using result = typename task_traits<value>::value_type;
      return launch<spawned_task<result, call>>(s, std::move(c));
    } else {
      return launch<spawned_call<value, call>>(s, std::move(c));
    }
  }
}

}  // namespace verge::detail

#pragma GCC visibility pop
