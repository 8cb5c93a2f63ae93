#pragma once

#include <verge/detail/timer_node.h>

namespace verge::detail {

/// `run` of every node with a callback: one firing, on a worker.
void run_callback(runnable& r) noexcept;
/// Takes a node off a run queue that nobody will run again.
void discard_callback(timer_node& t) noexcept;
/// The handle goes: no callback begins after this, and those that run on other threads have ended
/// when it returns. False if the calling thread is inside one: the payload is in use then.
bool end_callbacks(timer_node& t) noexcept;
/// The same, and then drops the handle's reference: for a node that waits in no engine.
void end_function(timer_node& t) noexcept;

}  // namespace verge::detail
