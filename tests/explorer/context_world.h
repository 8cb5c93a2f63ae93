// SPDX-License-Identifier: Apache-2.0
// context_world: contexts under the explorer: the operations of a few threads on a small tree of
// scopes, and all checks.
//
// The tree (context/scope_tree.h) and the stop listener (context/stop_listener.h) are the real
// ones. Their environment is modelled: a timer is a state that one thread may fire, a stop source
// behaves like std::stop_source with one callback, a channel is open or closed.
//
// Each operation on a handle has its own handle and drops it in the end. So when all threads have
// finished, no scope has a user.
//
//   memory      a scope is not accessed after it was freed, is freed once, and in the end each is
//   cancelled   when cancel returns the scope is done, and so is all that was beneath it
//   channel     it is closed if and only if the scope is done
//   told        a hook is called once, unless it was removed before; a source is stopped once
//   callback    a stop callback is not destroyed while it is constructed, or while another thread
//               runs it
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include <context/scope_tree.h>
#include <context/stop_listener.h>
#include <explorer/explorer.h>
#include <explorer/explorer_policy.h>

namespace verge::test {

using detail::context_hook;
using detail::scope_mutant;

enum class scope_action { cancel, drop, child, listen, fire, stop, look, wait, callback };

struct scope_op {
  scope_action what;
  std::size_t target = 0;
};

struct scope_setup {
  int parent = -1;
  bool channel = false;
  bool source = false;  ///< its stop_token was requested
  bool timer = false;
  bool listens = false;  ///< to the one stop source of the scenario
};

struct scope_scenario {
  std::vector<scope_setup> scopes;
  std::vector<std::vector<scope_op>> threads;
};

inline std::string to_text(const scope_scenario& s) {
  static constexpr const char* names[] = {"cancel", "drop", "child", "listen",  "fire",
                                          "stop",   "look", "wait",  "callback"};
  std::string text;
  for (const scope_setup& one : s.scopes) {
    if (one.parent >= 0) text += std::to_string(one.parent);
    text += '/';
    if (one.channel) text += 'c';
    if (one.source) text += 's';
    if (one.timer) text += 't';
    if (one.listens) text += 'l';
    text += ',';
  }
  for (const auto& thread : s.threads) {
    text += &thread == &s.threads.front() ? " " : "|";
    for (const scope_op& o : thread) {
      if (&o != &thread.front()) text += ";";
      text += names[static_cast<int>(o.what)] + std::to_string(o.target);
    }
  }
  return text;
}

inline void model_touched(const void* p) {
  if (explorer::active() != nullptr) watcher::now->touched(p);
}
[[noreturn]] inline void model_failed(std::string check, std::string detail) {
  explorer::active()->fail(std::move(check), std::move(detail));
}

/// A lock whose memory is checked when it is locked and unlocked.
class scope_lock {
 public:
  void lock() {
    lock_.lock();
    model_touched(this);
  }
  void unlock() {
    model_touched(this);
    lock_.unlock();
  }

 private:
  explored_lock lock_;
};

/// What std::stop_source and std::stop_callback do, for one callback.
class model_stop_source {
 public:
  class callback {
   public:
    explicit callback(model_stop_source* of) : of_(of) {}
    callback(const callback&) = delete;
    virtual ~callback() = default;

   protected:
    void enter() {
      of_->lock_.lock();
      const bool at_once = of_->requested_;
      if (!at_once) of_->registered_ = this;
      of_->lock_.unlock();
      if (at_once) run();
      if (auto* e = explorer::active()) e->point();  // the constructor has not returned yet
      constructed_ = true;
    }
    void leave() {
      if (!constructed_) model_failed("callback", "destroyed while it is constructed");
      of_->lock_.lock();
      const bool was_on = of_->registered_ == this;
      if (was_on) of_->registered_ = nullptr;
      of_->lock_.unlock();
      if (was_on || !runs_) return;
      if (runner_ == explorer::active()->current()) {
        if (destroyed_ != nullptr) *destroyed_ = true;
        return;
      }
      while (!done_.load()) explorer::active()->yield();
    }
    virtual void run() = 0;

   private:
    friend model_stop_source;
    model_stop_source* const of_;
    bool constructed_ = false;
    bool runs_ = false;
    std::size_t runner_ = 0;
    bool* destroyed_ = nullptr;
    explored_atomic<bool> done_{false};
  };

  void request_stop() {
    lock_.lock();
    callback* const c = requested_ ? nullptr : registered_;
    requested_ = true;
    registered_ = nullptr;
    bool destroyed = false;
    if (c != nullptr) {
      c->runs_ = true;
      c->runner_ = explorer::active()->current();
      c->destroyed_ = &destroyed;
    }
    lock_.unlock();
    if (c == nullptr) return;
    explorer::active()->point();
    c->run();
    if (destroyed) return;
    c->destroyed_ = nullptr;
    c->done_.store(true);
  }
  bool is_idle() const { return registered_ == nullptr; }

 private:
  explored_lock lock_;
  bool requested_ = false;
  callback* registered_ = nullptr;
};

struct model_stop_token {
  model_stop_source* of;
  bool stop_possible() const { return of != nullptr; }
};

template <class F>
class model_stop_callback final : public model_stop_source::callback {
 public:
  model_stop_callback(model_stop_token t, F f) : callback(t.of), f_(f) { enter(); }
  ~model_stop_callback() override { leave(); }

 private:
  void run() override {
    const F f = f_;  // it may destroy this
    f();
  }
  F f_;
};

/// A timer with an engine's guarantee: it fires or is stopped, not both. Like the real node, it
/// outlives the scope.
template <class Scope>
class model_timer {
 public:
  void start(Scope& s) {
    state_.reset(armed);
    share_ = detail::memory_share<Scope>(s);
  }
  void fire() {
    if (!move_on(fired)) return;
    share_.cancel(true, {});
    const auto last = std::move(share_);
  }
  void stop(bool drops_always) {
    if (!move_on(stopped) && !drops_always) return;
    const auto last = std::move(share_);
  }

 private:
  static constexpr std::uint8_t none = 0;
  static constexpr std::uint8_t armed = 1;
  static constexpr std::uint8_t fired = 2;
  static constexpr std::uint8_t stopped = 3;

  bool move_on(std::uint8_t to) {
    std::uint8_t expected = armed;
    return state_.compare_exchange_strong(expected, to, std::memory_order_acq_rel,
                                          std::memory_order_acquire);
  }

  explored_atomic<std::uint8_t> state_{none};
  detail::memory_share<Scope> share_;
};

template <class Scope>
struct scope_node {
  explored_atomic<std::uint64_t> users{1};
  scope_node* const parent;
  Scope* const scope;
};

template <scope_mutant Mutation>
class explored_scope;

template <scope_mutant Mutation>
struct explored_scope_policy {
  static constexpr scope_mutant mutation = Mutation;
  using scope = explored_scope<Mutation>;
  using node = scope_node<scope>;
  using tree = detail::scope_tree<explored_scope_policy>;
  template <class T>
  using atomic =  // explored_atomic makes no steps for a 32-bit one
      explored_atomic<std::conditional_t<std::is_same_v<T, std::uint32_t>, std::uint64_t, T>>;
  using lock = scope_lock;
  struct backoff {
    void wait() {
      if (auto* e = explorer::active()) e->yield();
    }
  };
  using stop_token = model_stop_token;
  template <class F>
  using stop_callback = model_stop_callback<F>;

  static void drop_user(node* n) {
    if (n != nullptr && n->users.fetch_sub(1, std::memory_order_acq_rel) == 1) tree::unused(n);
  }
  static void destroy(scope& s) { s.freed(); }
  static void destroy_plain(node&) { std::abort(); }
  static std::error_code deadline_exceeded() { return std::make_error_code(std::errc::timed_out); }
  static std::error_code cancelled() { return std::make_error_code(std::errc::operation_canceled); }
  /// No step.
  static bool is_done(const scope& s) { return s.state_.peek() == tree::done; }
};

struct explored_hook : context_hook {
  int told = 0;
  explored_hook() : context_hook{.what = kind::wait} {}
};

template <scope_mutant Mutation>
class explored_scope : public detail::scope_tree<explored_scope_policy<Mutation>> {
 public:
  using policy = explored_scope_policy<Mutation>;
  using tree = detail::scope_tree<policy>;
  using node = typename policy::node;

  explored_scope(node* up, const scope_setup& how, std::size_t number,
                 model_timer<explored_scope>& timer)
      : tree(up, this, {}),
        number_(number),
        has_channel_(how.channel),
        has_source_(how.source),
        timer_(timer) {
    if (up != nullptr) up->users.fetch_add(1, std::memory_order_relaxed);
    if (how.timer) timer_.start(*this);
  }

  [[nodiscard]] std::size_t number() const { return number_; }
  [[nodiscard]] bool is_freed() const { return freed_; }
  [[nodiscard]] int times_stopped() const { return times_stopped_; }
  [[nodiscard]] bool owns_source() const { return has_source_; }

  void listen(model_stop_source& to) { listener_.listen(*this, {&to}); }
  /// What a thread sees that reads the channel and the state, in either order.
  void look() {
    if (!has_channel_) return;
    const bool closed = closed_.load();
    if (closed && !this->is_done()) model_failed("channel", "closed, and the scope is not done");
    if (this->is_done() && !closed_.load()) model_failed("channel", "done, and it is not closed");
  }
  void freed() {
    if (freed_) model_failed("memory", "freed twice");
    freed_ = true;
  }

 private:
  friend tree;
  friend policy;
  [[nodiscard]] bool has_channel() const { return has_channel_; }
  [[nodiscard]] bool has_source() const { return has_source_; }
  void* close_channel() {
    closed_.store(true);
    return nullptr;
  }
  void wake(void*) {}
  void stop_source() {
    if (auto* e = explorer::active()) e->point();  // users' code
    ++times_stopped_;
  }
  void disarm() {
    listener_.disarm();
    timer_.stop(Mutation == scope_mutant::disarm_drops_always);
  }
  void finish_hook(context_hook& h) {
    this->unlink(h);
    ++static_cast<explored_hook&>(h).told;
    this->unlock();
  }

  const std::size_t number_;
  const bool has_channel_;
  const bool has_source_;
  bool freed_ = false;
  int times_stopped_ = 0;
  explored_atomic<bool> closed_{false};
  model_timer<explored_scope>& timer_;
  detail::stop_listener<policy> listener_;
};

template <scope_mutant Mutation = scope_mutant::none>
class context_world final : public program, public watcher {
 public:
  using scope = explored_scope<Mutation>;
  using policy = explored_scope_policy<Mutation>;

  context_world(explorer& e, const scope_scenario& s) : explorer_(e), scenario_(s) {}

  // ---- program ----

  [[nodiscard]] std::size_t threads() const override { return scenario_.threads.size(); }

  void prepare() override {
    watcher::now = this;
    // The last schedule may have been abandoned at any point: its scopes are not destroyed as
    // scopes, only their memory is freed.
    for (slot& s : slots_) s.used = false;
    source_ = std::make_unique<model_stop_source>();
    hooks_.clear();
    hooks_.reserve(8);
    for (const scope_setup& how : scenario_.scopes) make(how);
    for (const auto& thread : scenario_.threads) {
      for (const scope_op& o : thread) {
        if (has_handle(o)) at(o.target).users.fetch_add(1, std::memory_order_relaxed);
      }
    }
    for (std::size_t i = scenario_.scopes.size(); i-- != 0;) policy::drop_user(&at(i));
  }

  void run(std::size_t i) override {
    for (const scope_op& o : scenario_.threads[i]) {
      perform(o);
      if (has_handle(o)) policy::drop_user(&at(o.target));
    }
  }

  void inspect() override {}

  void finish() override {
    for (slot& s : slots_) {
      if (!s.used) continue;
      scope& one = s.get();
      const std::string name = "scope " + std::to_string(one.number());
      // A listening scope has no user any more, and so is done: it has left the source.
      if (!one.is_freed()) explorer_.fail("memory", name + " is never freed");
      const int stops = one.owns_source() ? 1 : 0;
      if (one.times_stopped() != stops) {
        explorer_.fail("told", name + "'s source was stopped " +
                                   std::to_string(one.times_stopped()) + " times");
      }
    }
    if (!source_->is_idle()) explorer_.fail("callback", "still registered without a listener");
    for (const auto& h : hooks_) {
      if (h->told != 1) {
        explorer_.fail("told", "a hook was told " + std::to_string(h->told) + " times");
      }
    }
  }

  // ---- watcher ----

  void touched(const void* p) override {
    const slot* const s = slot_of(p);
    if (s != nullptr && s->used && s->get().is_freed()) {
      explorer_.fail("memory", "scope " + std::to_string(s->get().number()) +
                                   " is touched after it was freed");
    }
  }
  std::string name_of(const void* p) override {
    const slot* const s = slot_of(p);
    if (s == nullptr) return "a timer or the stop source";
    const auto offset = static_cast<const std::byte*>(p) - s->bytes;
    return "scope " + std::to_string(s->get().number()) + "+" + std::to_string(offset);
  }

 private:
  static constexpr std::size_t most_scopes = 8;
  /// Memory for one scope. It stays readable after the scope is freed, so that an access is
  /// reported.
  struct slot {
    alignas(scope) std::byte bytes[sizeof(scope)];
    std::optional<model_timer<scope>> timer;
    bool used = false;
    scope& get() { return *std::launder(reinterpret_cast<scope*>(bytes)); }
    const scope& get() const { return *std::launder(reinterpret_cast<const scope*>(bytes)); }
  };

  const slot* slot_of(const void* p) const {
    const auto* at = static_cast<const std::byte*>(p);
    for (const slot& s : slots_)
      if (at >= s.bytes && at < s.bytes + sizeof s.bytes) return &s;
    return nullptr;
  }
  scope& at(std::size_t i) { return slots_[i].get(); }

  static bool has_handle(const scope_op& o) {
    return o.what != scope_action::fire && o.what != scope_action::stop;
  }

  scope& make(const scope_setup& how) {
    const auto free =
        std::find_if(std::begin(slots_), std::end(slots_), [](const slot& s) { return !s.used; });
    const auto number = static_cast<std::size_t>(free - std::begin(slots_));
    free->used = true;
    scope* const up = how.parent < 0 ? nullptr : &at(static_cast<std::size_t>(how.parent));
    scope& made =
        *::new (static_cast<void*>(free->bytes)) scope(up, how, number, free->timer.emplace());
    if (how.listens) made.listen(*source_);
    made.follow_parent();
    return made;
  }

  void perform(const scope_op& o) {
    switch (o.what) {
      case scope_action::cancel:
        policy::tree::cancel_by_user(at(o.target), false, {});
        for (std::size_t i = 0; i < scenario_.scopes.size(); ++i) {
          if (is_beneath(i, o.target) && !at(i).is_freed() && !policy::is_done(at(i))) {
            explorer_.fail("cancelled", "scope " + std::to_string(i) + " is not done after cancel");
          }
        }
        return;
      case scope_action::drop:
        return;
      case scope_action::child:
      case scope_action::listen: {
        scope_setup how{.parent = static_cast<int>(o.target), .source = true};
        how.listens = o.what == scope_action::listen;
        return policy::drop_user(&make(how));
      }
      case scope_action::fire:
        return slots_[o.target].timer->fire();
      case scope_action::stop:
        return source_->request_stop();
      case scope_action::look:
        return at(o.target).look();
      case scope_action::wait: {
        explored_hook hook;
        if (!at(o.target).add(hook)) return;
        const bool was_on = at(o.target).remove(hook);
        if (hook.told != (was_on ? 0 : 1)) explorer_.fail("told", "a hook that was removed");
        return;
      }
      case scope_action::callback: {  // as one that was detached
        hooks_.push_back(std::make_unique<explored_hook>());
        explored_hook& hook = *hooks_.back();
        if (!at(o.target).add(hook)) hook.told = 1;
        return;
      }
    }
  }

  /// Returns whether scope i is the root, or was derived from it.
  bool is_beneath(std::size_t i, std::size_t root) const {
    for (int up = static_cast<int>(i); up >= 0;
         up = scenario_.scopes[static_cast<std::size_t>(up)].parent) {
      if (static_cast<std::size_t>(up) == root) return true;
    }
    return false;
  }

  explorer& explorer_;
  const scope_scenario& scenario_;
  slot slots_[most_scopes];
  std::unique_ptr<model_stop_source> source_;
  std::vector<std::unique_ptr<explored_hook>> hooks_;
};

}  // namespace verge::test
