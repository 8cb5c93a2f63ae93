// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include <verge/chan.h>
#include <verge/context.h>
#include <verge/detail/outcome.h>
#include <verge/detail/spawn.h>
#include <verge/task.h>
#include <verge/under.h>

#pragma GCC visibility push(default)

/// Groups of tasks: work that is started together and ends together.
///
///   verge::task_group<reply> calls(ctx);                 // under a context, or none
///   for (const server& s : shards) calls.go(ask, calls.ctx(), s);
///   std::vector<reply> all = co_await calls.all();       // the first failure cancels the rest
///
///   verge::task_group<reply> race(ctx);
///   for (const server& s : replicas) race.go(ask, race.ctx(), s);
///   reply first = co_await race.first();                 // the first success cancels the rest
///
/// When all() or first() has returned or thrown, no task of the group runs any more: those that are
/// no longer wanted are cancelled, and waited for. So the tasks may use references to what the
/// waiting coroutine owns. On a plain thread write `verge::go(calls.all()).join()`.
///
/// A task is cancelled in two ways at once: as by join_handle::cancel(), and through ctx(), for
/// what it has started elsewhere. The same happens if the group's parent context is done, or if the
/// task that waits is cancelled; then all() and first() throw context_error or cancelled.
namespace verge {

namespace detail {

/// What a group and its tasks share.
///
/// Ground rules
///  - `mutex` guards everything except a member's result, which belongs to its task until end() has
///    counted it, and to the waiting coroutine afterwards: the mutex orders the two.
///  - `bell` has room for one token. A task rings after it has been counted. If there is no room, a
///    token is waiting that the waiting coroutine has yet to take, and it looks at the counts after
///    it has taken it: no end is missed.
///  - Members stay where they are, so a task knows its own by address while others are added. While
///    tasks may be added, the thread that holds the mutex removes members that have ended and have
///    no result to keep. Afterwards the members are fixed, and belong to the waiting coroutine.
///  - A task keeps the state alive; the state keeps the handle of the task, until the group or the
///    last task drops the state. A task drops its reference as it ends.
template <class T>
struct group_state {
  struct member {
    join_handle<> handle;
    outcome<T> result;
  };

  explicit group_state(scheduler& s) : home(&s) {}

  scheduler* const home;
  const chan<bool> bell{1};
  std::mutex mutex;
  std::list<member> members;
  typename std::list<member>::iterator next_to_check{members.end()};
  std::size_t started{0};
  std::size_t ended{0};
  member* succeeded{nullptr};  ///< the first that did
  member* failed{nullptr};     ///< the first that did
  bool closed{false};          ///< cancelled or decided: no task is added any more
  bool waited_for{false};

  void end(member& m, bool success) {
    {
      const std::lock_guard held(mutex);
      ++ended;
      member*& first = success ? succeeded : failed;
      if (first == nullptr) first = &m;
    }
    bell.try_send(true);
  }

  // Whether the result is decided. From then on the set of members is fixed.
  bool has_all_or_a_failure() {
    const std::lock_guard held(mutex);
    return closed |= failed != nullptr || ended == started;
  }
  bool has_a_success_or_all() {
    const std::lock_guard held(mutex);
    return closed |= succeeded != nullptr || ended == started;
  }

  bool is_empty() {
    const std::lock_guard held(mutex);
    return started == 0;
  }

  /// With the mutex held: checks two members, so that a group to which tasks are added without end,
  /// such as the connections of a server, has no more ended members than others.
  void remove_ended() noexcept {
    if constexpr (std::is_void_v<T>) {
      for (int i = 0; i < 2; ++i) {
        if (next_to_check == members.end()) {
          next_to_check = members.begin();
          return;
        }
        member& m = *next_to_check;
        if (m.handle.done() && &m != succeeded && &m != failed) {
          next_to_check = members.erase(next_to_check);
        } else {
          ++next_to_check;
        }
      }
    }
  }

  void cancel() noexcept {
    const std::lock_guard held(mutex);
    closed = true;
    for (member& m : members) m.handle.cancel();
  }
};

/// A member that is a coroutine.
template <class T, class Work>
task<> run_member(std::shared_ptr<group_state<T>> group, typename group_state<T>::member* self,
                  Work work) {
  bool success = true;
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(work)();
    } else {
      T value = co_await std::move(work)();
      self->result.set_value(std::move(value));
    }
  } catch (...) {
    self->result.set_error(std::current_exception());
    success = false;
  }
  group->end(*self, success);
}

/// A member that is a plain function.
template <class T, class Work>
struct call_member {
  std::shared_ptr<group_state<T>> group;
  typename group_state<T>::member* self;
  Work work;

  void operator()() && {
    bool success = true;
    try {
      if constexpr (std::is_void_v<T>) {
        std::move(work)();
      } else {
        self->result.set_value(std::move(work)());
      }
    } catch (...) {
      self->result.set_error(std::current_exception());
      success = false;
    }
    group->end(*self, success);
  }
};

/// What f(args...), or the task f, gives as a member of a group.
template <class F, class... Args>
struct group_work {
  using result = std::invoke_result_t<F, Args...>;
};
template <class T>
struct group_work<task<T>> {
  using result = task<T>;
};
template <class R>
struct without_task {
  using type = R;
};
template <class T>
struct without_task<task<T>> {
  using type = T;
};

/// Waits for a task to end, even in one that has been cancelled, and leaves its result.
inline auto shielded_end(const join_handle<>& h) noexcept {
  return wait_through_handle<void, end_action<void, false>>(h);
}

template <class T>
struct results_of {
  using type = std::vector<T>;
};
template <>
struct results_of<void> {
  using type = void;
};

}  // namespace detail

/// Tasks that are waited for together. T is what each of them returns.
///
/// go(), cancel() and ctx() may be called from any thread, also by the group's own tasks. One task
/// waits, once. Destroying the group before cancels its tasks and does not wait for them.
template <class T = void>
class task_group {
  static_assert(!std::is_reference_v<T>, "a task_group keeps results: let its tasks return values");

 public:
  /// An empty group, on the runtime of the calling task or on the default one.
  explicit task_group(const context& parent = {})
      : task_group(detail::scheduler_or_default(), parent) {}
  explicit task_group(runtime& rt, const context& parent = {})
      : task_group(detail::scheduler_of(rt), parent) {}
  task_group(const task_group&) = delete;
  task_group& operator=(const task_group&) = delete;
  ~task_group() { cancel(); }

  /// Done when the group is cancelled, when its result is decided, or when the parent is done.
  const context& ctx() const noexcept { return own_.ctx; }

  /// Runs f(args...), or the task f, as part of the group; as verge::go. Returns false, and runs
  /// nothing, if the group is cancelled or its result is decided.
  template <class F, class... Args>
  bool go(F&& f, Args&&... args) {
    using work = std::decay_t<F>;
    if constexpr (detail::check_work<F, Args...>()) {
      using result = typename detail::group_work<work, std::decay_t<Args>...>::result;
      using value = typename detail::without_task<result>::type;
      constexpr bool fits =
          std::is_void_v<T> ? std::is_void_v<value> : std::is_convertible_v<value, T>;
      static_assert(fits, "every task of a task_group<T> returns a T");
      if constexpr (!fits) {
        return false;
      } else if constexpr (detail::task_traits<work>::is_task) {
        return add<true>(detail::given_task<value>(std::forward<F>(f)));
      } else {
        return add<detail::task_traits<result>::is_task>(
            detail::bound_call<work, std::decay_t<Args>...>(std::in_place, std::forward<F>(f),
                                                            std::forward<Args>(args)...));
      }
    } else {
      return false;
    }
  }

  /// Cancels the tasks; no other begins. Returns at once.
  void cancel() noexcept {
    own_.cancel();
    state_->cancel();
  }

  /// Waits until all have ended. Returns their results in the order of go(): a std::vector<T>, or
  /// nothing if T is void. When one throws, cancels the others, waits for them, and rethrows it. If
  /// the group is cancelled before all have ended, throws context_error.
  task<typename detail::results_of<T>::type> all() {
    begin_wait();
    co_await settle(&detail::group_state<T>::has_all_or_a_failure);
    if (state_->failed != nullptr) state_->failed->result.take();
    if constexpr (!std::is_void_v<T>) {
      std::vector<T> results;
      results.reserve(state_->members.size());
      for (auto& m : state_->members) results.push_back(m.result.take());
      co_return results;
    }
  }

  /// Waits until one has returned; cancels the others and waits for them. Returns the result of the
  /// first. If all have thrown, rethrows what the first of them threw. Throws std::logic_error if
  /// the group is empty.
  task<T> first() {
    begin_wait();
    if (state_->is_empty())
      throw std::logic_error("verge: first() of a task_group without tasks: call go() before");
    co_await settle(&detail::group_state<T>::has_a_success_or_all);
    auto* const chosen = state_->succeeded != nullptr ? state_->succeeded : state_->failed;
    co_return chosen->result.take();
  }

 private:
  using state = detail::group_state<T>;

  task_group(detail::scheduler& s, const context& parent)
      : own_(with_cancel(parent)), state_(std::make_shared<state>(s)) {}

  /// The lock is held while the task is started, so that its handle is there before it can be
  /// cancelled or waited for. A task that begins at once waits for the lock only as it ends.
  template <bool Coroutine, class Work>
  bool add(Work work) {
    const std::lock_guard held(state_->mutex);
    if (state_->closed) return false;
    state_->remove_ended();
    auto& m = state_->members.emplace_back();
    try {
      if constexpr (Coroutine) {
        m.handle =
            detail::spawn(*state_->home, detail::run_member<T, Work>(state_, &m, std::move(work)));
      } else {
        m.handle =
            detail::spawn(*state_->home, detail::call_member<T, Work>{state_, &m, std::move(work)});
      }
    } catch (...) {
      if (state_->next_to_check == std::prev(state_->members.end()))
        state_->next_to_check = state_->members.end();
      state_->members.pop_back();
      throw;
    }
    ++state_->started;
    return true;
  }

  void begin_wait() {
    const std::lock_guard held(state_->mutex);
    if (std::exchange(state_->waited_for, true))
      throw std::logic_error("verge: a task_group is waited for once");
  }

  /// Waits for enough, or until that is given up, and then for the end of every task.
  task<> settle(bool (state::*enough)()) {
    std::exception_ptr given_up;
    try {
      while (!((*state_).*enough)()) co_await under(own_.ctx, recv(state_->bell));
    } catch (...) {
      given_up = std::current_exception();
    }
    cancel();  // what has ended does not notice; and no member is added from here on
    for (const auto& m : state_->members) co_await detail::shielded_end(m.handle);
    if (given_up) std::rethrow_exception(given_up);
  }

  cancellable own_;
  std::shared_ptr<state> state_;
};

}  // namespace verge

#pragma GCC visibility pop
