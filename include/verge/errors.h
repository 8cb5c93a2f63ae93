#pragma once

#include <exception>
#include <stdexcept>

#pragma GCC visibility push(default)

/// What the operations of tasks and channels throw.
namespace verge {

/// Thrown inside a task that has been cancelled, by the operation it waits in or starts next.
///
/// Let it through: it ends the task, destructors clean up on the way, and whoever joins the task
/// gets it. Nobody is told when it ends a task that nobody joins.
class cancelled : public std::exception {
 public:
  const char* what() const noexcept override;
};

/// Thrown by an operation on a channel that is closed and must not be: a send, a second close.
class chan_closed : public std::logic_error {
 public:
  using std::logic_error::logic_error;
  ~chan_closed() override;
};

}  // namespace verge

#pragma GCC visibility pop
