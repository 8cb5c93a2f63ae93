// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verge/detail/timer_node.h>

namespace verge::detail {

/// `run` of every node with a callback: one call, on a worker.
void run_callback(runnable& r) noexcept;
/// Drops the calls of a node that no worker will run again.
void discard_callback(timer_node& t) noexcept;
/// Closes a node: no call begins after this, and one that runs on another thread has ended when it
/// returns. False if the calling thread is inside one: the payload is in use then.
bool end_callbacks(timer_node& t) noexcept;
/// The same, and then drops the handle's reference: for a node that waits in no engine.
void end_function(timer_node& t) noexcept;
/// The handle of a timer with a function lets it run on.
void detach_function(timer_node& t) noexcept;

/// The timer whose callback the calling thread runs, the innermost; else nullptr. Safe in a signal
/// handler.
const timer_node* running_callback() noexcept;

}  // namespace verge::detail
