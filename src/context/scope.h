// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <system_error>

#include <clock/arithmetic.h>
#include <context/stop_listener.h>
#include <verge/context.h>
#include <verge/detail/lock.h>

/// A context that can be done, on verge's locks, channels and timers. scope_tree.h has the tree and
/// the ground rules. One allocation; the timer's node comes from its runtime's slabs, and a channel
/// or a stop_source is created on first use.
///
/// Ground rules, in addition to those of the tree
///  - `channel_` and `source_` are written under the lock while the scope is live.
///  - `timer_` is written before the scope is known to any other thread. The thread that finishes
///    the scope stops the timer and releases it.
namespace verge::detail {

struct [[gnu::visibility("hidden")]] scope_policy {
  using node = context_node;
  using scope = context_scope;
  template <class T>
  using atomic = std::atomic<T>;
  using lock = short_lock;
  using backoff = detail::backoff;
  using stop_token = std::stop_token;
  template <class F>
  using stop_callback = std::stop_callback<F>;

  static void drop_user(node * n) noexcept { detail::drop_user(n); }
  static void destroy(scope & s) noexcept;
  static void destroy_plain(node & n) noexcept { n.destroy(n); }
  static std::error_code deadline_exceeded() noexcept { return context_errc::deadline_exceeded; }
  static std::error_code cancelled() noexcept { return context_errc::cancelled; }
};

class [[gnu::visibility("hidden")]] context_scope : public scope_tree<scope_policy> {
 public:
  using channel_state = chan_state<context_done>;

  context_scope(context_node * up, std::int64_t deadline, std::error_code deadline_cause) noexcept;
  /// Frees a scope that only the caller knows.
  struct dropper {
    void operator()(context_scope* s) const noexcept;
  };
  template <class Scope = context_scope>
  static std::unique_ptr<Scope, dropper> make(const context& parent, std::int64_t deadline,
                                              std::error_code deadline_cause) {
    return std::unique_ptr<Scope, dropper>(
        new Scope(context_access::node(parent), deadline, deadline_cause));
  }

  /// 0 if there is none.
  std::int64_t deadline() const noexcept { return deadline_; }
  /// Starts the timer for the deadline. Throws if the engine does not support it, or is out of
  /// memory: then the scope must be destroyed.
  void arm(clockwork & of);

  receiver<context_done> channel();
  std::stop_token token();

 protected:
  ~context_scope();
  /// Returns whether it is a stopped_scope.
  bool listens_{false};

 private:
  friend scope_tree;
  friend scope_policy;

  // The functions that the tree requires.
  bool has_channel() const noexcept { return channel_ != nullptr; }
  bool has_source() const noexcept { return source_.stop_possible(); }
  wait_node* close_channel() noexcept { return channel_->close_in_silence(); }
  static void wake(wait_node * waiting) noexcept { chan_base::wake_all(waiting); }
  void stop_source() noexcept { source_.request_stop(); }
  void disarm() noexcept;
  void finish_hook(context_hook & h) noexcept;

  channel_state* channel_{nullptr};
  std::stop_source source_{std::nostopstate};
  timer_node* timer_{nullptr};
  const std::int64_t deadline_;
};

/// A scope that a std::stop_token cancels as well.
class [[gnu::visibility("hidden")]] stopped_scope final : public context_scope {
 public:
  stopped_scope(context_node * up, std::int64_t deadline, std::error_code cause) noexcept
      : context_scope(up, deadline, cause) {
    listens_ = true;
  }
  void listen(std::stop_token token) noexcept { listener_.listen(*this, std::move(token)); }
  void unlisten() noexcept { listener_.disarm(); }

 private:
  friend scope_policy;
  ~stopped_scope() = default;

  stop_listener<scope_policy> listener_;
};

/// A function that is called when the scope is done.
struct [[gnu::visibility("hidden")]] context_callback_record : context_hook {
  context_node* of;
  timer_node* function;
  /// No handle: it is destroyed with the hook. Guarded by the scope's lock.
  bool detached{false};
  /// The context is never done, and the callback has not been stopped.
  bool waits_forever{false};

  context_callback_record(context_node * n, timer_node & t) noexcept
      : context_hook{.what = kind::callback}, of(n), function(&t) {}
};

/// For contexts that are done and have no channel, or no stop_source, of their own.
receiver<context_done> closed_channel();
std::stop_token stopped_token();

/// Makes the function run; takes over a reference to it.
void run_context_callback(timer_node& t) noexcept;

}  // namespace verge::detail
