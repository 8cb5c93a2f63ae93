// after_func on a context: the function sits in a timer's node that is never started, and what
// fires it is the scope. So its turn on a run queue, its end and who waits for that are as with
// every timer (timer/callback.cc).
//
// Ground rules
//  - The handle has the record, and through it a reference to the node and one as a user of the
//    context. Whoever takes the record off the scope's list, as the scope is done, takes a
//    reference to the node for the call, under the scope's lock.
//  - Without a handle the record belongs to the scope's list, which has the handle's reference to
//    the node; and it is no user of the context, for the two would keep each other.

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

/// The node of a function that no list knows.
void end_node(timer_node& t) noexcept {
  if (!clockwork::of(t).given_up()) end_function(t);
}

}  // namespace

void run_context_callback(timer_node& t) noexcept {
  clockwork& of = clockwork::of(t);
  if (of.forked()) return;
  if (of.closing()) return of.release(t);  // nobody would run it
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
    r->waits_for_ever = true;
  } else if (!scope->add(*r)) {
    t.refs.fetch_add(1, std::memory_order_relaxed);
    run_context_callback(t);
  }
  return r;
}

bool stop_context_callback(context_callback_record& r) noexcept {
  context_scope* const scope = scope_of(r);
  return scope == nullptr ? std::exchange(r.waits_for_ever, false) : scope->remove(r);
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
    r.detached = waits;  // gone, perhaps, as soon as the lock is free
    scope->unlock();
  }
  if (!waits) {
    // It has been called, or is about to be, or never will.
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
