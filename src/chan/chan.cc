// SPDX-License-Identifier: Apache-2.0

// The parts of channels that do not depend on the type and need not be inline.

#include <verge/detail/chan_state.h>

namespace verge::detail {

namespace {

// Claims all waiters in q; returns them linked by `next`, in their order.
wait_node* claim_all(wait_queue& q) noexcept {
  wait_node* first = nullptr;
  wait_node** end = &first;
  while (wait_node* n = q.claim_first()) {
    n->closed = true;
    n->next = nullptr;
    *end = n;
    end = &n->next;
  }
  return first;
}

}  // namespace

void chan_base::wake_all(wait_node* those) noexcept {
  while (those != nullptr) {
    wait_node* next = those->next;  // the node may be destroyed once its owner is awake
    those->party->wake();
    those = next;
  }
}

wait_node* chan_base::close_in_silence() noexcept {
  lock();
  closed_ = true;
  wait_node* const waiting = claim_all(receivers);
  unlock();
  return waiting;
}

void chan_base::close() {
  lock();
  if (closed_) {
    unlock();
    throw_closed_twice();
  }
  closed_ = true;
  wait_node* const waiting_receivers = claim_all(receivers);
  wait_node* const waiting_senders = claim_all(senders);
  unlock();
  wake_all(waiting_receivers);
  wake_all(waiting_senders);
}

}  // namespace verge::detail
