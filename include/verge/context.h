// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <system_error>
#include <type_traits>
#include <utility>

#include <verge/chan.h>
#include <verge/clock.h>
#include <verge/detail/context_node.h>
#include <verge/detail/owned.h>
#include <verge/duration.h>
#include <verge/time.h>

#pragma GCC visibility push(default)

/// Contexts tell a piece of work that its result is no longer wanted, however many calls, tasks and
/// threads the work involves.
///
///   auto [ctx, cancel] = verge::with_timeout(parent, 2s);
///   reply r = co_await fetch(ctx, url);                  // pass it to everything you call
///
///   co_await verge::select(verge::recv(replies, first), verge::recv(ctx.done()));
///   co_await verge::under(ctx, verge::recv(replies));    // verge/under.h: throws when ctx is done
///   if (ctx.err()) co_return;                            // between two steps of a computation
///
/// A context is done when it is cancelled, when its deadline passes, or when its parent is done,
/// whichever comes first. err() then returns the reason: context_errc::cancelled, which equals
/// std::errc::operation_canceled, or context_errc::deadline_exceeded, which equals
/// std::errc::timed_out. The reason never changes, and done() is closed exactly when there is one.
///
/// Contexts form a tree of any shape and depth. cancel() may be called from any thread; when it
/// returns, the context and everything derived from it are done, and nothing else is affected. A
/// context that is done is removed from the tree. Nothing here blocks, except that users'
/// std::stop_callbacks run on the cancelling thread, last of all.
///
/// The canceller owns the work. Destroying it cancels the context: the caller that started the work
/// has returned, and the result is no longer wanted. It does not wait for the work to end. (Handles
/// differ in this: <verge/verge.h> has the table.) detach() keeps the context until its deadline or
/// until its parent is done. Copies of a context refer to the same context. When the last copy and
/// everything derived from it are destroyed, the context is cancelled too, so that no wait on its
/// channel or stop_token lasts forever.
///
/// Deriving a context takes one allocation; its timer is a node of the runtime. The channel and the
/// stop_token's state are created on first use.
namespace verge {

/// Why a context is done.
enum class context_errc : std::uint8_t {
  cancelled = 1,          ///< std::errc::operation_canceled
  deadline_exceeded = 2,  ///< std::errc::timed_out
};
/// The category of context_errc.
const std::error_category& context_category() noexcept;
/// An error of this category; std::error_code converts by it.
inline std::error_code make_error_code(context_errc e) noexcept {
  return {static_cast<int>(e), context_category()};
}

/// The element type of done(). No value is ever sent.
struct context_done {};

/// The key of a value in a context. Its identity is its address, not its name or type: define one
/// object per kind of value, in a place that all its users include:
///
///   inline const verge::context_key<std::string> user;
///
///   verge::context with_user = verge::with_value(ctx, user, "ann");
///   if (const std::string* name = with_user.value(user)) greet(*name);
template <class T>
class context_key {
 public:
  /// A key unlike all others.
  constexpr context_key() noexcept = default;
  context_key(const context_key&) = delete;
  context_key& operator=(const context_key&) = delete;

 private:
  // Without a member, two keys could share an address.
  [[maybe_unused]] char one_place_{};
};

/// A handle to a context. Copies refer to the same one. Every function may be called from any
/// thread.
class context {
 public:
  /// The background context, the root of all others: never done, no deadline, no values.
  context() noexcept = default;

  context(const context& other) noexcept : node_(other.node_) { detail::add_user(node_); }
  context(context&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  context& operator=(const context& other) noexcept {
    context(other).swap(*this);
    return *this;
  }
  context& operator=(context&& other) noexcept {
    context(std::move(other)).swap(*this);
    return *this;
  }
  ~context() { detail::drop_user(node_); }
  void swap(context& other) noexcept { std::swap(node_, other.node_); }

  /// Why the context is done; no error if it is not.
  std::error_code err() const noexcept;
  /// The cause passed to the canceller or with the deadline, here or in an ancestor; err() if none
  /// was.
  std::error_code cause() const noexcept;
  /// The time by which the context is done at the latest, if it has a deadline.
  std::optional<time_point> deadline() const noexcept;

  /// A channel that is closed when the context is done, for select and recv, in tasks and on plain
  /// threads.
  receiver<context_done> done() const;
  /// A token on which a stop is requested when the context is done, for code that does not use
  /// verge.
  std::stop_token stop_token() const;

  /// The value set for this key by the nearest ancestor that has one, or nullptr. It lives as long
  /// as the context.
  template <class T>
  const T* value(const context_key<T>& key) const noexcept {
    for (const detail::context_node* n = node_; n != nullptr; n = n->parent)
      if (n->key == &key) return &static_cast<const detail::context_value<T>*>(n)->value;
    return nullptr;
  }

  /// Returns whether both refer to the same context.
  friend bool operator==(const context& a, const context& b) noexcept { return a.node_ == b.node_; }

 private:
  friend detail::context_access;
  explicit context(detail::context_node* n) noexcept : node_(n) {}

  detail::context_node* node_{nullptr};
};

/// Cancels a context when called or destroyed. On an empty canceller, a call does nothing and
/// detach() throws std::logic_error.
class canceller {
 public:
  /// An empty canceller.
  canceller() noexcept = default;
  void swap(canceller& other) noexcept { node_.swap(other.node_); }

  /// Cancels the context if it is not done yet. May be called from any thread, any number of times.
  void operator()() const noexcept { (*this)(std::error_code()); }
  /// The same, with a cause.
  void operator()(std::error_code cause) const noexcept {
    if (node_) detail::cancel_scope(*node_.get()->scope, cause);
  }

  /// Keeps the context without a canceller.
  void detach() {
    if (!node_) detail::throw_no_context();
    detail::drop_user(node_.release());
  }

  explicit operator bool() const noexcept { return static_cast<bool>(node_); }

 private:
  friend detail::context_access;
  explicit canceller(detail::context_node* n) noexcept : node_(n) {}

  struct cancel_and_drop {
    void operator()(detail::context_node* n) const noexcept {
      detail::cancel_scope(*n->scope, {});
      detail::drop_user(n);
    }
  };
  detail::owned<detail::context_node*, cancel_and_drop> node_;
};

/// The result of the functions below: auto [ctx, cancel] = with_cancel(parent);
struct [[nodiscard("destroying the canceller cancels: keep it, or detach() it")]] cancellable {
  context ctx;       ///< the new context
  canceller cancel;  ///< cancels it when called or destroyed
};

namespace detail {

/// The library's access to the nodes behind the handles.
struct context_access {
  static context_node* node(const context& c) noexcept { return c.node_; }
  /// The scope of the context, or nullptr if the context is never done.
  static context_scope* scope(const context& c) noexcept {
    return c.node_ == nullptr ? nullptr : c.node_->scope;
  }
  /// Takes over one reference.
  static context handle(context_node* n) noexcept { return context(n); }
  /// Takes over two references.
  static cancellable both(context_node* n) noexcept { return {context(n), canceller(n)}; }
};

cancellable context_with_timeout(clockwork& of, const context& parent, std::int64_t delay,
                                 std::error_code cause);
cancellable context_with_deadline(clockwork& of, const context& parent, std::int64_t when,
                                  std::error_code cause);

}  // namespace detail

/// The root of all contexts: never done.
inline context background() noexcept { return {}; }

/// A context that is done when it is cancelled or the parent is done.
cancellable with_cancel(const context& parent);
/// The same, under Go's name for a context that is cancelled with a cause.
inline cancellable with_cancel_cause(const context& parent) { return with_cancel(parent); }

/// A context that is also done after `limit`, with that cause if one is given. Throws
/// std::invalid_argument if the engine does not support so long a delay.
template <class Rep, class Period>
cancellable with_timeout(const context& parent, std::chrono::duration<Rep, Period> limit,
                         std::error_code cause = {}) {
  return detail::context_with_timeout(detail::timers_here(), parent, saturate(limit).count(),
                                      cause);
}
template <class Rep, class Period>
cancellable with_timeout(runtime& rt, const context& parent,
                         std::chrono::duration<Rep, Period> limit, std::error_code cause = {}) {
  return detail::context_with_timeout(detail::timers_of(rt), parent, saturate(limit).count(),
                                      cause);
}
/// The same for a time point of verge::clock or std::chrono::steady_clock. If it has passed, the
/// context is already done.
template <class Clock, class Duration>
cancellable with_deadline(const context& parent, std::chrono::time_point<Clock, Duration> when,
                          std::error_code cause = {}) {
  return detail::context_with_deadline(detail::timers_here(), parent, detail::count_of(when),
                                       cause);
}
template <class Clock, class Duration>
cancellable with_deadline(runtime& rt, const context& parent,
                          std::chrono::time_point<Clock, Duration> when,
                          std::error_code cause = {}) {
  return detail::context_with_deadline(detail::timers_of(rt), parent, detail::count_of(when),
                                       cause);
}
/// A context that is also done when a stop is requested, by code that does not use verge.
cancellable with_stop_token(const context& parent, std::stop_token token);

/// The parent with one more value.
template <class T, class U>
[[nodiscard("the parent is unchanged: use the context that this returns")]] context with_value(
    const context& parent, const context_key<T>& key, U&& value) {
  using detail::context_access;
  detail::context_node* const up = context_access::node(parent);
  auto* const n =
      new detail::context_value<T>(up, context_access::scope(parent), &key, std::forward<U>(value));
  detail::add_user(up);
  return context_access::handle(n);
}

/// The parent's values only: never done, no deadline. For work that must be finished even if the
/// parent is cancelled.
[[nodiscard("the parent is unchanged: use the context that this returns")]] context without_cancel(
    const context& parent);

/// A function that is called when a context is done. Destroying the handle stops it and waits for a
/// call in progress on another thread, as with verge::timer; avoid the deadlock described there. On
/// an empty handle, stop() and detach() throw std::logic_error.
class [[nodiscard("destroying the handle stops it: keep it, or detach() it")]] context_callback {
 public:
  /// An empty handle.
  context_callback() noexcept = default;
  void swap(context_callback & other) noexcept { record_.swap(other.record_); }

  /// Returns true if the function will never be called. Returns false if the context was already
  /// done, so that the call has begun or is about to, or if it was already stopped.
  bool stop() {
    if (!record_) detail::throw_no_context_callback();
    return detail::stop_context_callback(*record_.get());
  }
  /// Keeps the function registered without a handle.
  void detach() {
    if (!record_) detail::throw_no_context_callback();
    detail::detach_context_callback(*record_.release());
  }
  explicit operator bool() const noexcept { return static_cast<bool>(record_); }

 private:
  friend detail::handle_access;
  explicit context_callback(detail::context_callback_record * r) noexcept : record_(r) {}

  struct destroy {
    void operator()(detail::context_callback_record* r) const noexcept {
      detail::destroy_context_callback(*r);
    }
  };
  detail::owned<detail::context_callback_record*, destroy> record_;
};

/// Calls f when ctx is done, or at once if it already is, as a separate task on the caller's
/// runtime. If f is a coroutine function, the coroutine is spawned detached, as by a timer's
/// after_func. If that runtime has ended by then, f is not called.
template <class F>
context_callback after_func(const context& ctx, F&& f) {
  return detail::handle_access::make<context_callback>(detail::start_context_function(
      detail::timers_here(), detail::context_access::node(ctx), std::forward<F>(f)));
}
/// The same on the given runtime.
template <class F>
context_callback after_func(runtime& rt, const context& ctx, F&& f) {
  return detail::handle_access::make<context_callback>(detail::start_context_function(
      detail::timers_of(rt), detail::context_access::node(ctx), std::forward<F>(f)));
}

}  // namespace verge

template <>
struct std::is_error_code_enum<verge::context_errc> : std::true_type {};

#pragma GCC visibility pop
