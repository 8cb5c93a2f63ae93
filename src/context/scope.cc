#include <context/scope.h>

#include <mutex>
#include <new>

#include <timer/clockwork.h>

namespace verge::detail {

// ---- The deadline -------------------------------------------------------------------------------

/// The timer's payload is the scope, with a share of its memory.
struct scope_timer {
  static context_scope*& payload(timer_node& t) noexcept {
    return *std::launder(reinterpret_cast<context_scope**>(t.payload));
  }
  static void passed(timer_node& t) { payload(t)->cancel(true, {}); }
  static void bury(timer_node& t) noexcept { payload(t)->drop_memory(); }
  static void nothing(timer_node&, std::int64_t) noexcept {}

  /// A callback (timer/callback.cc), for a large tree is not finished in no time, and others'
  /// timers must not wait for it.
  static constexpr timer_behaviour armed{
      .fire = &fire_callback, .invoke = &passed, .destroy = &bury, .take = &take_callback};
  /// Stopped: it has given back what it had of the scope.
  static constexpr timer_behaviour stopped{.fire = &nothing, .invoke = nullptr, .destroy = nullptr};
};

void context_scope::arm(clockwork& of) {
  timer_node& t = of.make();
  ::new (static_cast<void*>(t.payload)) context_scope*(this);
  t.run = &run_callback;
  t.does.store(&scope_timer::armed, std::memory_order_relaxed);
  timer_ = &t;
  memory_.store(2, std::memory_order_relaxed);  // nobody else knows the scope
  try {
    of.start(t, deadline_, 0);
  } catch (...) {
    timer_ = nullptr;
    memory_.store(1, std::memory_order_relaxed);
    of.free(t);
    throw;
  }
  of.clear_up();
}

/// For the one who has finished the scope.
void context_scope::disarm() noexcept {
  if (timer_ == nullptr) return;
  timer_node& t = *timer_;
  clockwork& of = clockwork::of(t);
  if (of.forked()) return;  // its locks may be held by threads that are no more
  if (of.stop(t)) {
    // A queue may still know the node, for long; the scope's memory need not wait for that.
    t.does.store(&scope_timer::stopped, std::memory_order_release);
    drop_memory();
  }
  of.release(t);
}

// ---- Being done ---------------------------------------------------------------------------------

context_scope::context_scope(context_node* up, std::int64_t deadline,
                             std::error_code deadline_cause) noexcept
    : context_node{.parent = up, .scope = this},
      context_hook{.what = kind::child},
      deadline_(deadline),
      cause_(deadline_cause) {
  add_user(up);
}

context_scope::~context_scope() {
  // Callbacks that were detached hang on a scope until it is done, and unused() has finished it.
  if (channel_ != nullptr) channel_state::drop(channel_);
}

bool context_scope::wait_until_done() const noexcept {
  backoff patience;
  while (state_.load(std::memory_order_acquire) != done) patience.wait();
  return true;
}

context_scope::finished context_scope::finish(bool by_deadline, std::error_code why) noexcept {
  lock();
  if (state_.load(std::memory_order_relaxed) != live) {
    unlock();
    return finished::before;
  }
  by_deadline_ = by_deadline;
  if (why || !by_deadline) cause_ = why;
  if (!cause_) cause_ = by_deadline ? context_errc::deadline_exceeded : context_errc::cancelled;
  channel_state* const channel = channel_;
  // Nobody and nothing is added from now on.
  const bool alone = first_ == nullptr && !source_.stop_possible();
  // Release: who reads the state without the lock sees the cause.
  state_.store(channel == nullptr ? done : closing, std::memory_order_release);
  unlock();
  if (channel != nullptr) {
    wait_node* const waiting = channel->close_in_silence();
    state_.store(done, std::memory_order_release);
    chan_base::wake_all(waiting);
  }
  disarm();
  return alone ? finished::alone : finished::with_others;
}

void context_scope::cancel(bool by_deadline, std::error_code why) noexcept {
  if (settled_.load(std::memory_order_acquire)) return;
  context_scope* to_stop = nullptr;
  switch (finish(by_deadline, why)) {
    case finished::with_others:
      // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDelete): the caller has a share of the memory
      tell_source_later(to_stop);
      [[fallthrough]];
    case finished::before:
      settle(to_stop);
      break;
    case finished::alone:
      settled_.store(true, std::memory_order_release);
      break;
  }
  leave_parent();  // NOLINT(clang-analyzer-cplusplus.NewDelete): likewise
  // Users' code, which may wait for anything: so only when all that is beneath is done. It may also
  // drop the last handle.
  while (to_stop != nullptr) {
    context_scope& s = *std::exchange(to_stop, to_stop->work_);
    s.source_.request_stop();
    s.drop_memory();
  }
}

/// For the one who has finished it.
void context_scope::tell_source_later(context_scope*& to_stop) noexcept {
  if (!source_.stop_possible()) return;
  keep_memory();
  work_ = to_stop;
  to_stop = this;
}

/// Finishes all that is beneath a scope that is done. Of those that it has finished itself it
/// leaves in `to_stop` the ones with a stop_source.
void context_scope::settle(context_scope*& to_stop) noexcept {
  for (context_scope* s = this;;) {
    s->lock();
    context_hook* const h = s->first_;
    if (h == nullptr) {
      s->unlock();
      s->settled_.store(true, std::memory_order_release);
      if (s == this) return;
      context_scope* const up = s->parent->scope;
      up->remove(*s);
      s->drop_memory();
      s = up;
    } else if (h->what == kind::child) {
      auto& child = static_cast<context_scope&>(*h);
      child.keep_memory();
      s->unlock();
      if (child.finish(s->by_deadline_, s->cause_) != finished::before)
        child.tell_source_later(to_stop);
      s = &child;
    } else {
      s->finish_hook(*h);
    }
  }
}

/// Takes h, which is no child, off the list, lets go of the lock, and does what h is there for.
void context_scope::finish_hook(context_hook& h) noexcept {
  unlink(h);
  if (h.what == kind::wait) {
    auto& wait = static_cast<context_wait&>(h);
    waiter* const party = wait.party;
    const bool won = party->claim(wait.ticket);
    unlock();
    if (won) party->wake();
    return;
  }
  auto& record = static_cast<context_callback_record&>(h);
  timer_node& function = *record.function;
  const bool detached = record.detached;
  // A detached one has the reference that was its handle's.
  if (!detached) function.refs.fetch_add(1, std::memory_order_relaxed);
  unlock();
  run_context_callback(function);
  if (detached) delete &record;
}

// ---- The tree -----------------------------------------------------------------------------------

void context_scope::link(context_hook& h) noexcept {
  h.next = first_;
  h.link = &first_;
  if (first_ != nullptr) first_->link = &h.next;
  first_ = &h;
}

void context_scope::unlink(context_hook& h) noexcept {
  *h.link = h.next;
  if (h.next != nullptr) h.next->link = h.link;
  h.link = nullptr;
}

bool context_scope::add(context_hook& h) noexcept {
  const std::lock_guard held(lock_);
  if (state_.load(std::memory_order_relaxed) != live) return false;
  link(h);
  return true;
}

bool context_scope::remove(context_hook& h) noexcept {
  const std::lock_guard held(lock_);
  if (h.link == nullptr) return false;
  unlink(h);
  return true;
}

void context_scope::follow_parent() noexcept {
  context_scope* const up = parent == nullptr ? nullptr : parent->scope;
  if (up == nullptr) return;
  if (!up->add(*this)) {
    cancel(up->by_deadline_, up->cause_);
  } else if (state_.load(std::memory_order_acquire) != live) {
    // Its deadline has passed before it was on the list.
    leave_parent();
  }
}

void context_scope::leave_parent() noexcept {
  if (parent != nullptr && parent->scope != nullptr) parent->scope->remove(*this);
}

// ---- Its end ------------------------------------------------------------------------------------

void context_scope::end(context_scope& s) noexcept {
  context_node* const up = s.parent;
  delete &s;
  drop_user(up);
}

/// In a loop, for the chain may be long.
void context_scope::unused(context_node* n) noexcept {
  do {
    context_node* const up = n->parent;
    if (n->scope == n) {
      auto& s = static_cast<context_scope&>(*n);
      s.cancel(false, {});
      if (!s.drop_share()) return;
      delete &s;
    } else {
      n->destroy(*n);
    }
    if (up == nullptr || up->users.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    n = up;
  } while (true);
}

void context_unused(context_node& n) noexcept { context_scope::unused(&n); }

receiver<context_done> context_scope::channel() {
  const auto free_if_spare = [](channel_state* c) noexcept { channel_state::drop(c); };
  std::unique_ptr<channel_state, decltype(free_if_spare)> made(nullptr, free_if_spare);
  for (;;) {
    {
      const std::lock_guard held(lock_);
      const bool is_live = state_.load(std::memory_order_relaxed) == live;
      if (channel_ == nullptr && !is_live) break;
      if (channel_ == nullptr) channel_ = made.release();
      if (channel_ != nullptr) {
        channel_->add_reference();
        return chan_access::handle<receiver<context_done>>(channel_);
      }
    }
    made.reset(channel_state::make(0));
  }
  return closed_channel();
}

std::stop_token context_scope::token() {
  std::stop_source made(std::nostopstate);
  for (;;) {
    {
      const std::lock_guard held(lock_);
      const bool is_live = state_.load(std::memory_order_relaxed) == live;
      if (!source_.stop_possible() && !is_live) break;
      if (!source_.stop_possible()) source_.swap(made);
      if (source_.stop_possible()) return source_.get_token();
    }
    made = std::stop_source();
  }
  return stopped_token();
}

}  // namespace verge::detail
