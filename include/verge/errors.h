// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <stdexcept>

#pragma GCC visibility push(default)

/// The exceptions of tasks and channels.
namespace verge {

/// Thrown inside a cancelled task by the operation that it waits in or starts next.
///
/// Let it propagate: it ends the task, destructors clean up, and joining the task rethrows it. If
/// the task is not joined, the exception is dropped silently.
class cancelled : public std::exception {
 public:
  const char* what() const noexcept override;  ///< says what to do: let it end the task
};

/// Thrown by a send to a closed channel and by a second close.
class chan_closed : public std::logic_error {
 public:
  using std::logic_error::logic_error;
  ~chan_closed() override;
};

}  // namespace verge

#pragma GCC visibility pop
