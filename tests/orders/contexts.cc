// SPDX-License-Identifier: Apache-2.0

// Contexts: what a thread that sees that one is done may rely on, and when its memory is freed.
// Those that follow a std::stop_token are left out: that waits by means of the standard library's
// own, which is not under the model.

#include <orders/scene.h>

#include <verge/context.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

namespace verge::orders {
namespace {

const std::error_code why = std::make_error_code(std::errc::address_in_use);

/// A context, its canceller, and something that is written before it is cancelled. The model
/// finds an access to memory that was freed.
template <std::size_t Threads = 2>
class context_scene : public scene_of<Threads> {
 protected:
  context_scene() : made_(with_cancel(context())) {}

  void cancel() {
    written_ = 1;
    made_.cancel(why);
    require(made_.ctx.err() == context_errc::cancelled, "done when cancel() returns");
  }
  /// What holds of a context that this thread has seen to be done.
  void is_done(const context& c) const {
    require(c.cause() == why, "the cause is there");
    require(written_ == 1, "what was written before");
  }

  cancellable made_;
  int written_ = 0;
};

/// A thread only looks.
class cancel_and_look : public context_scene<> {
 public:
  void run(std::size_t i) override {
    if (i == 0) return cancel();
    if (made_.ctx.err()) is_done(made_.ctx);
  }
};

/// One that waits on the channel, which is made by whichever thread comes first.
class cancel_and_wait : public context_scene<> {
 public:
  void run(std::size_t i) override {
    if (i == 0) return cancel();
    require(!made_.ctx.done().recv(), "the channel is closed");
    is_done(made_.ctx);
  }
};

/// Two threads cancel, each with a cause: one of these is the cause, and both see that it is done.
class cancel_twice : public context_scene<3> {
 public:
  void run(std::size_t i) override {
    if (i == 2) {
      if (made_.ctx.err()) {
        const auto cause = made_.ctx.cause();
        require(cause == why || cause == context_errc::cancelled, "one of the causes");
      }
    } else if (i == 0) {
      made_.cancel(why);
    } else {
      made_.cancel();
    }
    if (i != 2) require(static_cast<bool>(made_.ctx.err()), "done when cancel() returns");
  }
};

/// A child is made while its parent is cancelled: it is done when the parent's cancel() has
/// returned and it exists.
class child_of_the_cancelled : public context_scene<> {
 public:
  void run(std::size_t i) override {
    if (i == 0) return cancel();
    child_.emplace(with_cancel(made_.ctx));
    if (child_->ctx.err()) is_done(child_->ctx);
  }
  void finish() override { is_done(child_->ctx); }

 private:
  std::optional<cancellable> child_;
};

/// A child is dropped while its parent is cancelled.
class child_that_ends : public context_scene<> {
 public:
  child_that_ends() { child_.emplace(with_cancel(made_.ctx)); }
  void run(std::size_t i) override {
    if (i == 0) return cancel();
    child_.reset();
  }

 private:
  std::optional<cancellable> child_;
};

/// Two threads cancel a parent: when either one's cancel() has returned the child is done.
class child_of_two_cancels : public context_scene<> {
 public:
  child_of_two_cancels() : child_(with_cancel(made_.ctx)) {}
  void run(std::size_t /*i*/) override {
    made_.cancel(why);
    require(static_cast<bool>(child_.ctx.err()), "the child is done when cancel() returns");
  }

 private:
  cancellable child_;
};

/// A parent whose handles are dropped by one thread, and its child by another: the last one frees
/// both.
class parent_and_child : public scene_of<2> {
 public:
  parent_and_child() {
    parent_.emplace(with_cancel(context()));
    child_.emplace(with_cancel(parent_->ctx));
  }
  void run(std::size_t i) override { (i == 0 ? parent_ : child_).reset(); }

 private:
  std::optional<cancellable> parent_, child_;
};

/// The last handles are dropped by different threads: the last one frees it.
class last_handles : public scene_of<3> {
 public:
  last_handles() {
    auto made = with_cancel(context());
    first_.emplace(made.ctx);
    second_.emplace(made.ctx);
    canceller_.emplace(std::move(made.cancel));
  }
  void run(std::size_t i) override {
    if (i == 0) return canceller_.reset();
    auto& mine = i == 1 ? first_ : second_;
    static_cast<void>(mine->err());
    mine.reset();
  }

 private:
  std::optional<context> first_, second_;
  std::optional<canceller> canceller_;
};

}  // namespace

std::vector<scene_kind> context_scenes() {
  return {
      kind<cancel_and_look>("context, looked at", 3),
      kind<cancel_and_wait>("context, waited for", 2, 1),
      kind<cancel_twice>("context, cancelled twice", 2, 1),
      kind<child_of_the_cancelled>("context, a child of the cancelled", 2, 1),
      kind<child_that_ends>("context, a child that ends", 2, 1),
      kind<child_of_two_cancels>("context, a child of two cancels", 2, 1),
      kind<parent_and_child>("context, parent and child", 2, 1),
      kind<last_handles>("context, the last handles", 2, 1),
  };
}

}  // namespace verge::orders
