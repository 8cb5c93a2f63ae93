// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <system_error>
#include <utility>

#include <verge/detail/timer_functions.h>
#include <verge/detail/waiter.h>

#pragma GCC visibility push(default)

/// The state behind the handles of context.h. Its ground rules are in src/context/scope.h.
namespace verge::detail {

struct context_access;

/// A context that can be done: it has a canceller, a deadline, a stop_token. src/context/scope.h.
class [[gnu::visibility("hidden")]] context_scope;

/// One context: a scope, or a value on the way to one.
struct context_node {
  /// Handles, children, cancellers. The thread that takes it to zero calls context_unused().
  std::atomic<std::uint32_t> users{1};
  /// What it was derived from, and is a user of; nullptr is the background.
  context_node* const parent;
  /// The nearest that can be done, itself perhaps; nullptr if that is none.
  context_scope* const scope;
  /// Of a value: its key.
  const void* const key{nullptr};
  /// Destroys a node that is not a scope.
  void (*const destroy)(context_node&) noexcept {nullptr};
};

template <class T>
struct context_value : context_node {
  T value;

  template <class U>
  context_value(context_node* up, context_scope* s, const void* k, U&& v)
      : context_node{.parent = up, .scope = s, .key = k, .destroy = &end},
        value(std::forward<U>(v)) {}

 private:
  static void end(context_node& n) noexcept { delete &static_cast<context_value&>(n); }
};

void context_unused(context_node& n) noexcept;

inline void add_user(context_node* n) noexcept {
  if (n != nullptr) n->users.fetch_add(1, std::memory_order_relaxed);
}
/// Acquire and release: the thread that destroys the context sees all that the others did to it.
inline void drop_user(context_node* n) noexcept {
  if (n != nullptr && n->users.fetch_sub(1, std::memory_order_acq_rel) == 1) context_unused(*n);
}

/// Something that is told when a scope is done. On the scope's list while `link` is set: both are
/// guarded by the scope's lock.
struct context_hook {
  enum class kind : std::uint8_t { child, callback, wait };

  context_hook* next{nullptr};
  context_hook** link{nullptr};
  const kind what;
};

/// One wait that ends when a scope is done. It lives where the wait does; see waiter.h.
struct context_wait : context_hook {
  waiter* party{nullptr};
  std::uint32_t ticket{0};

  context_wait() noexcept : context_hook{.what = kind::wait} {}
};

/// Registers w; false if the scope is done.
bool join_scope(context_scope& s, context_wait& wait, waiter& w, std::uint32_t ticket) noexcept;
/// Takes it off. Once this returns the scope does not touch the wait or its waiter any more, except
/// that it wakes one that it has won.
void leave_scope(context_scope& s, context_wait& wait) noexcept;

bool scope_is_done(const context_scope& s) noexcept;
/// Cancels the scope, if it is not done yet: see canceller.
void cancel_scope(context_scope& s, std::error_code cause) noexcept;

/// A callback for when a scope is done: the record, and the timer node that holds the function.
struct [[gnu::visibility("hidden")]] context_callback_record;
/// Takes over the node, which must never have been started.
context_callback_record* start_context_callback(context_node* of, timer_node& t);
template <class F>
context_callback_record* start_context_function(clockwork& timers, context_node* of, F&& f) {
  if constexpr (!check_callback<F>()) {
    return nullptr;
  } else {
    return start_context_callback(of, make_func_timer(timers, std::forward<F>(f)));
  }
}
bool stop_context_callback(context_callback_record& r) noexcept;
void destroy_context_callback(context_callback_record& r) noexcept;
void detach_context_callback(context_callback_record& r) noexcept;
[[noreturn]] void throw_no_context_callback();
[[noreturn]] void throw_no_context();

}  // namespace verge::detail

#pragma GCC visibility pop
