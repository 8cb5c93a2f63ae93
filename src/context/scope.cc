// SPDX-License-Identifier: Apache-2.0

#include <context/scope.h>

#include <mutex>
#include <new>

#include <engine/clockwork.h>

namespace verge::detail {

// ---- The deadline -------------------------------------------------------------------------------

/// The timer's payload is a share of the scope's memory.
struct scope_timer {
  using share = memory_share<context_scope>;

  static share& payload(timer_node& t) noexcept {
    return *std::launder(reinterpret_cast<share*>(t.payload));
  }
  static void passed(timer_node& t) { payload(t).cancel(true, {}); }
  static void bury(timer_node& t) noexcept { payload(t).~share(); }
  static void nothing(timer_node&, std::int64_t) noexcept {}

  /// A callback (timer/callback.cc), as a large tree takes a while to finish and must not delay
  /// other timers.
  static constexpr timer_behaviour armed{.fire = &fire_callback,
                                         .invoke = &passed,
                                         .destroy = &bury,
                                         .take = &take_callback,
                                         .written = "deadline of a context"};
  /// Stopped: it has dropped its share of the scope.
  static constexpr timer_behaviour stopped{.fire = &nothing, .invoke = nullptr, .destroy = nullptr};
};

void context_scope::arm(clockwork& of) {
  timer_node& t = of.make();
  count_shares_alone(2);
  ::new (static_cast<void*>(t.payload)) scope_timer::share(scope_timer::share::adopt(*this));
  t.run = &run_callback;
  t.does.store(&named_behaviour(scope_timer::armed, nullptr, nullptr), std::memory_order_relaxed);
  timer_ = &t;
  try {
    of.start(t, deadline_, 0);
  } catch (...) {
    // The caller destroys the scope, whatever the number of shares is. The payload is left
    // unchanged: the node ends without its destructor.
    timer_ = nullptr;
    of.free(t);
    throw;
  }
}

/// Called by the thread that has finished the scope, which holds its own share.
void context_scope::disarm() noexcept {
  if (listens_) static_cast<stopped_scope&>(*this).unlisten();
  if (timer_ == nullptr) return;
  timer_node& t = *timer_;
  clockwork& of = clockwork::of(t);
  if (of.forked()) return;  // its locks may be held by threads that do not exist in this process
  // The scope has others to tell before user code may run.
  if (of.stop(t, clear_up_later())) {
    // A queue may keep the node for long; the scope's memory need not wait for that.
    t.does.store(&scope_timer::stopped, std::memory_order_release);
    scope_timer::bury(t);
  }
  of.release(t);
}

// ---- The scope ----------------------------------------------------------------------------------

context_scope::context_scope(context_node* up, std::int64_t deadline,
                             std::error_code deadline_cause) noexcept
    : scope_tree(up, this, deadline_cause), deadline_(deadline) {
  add_user(up);
}

context_scope::~context_scope() {
  // Detached callbacks stay on a scope's list until it is done, and unused() has finished it.
  if (channel_ != nullptr) channel_state::drop(channel_);
}

void scope_policy::destroy(context_scope& s) noexcept {
  if (s.listens_) {
    delete &static_cast<stopped_scope&>(s);
  } else {
    delete &s;
  }
}

void context_scope::dropper::operator()(context_scope* s) const noexcept {
  context_node* const up = s->parent;
  scope_policy::destroy(*s);
  drop_user(up);
}

void context_unused(context_node& n) noexcept { context_scope::unused(&n); }

/// Removes h, which is not a child, from the list, unlocks, and performs its action.
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
  // A detached record has the reference of its former handle.
  if (!detached) function.refs.fetch_add(1, std::memory_order_relaxed);
  unlock();
  run_context_callback(function);
  if (detached) delete &record;
}

receiver<context_done> context_scope::channel() {
  const auto free_if_spare = [](channel_state* c) noexcept { channel_state::drop(c); };
  std::unique_ptr<channel_state, decltype(free_if_spare)> made(nullptr, free_if_spare);
  for (;;) {
    {
      const std::lock_guard held(*this);
      if (channel_ == nullptr && !is_live()) break;
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
      const std::lock_guard held(*this);
      if (!source_.stop_possible() && !is_live()) break;
      if (!source_.stop_possible()) source_.swap(made);
      if (source_.stop_possible()) return source_.get_token();
    }
    made = std::stop_source();
  }
  return stopped_token();
}

}  // namespace verge::detail
