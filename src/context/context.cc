// SPDX-License-Identifier: Apache-2.0

// The handles of context.h.

#include <verge/context.h>

#include <memory>
#include <string>

#include <context/scope.h>
#include <engine/clockwork.h>
#include <verge/under.h>

namespace verge {

namespace {

using detail::context_access;
using detail::context_node;
using detail::context_scope;

class category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "verge.context"; }
  std::string message(int code) const override {
    switch (static_cast<context_errc>(code)) {
      case context_errc::cancelled:
        return "the context was cancelled";
      case context_errc::deadline_exceeded:
        return "the context's deadline has passed";
    }
    return "not an error of a context: " + std::to_string(code);
  }
  std::error_condition default_error_condition(int code) const noexcept override {
    switch (static_cast<context_errc>(code)) {
      case context_errc::cancelled:
        return std::errc::operation_canceled;
      case context_errc::deadline_exceeded:
        return std::errc::timed_out;
    }
    return {code, *this};
  }
};

/// Adds the scope to the tree and creates its two handles.
cancellable handles_of(context_scope& s) noexcept {
  s.users.store(2, std::memory_order_relaxed);
  s.follow_parent();
  return context_access::both(&s);
}

std::int64_t deadline_of(const context& c) noexcept {
  const context_scope* const s = context_access::scope(c);
  return s == nullptr ? 0 : s->deadline();
}

cancellable with_deadline_at(const context& parent, detail::clockwork& of, std::int64_t when,
                             bool has_passed, std::error_code cause) {
  const std::int64_t parents = deadline_of(parent);
  // The parent handles a deadline that is its own.
  if (!has_passed && parents != 0 && parents <= when) return with_cancel(parent);
  auto s = context_scope::make(parent, when, cause);
  const bool parent_is_done = bool{parent.err()};
  if (!parent_is_done && !has_passed && when != detail::never) s->arm(of);
  cancellable made = handles_of(*s.release());
  if (has_passed) context_scope::cancel_by_user(*context_access::scope(made.ctx), true, {});
  return made;
}

/// A node that is not a scope and has no value.
void end_plain(context_node& n) noexcept { delete &n; }

}  // namespace

const std::error_category& context_category() noexcept {
  static const category c;
  return c;
}

std::error_code context::err() const noexcept {
  const context_scope* const s = context_access::scope(*this);
  if (s == nullptr || !s->is_done()) return {};
  return s->by_deadline() ? context_errc::deadline_exceeded : context_errc::cancelled;
}

std::error_code context::cause() const noexcept {
  const context_scope* const s = context_access::scope(*this);
  return s == nullptr || !s->is_done() ? std::error_code() : s->cause();
}

std::optional<time_point> context::deadline() const noexcept {
  const std::int64_t when = deadline_of(*this);
  if (when == 0) return std::nullopt;
  return time_point(clock::duration(when));
}

receiver<context_done> context::done() const {
  if (context_scope* const s = context_access::scope(*this)) return s->channel();
  // Never closed, and never destroyed: threads that outlive main() may wait for it.
  static const auto* const open = new receiver<context_done>(chan<context_done>());
  return *open;
}

std::stop_token context::stop_token() const {
  context_scope* const s = context_access::scope(*this);
  return s == nullptr ? std::stop_token() : s->token();
}

cancellable with_cancel(const context& parent) {
  return handles_of(*context_scope::make(parent, deadline_of(parent), {}).release());
}

cancellable with_stop_token(const context& parent, std::stop_token token) {
  auto s = context_scope::make<detail::stopped_scope>(parent, deadline_of(parent), {});
  s->listen(std::move(token));
  return handles_of(*s.release());
}

const char* context_error::what() const noexcept {
  return code_ == context_errc::deadline_exceeded
             ? "verge::context_error: the deadline of the context has passed"
             : "verge::context_error: the context was cancelled";
}

context without_cancel(const context& parent) {
  context_node* const up = context_access::node(parent);
  auto* const n = new context_node{.parent = up, .scope = nullptr, .destroy = &end_plain};
  detail::add_user(up);
  return context_access::handle(n);
}

namespace detail {

cancellable context_with_timeout(clockwork& of, const context& parent, std::int64_t delay,
                                 std::error_code cause) {
  return with_deadline_at(parent, of, of.deadline(delay), delay <= 0, cause);
}

cancellable context_with_deadline(clockwork& of, const context& parent, std::int64_t when,
                                  std::error_code cause) {
  return with_deadline_at(parent, of, as_time(when), when <= of.now(), cause);
}

bool scope_is_done(const context_scope& s) noexcept { return s.is_done(); }

void cancel_scope(context_scope& s, std::error_code cause) noexcept {
  context_scope::cancel_by_user(s, false, cause);
}

bool join_scope(context_scope& s, context_wait& wait, waiter& w, std::uint32_t ticket) noexcept {
  wait.party = &w;
  wait.ticket = ticket;
  return s.add(wait);
}

void leave_scope(context_scope& s, context_wait& wait) noexcept { s.remove(wait); }

receiver<context_done> closed_channel() {
  static const auto* const closed = [] {
    const chan<context_done> c;
    c.close();
    return new receiver<context_done>(c);
  }();
  return *closed;
}

std::stop_token stopped_token() {
  static const auto* const stopped = [] {
    auto* const source = new std::stop_source;
    source->request_stop();
    return source;
  }();
  return stopped->get_token();
}

void throw_context_done(const context& ctx) { throw context_error(ctx); }

}  // namespace detail
}  // namespace verge
