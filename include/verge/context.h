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

/// Contexts: how a piece of work is told that its result is no longer wanted, however many calls,
/// tasks and threads it has spread to.
///
///   auto [ctx, cancel] = verge::with_timeout(parent, 2s);
///   reply r = co_await fetch(ctx, url);                  // hand it on to all that works for you
///
///   co_await verge::select(verge::recv(replies, ...), verge::recv(ctx.done(), ...));
///   co_await verge::under(ctx, verge::recv(replies));    // verge/under.h: throws when ctx is done
///   if (ctx.err()) return;                               // between two steps of a computation
///
/// A context is done when it is cancelled, when its deadline passes, or when the one that it was
/// derived from is done, whichever comes first. err() says why: context_errc::cancelled, which
/// equals std::errc::operation_canceled, or context_errc::deadline_exceeded, which equals
/// std::errc::timed_out. It never changes after that, and done() is closed then and not before.
///
/// Contexts make a tree, of any shape and depth. Cancelling one finishes all that is derived from
/// it, from any thread, before cancel() returns, and leaves the rest alone. A context that is done
/// is off the tree. Nothing here blocks, except that users' std::stop_callbacks run in the thread
/// that cancels, last of all.
///
/// The canceller owns the work. Destroying it cancels the context: the caller that started the work
/// has returned, and its result is no longer wanted. It does not wait for the work to end. (Handles
/// differ in this: <verge/verge.h> has the table.) detach() lets the context go on to its deadline,
/// or to its parent's end. A context is shared: copies mean the same one. When the last copy and
/// all that was derived from it are destroyed, the context is cancelled as well, so that nothing
/// waits forever for a channel or a stop_token of it.
///
/// Deriving one is one allocation; its timer is a node of the runtime's. A channel and a
/// stop_token's state are made when they are asked for.
namespace verge {

/// Why a context is done.
enum class context_errc : std::uint8_t {
  cancelled = 1,          ///< std::errc::operation_canceled
  deadline_exceeded = 2,  ///< std::errc::timed_out
};
const std::error_category& context_category() noexcept;
inline std::error_code make_error_code(context_errc e) noexcept {
  return {static_cast<int>(e), context_category()};
}

/// What done() carries: nothing, no value is ever sent.
struct context_done {};

/// The key of a value in a context. It stands for itself, not for its name or its type, so define
/// one per kind of value where all who use it see it:
///
///   inline const verge::context_key<std::string> user;
///
///   verge::context with_user = verge::with_value(ctx, user, "ann");
///   if (const std::string* name = with_user.value(user)) ...
template <class T>
class context_key {
 public:
  constexpr context_key() noexcept = default;
  context_key(const context_key&) = delete;
  context_key& operator=(const context_key&) = delete;

 private:
  // Two empty objects could share an address.
  [[maybe_unused]] char one_place_{};
};

class context {
 public:
  /// The background: never done, no deadline, no values. What all others are derived from.
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

  /// Why it is done; no error if it is not.
  std::error_code err() const noexcept;
  /// What was given as the cause to the canceller or with the deadline, here or further up; err()
  /// if nothing was.
  std::error_code cause() const noexcept;
  /// When it will be done by itself, at the latest.
  std::optional<time_point> deadline() const noexcept;

  /// A channel that is closed when the context is done: for select, and for recv, in tasks and on
  /// plain threads.
  receiver<context_done> done() const;
  /// A token that is stopped when the context is done: for code that knows nothing of verge.
  std::stop_token stop_token() const;

  /// The value that was last put under this key on the way to here; nullptr if none was. It lives
  /// as long as the context.
  template <class T>
  const T* value(const context_key<T>& key) const noexcept {
    for (const detail::context_node* n = node_; n != nullptr; n = n->parent)
      if (n->key == &key) return &static_cast<const detail::context_value<T>*>(n)->value;
    return nullptr;
  }

  /// Whether both mean the same context.
  friend bool operator==(const context& a, const context& b) noexcept { return a.node_ == b.node_; }

 private:
  friend detail::context_access;
  explicit context(detail::context_node* n) noexcept : node_(n) {}

  detail::context_node* node_{nullptr};
};

/// The right to cancel a context, and the duty: destroying it cancels. An empty canceller has no
/// context: calling it does nothing, and detach() throws std::logic_error.
class canceller {
 public:
  /// Nothing to cancel.
  canceller() noexcept = default;
  void swap(canceller& other) noexcept { node_.swap(other.node_); }

  /// Cancels the context, if it is not done yet. From any thread, as often as you like.
  void operator()() const noexcept { (*this)(std::error_code()); }
  /// The same, and says why.
  void operator()(std::error_code cause) const noexcept {
    if (node_) detail::cancel_scope(*node_.get()->scope, cause);
  }

  /// Lets the context go on without a canceller.
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

/// What the functions below give: auto [ctx, cancel] = with_cancel(parent);
struct [[nodiscard("destroying the canceller cancels: keep it, or detach() it")]] cancellable {
  context ctx;
  canceller cancel;
};

namespace detail {

/// The way to what is behind the handles, for the inside of the library.
struct context_access {
  static context_node* node(const context& c) noexcept { return c.node_; }
  /// What can be done, or nullptr if the context never is.
  static context_scope* scope(const context& c) noexcept {
    return c.node_ == nullptr ? nullptr : c.node_->scope;
  }
  /// Takes over a user.
  static context handle(context_node* n) noexcept { return context(n); }
  /// Takes over two.
  static cancellable both(context_node* n) noexcept { return {context(n), canceller(n)}; }
};

cancellable context_with_timeout(clockwork& of, const context& parent, std::int64_t delay,
                                 std::error_code cause);
cancellable context_with_deadline(clockwork& of, const context& parent, std::int64_t when,
                                  std::error_code cause);

}  // namespace detail

/// Never done: the root of all contexts.
inline context background() noexcept { return {}; }

/// Done when it is cancelled, or the parent is done.
cancellable with_cancel(const context& parent);
/// The same, under the name that it has in Go if one is going to give a cause.
inline cancellable with_cancel_cause(const context& parent) { return with_cancel(parent); }

/// Done as well when `limit` has passed; with that cause, if one is given. Throws
/// std::invalid_argument if the engine takes no delay that long.
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
/// The same for a point in time, of verge::clock or std::chrono::steady_clock. One that has passed
/// makes a context that is done.
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
/// Done as well when a stop is requested: code that knows nothing of verge cancels it.
cancellable with_stop_token(const context& parent, std::stop_token token);

/// The same context with one value more.
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

/// The same values, and nothing of the rest: never done, no deadline. For what has to be finished
/// whatever becomes of the work that it belongs to.
[[nodiscard("the parent is unchanged: use the context that this returns")]] context without_cancel(
    const context& parent);

/// A function that is called when a context is done. Destroying the handle stops it and waits for a
/// call that runs on another thread, as with verge::timer; the same deadlock is to be avoided. An
/// empty handle has no function: stop() and detach() throw std::logic_error.
class [[nodiscard("destroying the handle stops it: keep it, or detach() it")]] context_callback {
 public:
  context_callback() noexcept = default;
  void swap(context_callback & other) noexcept { record_.swap(other.record_); }

  /// True if it will never be called. False if the context was done before, so that the call has
  /// begun, or is about to; and if it was stopped before.
  bool stop() {
    if (!record_) detail::throw_no_context_callback();
    return detail::stop_context_callback(*record_.get());
  }
  /// Lets it be called without a handle.
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

/// Calls f when ctx is done, at once if it is, as a task of its own on the caller's runtime. If f
/// is a coroutine function the coroutine is spawned, detached, as by a timer's after_func. If that
/// runtime has ended by then f is not called.
template <class F>
context_callback after_func(const context& ctx, F&& f) {
  return detail::handle_access::make<context_callback>(detail::start_context_function(
      detail::timers_here(), detail::context_access::node(ctx), std::forward<F>(f)));
}
/// The same on that runtime.
template <class F>
context_callback after_func(runtime& rt, const context& ctx, F&& f) {
  return detail::handle_access::make<context_callback>(detail::start_context_function(
      detail::timers_of(rt), detail::context_access::node(ctx), std::forward<F>(f)));
}

}  // namespace verge

template <>
struct std::is_error_code_enum<verge::context_errc> : std::true_type {};

#pragma GCC visibility pop
