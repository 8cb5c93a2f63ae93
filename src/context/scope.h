#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <system_error>

#include <clock/arithmetic.h>
#include <verge/context.h>
#include <verge/detail/lock.h>

/// A context that can be done: its own node, the list of all that is to be told, its deadline's
/// timer. One allocation; the timer's node comes from its runtime's slabs, and what few contexts
/// are asked for - a channel, a stop_source - is made when it is.
///
/// A tree of contexts is cancelled from the top down, and taken apart from the bottom up: a child
/// is off its parent's list when it is done and its own list is empty, so a scope whose list is
/// empty has nothing beneath it that is not done. Whoever cancels goes through the tree until the
/// list of his root is empty. Where threads meet in a tree they do the same work side by side; none
/// waits for another, and each returns when all is done. They walk from child to parent by the
/// links that are there anyway: nothing recurses, and a tree may be as deep as memory allows.
///
/// Ground rules
///  - The lock guards the list and the links of the hooks on it, `channel_` and `source_`; and that
///    `state_` leaves `live`, together with what is written then, `cause_` and `by_deadline_`.
///    These are constant from then on, and read without the lock.
///  - state_: live -> closing -> done, or straight to done if there is no channel. It is `closing`
///    while the channel is being closed. Whoever reads it waits that out, a few instructions: so
///    who finds the channel closed finds an error, and the other way round.
///  - No lock is held while another is taken, of a scope, a channel or an engine: so the order in
///    which trees are cancelled, and from how many threads, does not matter.
///  - Two counts. `users` (context_node) are those who can still use the context: when the last one
///    goes it is cancelled, so that nobody waits for it in vain. `memory_` are those who may still
///    touch the node: one for all users, one for the timer's node until it has been stopped or
///    buried, one for each thread that goes through it.
///  - A scope on its parent's list is there: either it has users, or somebody who has a share of
///    its memory is about to take it off. Whoever finds it on the list takes a share before he lets
///    go of the lock. A parent is used by its children, so it outlives them.
///  - `work_` belongs to the thread that has finished the scope: its list of those whose
///    stop_source is to be told in the end.
///  - `timer_` is written before the scope is known to anybody. Who finishes the scope stops it and
///    gives it back.
namespace verge::detail {

class [[gnu::visibility("hidden")]] context_scope : public context_node, private context_hook {
 public:
  using channel_state = chan_state<context_done>;

  context_scope(context_node * up, std::int64_t deadline, std::error_code deadline_cause) noexcept;
  /// One that nobody but the caller knows yet; as it is if it is dropped before it is used.
  struct dropper {
    void operator()(context_scope* s) const noexcept { end(*s); }
  };
  template <class Scope = context_scope>
  static std::unique_ptr<context_scope, dropper> make(const context& parent, std::int64_t deadline,
                                                      std::error_code deadline_cause) {
    return std::unique_ptr<context_scope, dropper>(
        new Scope(context_access::node(parent), deadline, deadline_cause));
  }
  context_scope(const context_scope&) = delete;
  context_scope& operator=(const context_scope&) = delete;

  /// 0 if there is none.
  std::int64_t deadline() const noexcept { return deadline_; }
  /// Starts the timer for the deadline. Throws if the engine does not take it, or has no memory.
  void arm(clockwork & of);
  /// Puts it on its parent's list, or finishes it if the parent is done.
  void follow_parent() noexcept;

  bool is_done() const noexcept {
    const auto s = state_.load(std::memory_order_acquire);
    return s == done || (s == closing && wait_until_done());
  }
  /// Only when it is done.
  bool by_deadline() const noexcept { return by_deadline_; }
  std::error_code cause() const noexcept { return cause_; }

  receiver<context_done> channel();
  std::stop_token token();

  /// Finishes it, and all beneath it, if it is not done yet. `why` is empty if there is no special
  /// cause.
  void cancel(bool by_deadline, std::error_code why) noexcept;

  bool add(context_hook & h) noexcept;
  /// Whether it was on.
  bool remove(context_hook & h) noexcept;
  /// Whether nothing hangs on it. For tests.
  bool is_leaf() noexcept {
    const std::lock_guard held(lock_);
    return first_ == nullptr;
  }
  void lock() noexcept { lock_.lock(); }
  void unlock() noexcept { lock_.unlock(); }

  void keep_memory() noexcept { memory_.fetch_add(1, std::memory_order_relaxed); }
  /// Drops a share of the memory, and ends the scope if that was the last one.
  void drop_memory() noexcept {
    if (drop_share()) end(*this);
  }
  /// Nobody uses n any more: cancels it, ends it, and then perhaps what it was derived from.
  static void unused(context_node * n) noexcept;

 protected:
  virtual ~context_scope();

 private:
  friend struct scope_timer;
  enum state : std::uint8_t { live, closing, done };

  /// What finish() came to: it was done before; it is now; and there is somebody to be told.
  enum class finished : std::uint8_t { before, alone, with_others };
  finished finish(bool by_deadline, std::error_code why) noexcept;
  bool wait_until_done() const noexcept;
  void disarm() noexcept;
  void leave_parent() noexcept;
  void link(context_hook & h) noexcept;
  static void unlink(context_hook & h) noexcept;
  void settle(context_scope * &to_stop) noexcept;
  void tell_source_later(context_scope * &to_stop) noexcept;
  void finish_hook(context_hook & h) noexcept;
  /// Acquire and release: who ends the scope sees all that the others did to it.
  bool drop_share() noexcept { return memory_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  static void end(context_scope & s) noexcept;

  short_lock lock_;
  std::atomic<std::uint32_t> memory_{1};
  std::atomic<state> state_{live};
  /// Done, and the list is empty: there is nothing left to do for whoever cancels.
  std::atomic<bool> settled_{false};
  bool by_deadline_{false};
  context_hook* first_{nullptr};
  channel_state* channel_{nullptr};
  std::stop_source source_{std::nostopstate};
  timer_node* timer_{nullptr};
  context_scope* work_{nullptr};
  const std::int64_t deadline_;
  /// Until it is done: the cause if the deadline passes.
  std::error_code cause_;
};

/// What is told by a std::stop_token as well.
class [[gnu::visibility("hidden")]] stopped_scope final : public context_scope {
 public:
  using context_scope::context_scope;
  void listen(std::stop_token token) { callback_.emplace(std::move(token), on_stop{this}); }

 private:
  struct on_stop {
    context_scope* scope;
    void operator()() const noexcept { scope->cancel(false, {}); }
  };
  /// Goes first, and waits for a callback that runs on another thread.
  std::optional<std::stop_callback<on_stop>> callback_;
};

/// A function that is called when the scope is done.
struct [[gnu::visibility("hidden")]] context_callback_record : context_hook {
  context_node* of;
  timer_node* function;
  /// No handle: it goes with the hook. Guarded by the scope's lock.
  bool detached{false};
  /// There is no scope that could be done, and it has not been stopped.
  bool waits_for_ever{false};

  context_callback_record(context_node * n, timer_node & t) noexcept
      : context_hook{.what = kind::callback}, of(n), function(&t) {}
};

/// For contexts that are done and have no channel, or no stop_source, of their own.
receiver<context_done> closed_channel();
std::stop_token stopped_token();

/// Makes the function run; takes over a reference to it.
void run_context_callback(timer_node& t) noexcept;

}  // namespace verge::detail
