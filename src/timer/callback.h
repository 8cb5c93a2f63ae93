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
/// What a timer is: the type of what it calls, or a word. By a thread that has a reference.
inline const char* written_of(const timer_node& t) noexcept {
  const timer_behaviour* const does = t.does.load(std::memory_order_relaxed);
  if (does == nullptr) return nullptr;
  return does->name != nullptr ? does->name(t) : does->written;
}
/// The label of a timer, if it was given one; else nullptr. By a thread that has a reference.
inline const char* label_of(const timer_node& t) noexcept {
  const timer_behaviour* const does = t.does.load(std::memory_order_relaxed);
  if (does == nullptr || !does->labelled) return nullptr;
  return *reinterpret_cast<const char* const*>(t.payload + periodic_payload_bytes);
}

}  // namespace verge::detail
