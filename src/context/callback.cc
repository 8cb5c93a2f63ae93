// SPDX-License-Identifier: Apache-2.0

// after_func on a context: the function is in the node of a timer that is never started, and the
// scope fires it. So queueing it, its end, and waiting for its end work as for every timer
// (timer/callback.cc).
//
// Ground rules
//  - The handle has the record, and through it a reference to the node and a user reference to the
//    context. When the scope is done, the thread that removes the record from the scope's list
//    takes a reference to the node for the call, under the scope's lock.
//  - Without a handle the record belongs to the scope's list, which has the handle's reference to
//    the node; it is not a user of the context, as that would be a reference cycle.

#include <exception>
#include <stdexcept>

#include <context/scope.h>
#include <engine/clockwork.h>
#include <timer/callback.h>

namespace verge::detail {

namespace {

context_scope* scope_of(const context_callback_record& r) noexcept {
  return r.of == nullptr ? nullptr : r.of->scope;
}

/// The node of a function that is on no list.
void end_node(timer_node& t) noexcept {
  if (!clockwork::of(t).given_up()) end_function(t);
}

}  // namespace

void run_context_callback(timer_node& t) noexcept {
  clockwork& of = clockwork::of(t);
  if (of.forked()) return;
  if (of.closing()) return of.release(t);  // no thread would run it
  take_callback(t, 0);
}

context_callback_record* start_context_callback(context_node* n, timer_node& t) {
  context_callback_record* r = nullptr;
  try {
    r = new context_callback_record(n, t);
  } catch (...) {
    end_node(t);
    throw;
  }
  add_user(n);
  context_scope* const scope = scope_of(*r);
  if (scope == nullptr) {
    r->waits_forever = true;
  } else if (!scope->add(*r)) {
    t.refs.fetch_add(1, std::memory_order_relaxed);
    run_context_callback(t);
  }
  return r;
}

bool stop_context_callback(context_callback_record& r) noexcept {
  context_scope* const scope = scope_of(r);
  return scope == nullptr ? std::exchange(r.waits_forever, false) : scope->remove(r);
}

void destroy_context_callback(context_callback_record& r) noexcept {
  stop_context_callback(r);
  end_node(*r.function);
  drop_user(r.of);
  delete &r;
}

void detach_context_callback(context_callback_record& r) noexcept {
  context_node* const of = r.of;
  timer_node& t = *r.function;
  context_scope* const scope = scope_of(r);
  bool waits = false;
  if (scope != nullptr) {
    scope->lock();
    waits = r.link != nullptr;
    r.detached = waits;  // maybe freed as soon as the lock is free
    scope->unlock();
  }
  if (!waits) {
    // It was called, is about to be, or never will be.
    if (!clockwork::of(t).forked()) clockwork::of(t).release(t);
    delete &r;
  }
  drop_user(of);
}

void throw_no_context_callback() {
  throw std::logic_error(
      "verge: this context_callback is empty: give the handle a function first, from "
      "verge::after_func(ctx, f)");
}

void throw_no_context() {
  throw std::logic_error(
      "verge: this canceller is empty: it was moved from or detached, or never had a context; "
      "with_cancel, with_timeout and with_deadline return one that has");
}

}  // namespace verge::detail
