// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <utility>

#include <verge/detail/context_node.h>
#include <verge/detail/owned.h>

/// The tree of contexts that can be done: which scope finishes which, and when each may be freed.
///
/// A tree is cancelled from the top down and dismantled from the bottom up. A child leaves its
/// parent's list once it is done and its own list is empty, so a scope whose list is empty has
/// nothing beneath it that is not done. The thread that cancels walks the tree until the list of
/// its root is empty. Threads that cancel the same tree share the work; none waits for another, and
/// each returns when everything is done. They walk from child to parent by links that exist anyway:
/// there is no recursion, and a tree may be as deep as memory allows.
///
/// Ground rules
///  - The lock guards the list, the links of the hooks on it, and the transition of `state_` from
///    `live`, together with what is written then, `cause_` and `by_deadline_`. These are constant
///    afterwards and are read without the lock. The scope's channel and stop_source are created
///    under the lock while the state is `live`.
///  - state_: live -> closing -> done, or live -> done if there is no channel. It is `closing`
///    while the channel is being closed. A reader, and a thread that cancels second, waits until it
///    is `done`, which takes a few instructions. So the channel is closed if and only if there is
///    an error; and when cancel() returns the channel is closed.
///  - No lock of a scope, a channel or an engine is taken while another is held: trees may be
///    cancelled in any order, from any number of threads.
///  - Two counts. `users` (in the node) are handles, cancellers and children; when the last one is
///    dropped the scope is cancelled, so that no thread waits for it forever. `memory_` counts what
///    may still access the scope: one share for all users together, one each for an armed timer and
///    a listening stop callback, one for each thread that walks through it.
///  - cancel() accesses the scope until it returns, so the caller must hold a share of its memory.
///    That is why it is private. A user holds a share by being a user (cancel_by_user). Anything
///    else, such as a timer or a stop callback, owns a memory_share and cancels through that.
///  - A count that has reached zero never increases again. A new share is taken only by a holder of
///    another share, or under the lock of the parent's list: a scope on that list has not been
///    freed, since its last share is dropped only after it has left the list.
///  - A scope is a user of its parent, so a share of a child keeps the parent's memory, too.
///  - `work_` belongs to the thread that has finished the scope: its list of scopes whose
///    stop_source must be stopped at the end.
///
/// Policy:
///   node                 the base: users, parent, scope
///   scope                the class that derives from scope_tree. It has
///                          bool has_channel(), bool has_source()       under the lock
///                          auto close_channel(), void wake(that)       in state `closing`
///                          void stop_source()                          runs the users' callbacks
///                          void disarm()                               drops the shares given out
///                          void finish_hook(context_hook&)             not a child; unlocks
///   atomic<T>, lock, backoff
///   drop_user(node*)     users.fetch_sub, unused() at zero
///   destroy(scope&), destroy_plain(node&)
///   deadline_exceeded(), cancelled()     the causes if none is given
///   mutation             optional: see scope_mutant
namespace verge::detail {

/// Faults that the explorer's tests inject to show that they are found.
enum class scope_mutant : std::uint8_t {
  none,
  walks_without_share,      ///< settle() enters a child without a share of its memory
  done_before_closed,       ///< the state says done before the channel is closed
  no_second_look,           ///< follow_parent() does not notice that the scope is already done
  returns_before_settled,   ///< a cancel that comes second does not finish what is beneath
  returns_while_closing,    ///< a cancel that comes second does not wait for the channel to close
  forgets_to_leave,         ///< a scope that is done stays on its parent's list
  disarm_drops_always,      ///< disarm drops a share that the timer is still using
  listener_without_claim,   ///< the finishing thread drops the share that a stop callback uses
  stops_while_registering,  ///< a stop during registration is treated like any other
};

template <class Policy>
constexpr bool mutated(scope_mutant m) noexcept {
  if constexpr (requires { Policy::mutation; }) {
    return Policy::mutation == m;
  } else {
    return false;
  }
}

/// A share of a scope's memory: the scope is not freed while it is held.
template <class Scope>
class memory_share {
 public:
  memory_share() noexcept = default;
  /// The caller must hold a share, or the lock of the list that the scope is on.
  explicit memory_share(Scope& s) noexcept : of_(&s) { s.keep_memory(); }
  /// Takes over a share that is already counted.
  static memory_share adopt(Scope& s) noexcept {
    memory_share taken;
    taken.of_ = reference(&s);
    return taken;
  }

  /// Finishes the scope and everything beneath it, if it is not done yet.
  void cancel(bool by_deadline, std::error_code why) const noexcept {
    of_.get()->cancel(by_deadline, why);
  }

 private:
  struct drop {
    void operator()(Scope* s) const noexcept { s->drop_memory(); }
  };
  using reference = owned<Scope*, drop>;

  reference of_;
};

template <class Policy>
class scope_tree : public Policy::node, protected context_hook {
 public:
  using node = typename Policy::node;
  using scope_type = typename Policy::scope;

  scope_tree(const scope_tree&) = delete;
  scope_tree& operator=(const scope_tree&) = delete;

  /// Adds it to its parent's list, or finishes it if the parent is done.
  void follow_parent() noexcept {
    scope_type* const up = parent_scope();
    if (up == nullptr) return;
    if (!up->add(*this)) {
      cancel(up->by_deadline_, up->cause_);
    } else if (state_.load(std::memory_order_acquire) != live &&
               !mutated<Policy>(scope_mutant::no_second_look)) {
      leave_parent();  // finished, by its timer or a stop, before it was on the list
    }
  }

  bool is_done() const noexcept {
    const std::uint8_t s = state_.load(std::memory_order_acquire);
    return s == done || (s == closing && wait_until_done());
  }
  /// Precondition: it is done.
  bool by_deadline() const noexcept { return by_deadline_; }
  std::error_code cause() const noexcept { return cause_; }

  /// Finishes it and everything beneath it, if it is not done yet. The caller must be a user until
  /// this returns. `why` is empty if there is no special cause.
  static void cancel_by_user(scope_type& s, bool by_deadline, std::error_code why) noexcept {
    s.cancel(by_deadline, why);
  }

  bool add(context_hook& h) noexcept {
    const std::lock_guard held(lock_);
    if (!is_live()) return false;
    link(h);
    return true;
  }
  /// Returns whether it was on the list.
  bool remove(context_hook& h) noexcept {
    const std::lock_guard held(lock_);
    if (h.link == nullptr) return false;
    unlink(h);
    return true;
  }
  /// Returns whether its list is empty. For tests.
  bool is_leaf() noexcept {
    const std::lock_guard held(lock_);
    return first_ == nullptr;
  }
  void lock() noexcept { lock_.lock(); }
  void unlock() noexcept { lock_.unlock(); }

  /// No user is left: cancels n, frees it, and then maybe its ancestors. A loop, as the chain may
  /// be long.
  static void unused(node* n) noexcept {
    do {
      node* const up = n->parent;
      if (n->scope == n) {
        auto& s = static_cast<scope_type&>(*n);
        s.cancel(false, {});
        if (!s.drop_share()) return;
        Policy::destroy(s);
      } else {
        Policy::destroy_plain(*n);
      }
      if (up == nullptr || up->users.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
      n = up;
    } while (true);
  }

 protected:
  scope_tree(node* up, scope_type* self, std::error_code deadline_cause) noexcept
      : node{.parent = up, .scope = self},
        context_hook{.what = kind::child},
        cause_(deadline_cause) {}
  ~scope_tree() = default;

  /// Under the lock.
  bool is_live() const noexcept { return state_.load(std::memory_order_relaxed) == live; }
  /// For a scope that only the caller knows: counts a share for memory_share::adopt, or undoes
  /// that.
  void count_shares_alone(std::uint32_t n) noexcept { memory_.store(n, std::memory_order_relaxed); }

  static void unlink(context_hook& h) noexcept {
    *h.link = h.next;
    if (h.next != nullptr) h.next->link = h.link;
    h.link = nullptr;
  }

 private:
  template <class Scope>
  friend class memory_share;
  friend Policy;

  static constexpr std::uint8_t live = 0;
  static constexpr std::uint8_t closing = 1;
  static constexpr std::uint8_t done = 2;

  scope_type& self() noexcept { return static_cast<scope_type&>(*this); }
  scope_type* parent_scope() const noexcept {
    return this->parent == nullptr ? nullptr : this->parent->scope;
  }

  void keep_memory() noexcept { memory_.fetch_add(1, std::memory_order_relaxed); }
  /// Acquire and release: the thread that frees the scope sees all that the others did to it.
  bool drop_share() noexcept { return memory_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  /// Drops a share of the memory, and frees the scope if that was the last one.
  void drop_memory() noexcept {
    if (!drop_share()) return;
    node* const up = this->parent;
    Policy::destroy(self());
    Policy::drop_user(up);
  }

  bool wait_until_done() const noexcept {
    typename Policy::backoff patience;
    while (state_.load(std::memory_order_acquire) != done) patience.wait();
    return true;
  }

  /// The result of finish(): it was already done; it is done now; it is done, and others must be
  /// told.
  enum class finished : std::uint8_t { before, alone, with_others };

  finished finish(bool by_deadline, std::error_code why) noexcept {
    lock();
    if (!is_live()) {
      unlock();
      if (!mutated<Policy>(scope_mutant::returns_while_closing)) wait_until_done();
      return finished::before;
    }
    by_deadline_ = by_deadline;
    if (why || !by_deadline) cause_ = why;
    if (!cause_) cause_ = by_deadline ? Policy::deadline_exceeded() : Policy::cancelled();
    const bool has_channel = self().has_channel();
    // Nothing is added from now on.
    const bool alone = first_ == nullptr && !self().has_source();
    // Release: a thread that reads the state without the lock sees the cause.
    state_.store(has_channel && !mutated<Policy>(scope_mutant::done_before_closed) ? closing : done,
                 std::memory_order_release);
    unlock();
    if (has_channel) {
      auto* const waiting = self().close_channel();
      state_.store(done, std::memory_order_release);
      self().wake(waiting);
    }
    self().disarm();
    return alone ? finished::alone : finished::with_others;
  }

  void cancel(bool by_deadline, std::error_code why) noexcept {
    if (settled_.load(std::memory_order_acquire)) return;
    scope_type* to_stop = nullptr;
    switch (finish(by_deadline, why)) {
      case finished::with_others:
        tell_source_later(to_stop);
        settle(to_stop);
        break;
      case finished::before:
        if (!mutated<Policy>(scope_mutant::returns_before_settled)) settle(to_stop);
        break;
      case finished::alone:
        settled_.store(true, std::memory_order_release);
        break;
    }
    if (!mutated<Policy>(scope_mutant::forgets_to_leave)) leave_parent();
    // User code, which may wait for anything: so only after everything beneath is done. It may also
    // drop the last handle.
    while (to_stop != nullptr) {
      scope_type& s = *std::exchange(to_stop, to_stop->work_);
      s.stop_source();
      s.drop_memory();
    }
  }

  /// Called by the thread that has finished it.
  void tell_source_later(scope_type*& to_stop) noexcept {
    if (!self().has_source()) return;
    keep_memory();
    work_ = to_stop;
    to_stop = &self();
  }

  /// Finishes everything beneath a scope that is done. Of the scopes that it has finished itself,
  /// it leaves those with a stop_source in `to_stop`.
  void settle(scope_type*& to_stop) noexcept {
    for (scope_type* s = &self();;) {
      s->lock();
      context_hook* const h = s->first_;
      if (h == nullptr) {
        s->unlock();
        s->settled_.store(true, std::memory_order_release);
        if (s == this) return;
        scope_type* const up = s->parent->scope;
        up->remove(*s);
        if (!mutated<Policy>(scope_mutant::walks_without_share)) s->drop_memory();
        s = up;
      } else if (h->what == kind::child) {
        auto& child = static_cast<scope_type&>(static_cast<scope_tree&>(*h));
        if (!mutated<Policy>(scope_mutant::walks_without_share)) child.keep_memory();
        s->unlock();
        if (child.finish(s->by_deadline_, s->cause_) != finished::before)
          child.tell_source_later(to_stop);
        s = &child;
      } else {
        s->finish_hook(*h);
      }
    }
  }

  void link(context_hook& h) noexcept {
    h.next = first_;
    h.link = &first_;
    if (first_ != nullptr) first_->link = &h.next;
    first_ = &h;
  }
  void leave_parent() noexcept {
    if (scope_type* const up = parent_scope()) up->remove(*this);
  }

  typename Policy::lock lock_;
  typename Policy::template atomic<std::uint32_t> memory_{1};
  typename Policy::template atomic<std::uint8_t> state_{live};
  /// Done, and the list is empty: nothing is left to do for a thread that cancels.
  typename Policy::template atomic<bool> settled_{false};
  bool by_deadline_{false};
  context_hook* first_{nullptr};
  scope_type* work_{nullptr};
  /// Until it is done, the cause to use if the deadline passes.
  std::error_code cause_;
};

}  // namespace verge::detail
