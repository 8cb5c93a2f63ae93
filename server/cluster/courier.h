// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include <verge/runtime.h>
#include <verge/task.h>

#include "../broker/committer.h"
#include "../push/inbox.h"

namespace verge::server::cluster {

/// Carries dead tasks from the outbox of a shard to their dead-letter tubes, which are in other
/// shards. A task is put there with a key that makes a second put of it nothing (command::once),
/// and only then removed here: whatever fails in between, it arrives, and once. It gets a new id.
///
/// Ground rules: `here_` and `there_` belong to the task in run(); stop() wakes it.
class courier {
 public:
  /// From a shard's committer to all others.
  courier(runtime& rt, command_sink& from, command_sink& to);
  courier(const courier&) = delete;
  courier& operator=(const courier&) = delete;

  /// While the committer runs.
  verge::task<> stop();

 private:
  verge::task<> run();
  verge::task<bool> carry(const handed_out& t);

  command_sink& from_;
  command_sink& to_;
  const std::shared_ptr<push::inbox> here_{std::make_shared<push::inbox>()};
  const std::shared_ptr<push::inbox> clerk_{std::make_shared<push::inbox>()};
  const std::shared_ptr<push::inbox> there_{std::make_shared<push::inbox>()};
  std::atomic<bool> stopping_{false};
  join_handle<> running_;
};

}  // namespace verge::server::cluster
