// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <mutex>
#include <utility>

#include <verge/chan.h>
#include <verge/task.h>

#include "../broker/client.h"

namespace verge::server::push {

/// A client that is a part of the server: replies wait until its task takes them.
///
/// Ground rules: `replies_` is under `lock_`: the committer appends, one task takes. `woken_` holds
/// at most one value, which says that there may be something: a reply, or that wake() was called.
class inbox final : public client {
 public:
  inbox() noexcept : client(leases::internal) {}

  void deliver(reply r) override {
    std::lock_guard held(lock_);
    replies_.push_back(std::move(r));
  }
  void flush() noexcept override { wake(); }
  void left() noexcept override { wake(); }

  /// Ends a wait(), from any thread.
  void wake() noexcept { static_cast<void>(woken_.try_send(true)); }
  /// Until there may be something. It may be nothing.
  verge::task<> wait() { static_cast<void>(co_await recv(woken_)); }

  std::deque<reply> take() {
    std::lock_guard held(lock_);
    return std::exchange(replies_, {});
  }

 private:
  std::mutex lock_;
  std::deque<reply> replies_;
  chan<bool> woken_{1};
};

/// One that gives commands whose replies do not matter.
class deaf_client final : public client {
 public:
  deaf_client() noexcept : client(leases::internal) {}
  void deliver(reply) override {}
  void flush() noexcept override {}
  void left() noexcept override {}
};

}  // namespace verge::server::push
