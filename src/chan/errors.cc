// SPDX-License-Identifier: Apache-2.0

// The exceptions of channels and tasks, and their texts.

#include <verge/detail/errors.h>
#include <verge/errors.h>

namespace verge {

const char* cancelled::what() const noexcept {
  return "verge::cancelled: the task was cancelled while it waited; let this exception end it";
}

chan_closed::~chan_closed() = default;

namespace detail {

void throw_cancelled() { throw cancelled(); }

void throw_send_on_closed() {
  throw chan_closed(
      "verge: send on a closed channel; close a channel only when every sender is done, or use "
      "try_send, or receive from a stop channel in the same select");
}

void throw_closed_twice() {
  throw chan_closed("verge: close of a closed channel; let exactly one task or thread close it");
}

void throw_no_channel() {
  throw std::logic_error(
      "verge: this handle has no channel: it was moved from, or constructed from nullptr; make one "
      "with verge::chan<T>(capacity)");
}

void throw_capacity_too_large() {
  throw std::invalid_argument(
      "verge: a channel of this capacity is larger than memory; was the capacity negative?");
}

void throw_no_task() {
  throw std::logic_error("verge: this task is empty: it was moved from or already awaited");
}

void throw_nothing_to_join() {
  throw std::logic_error(
      "verge: this join_handle has no task: it was joined, detached or moved from");
}

}  // namespace detail
}  // namespace verge
