// SPDX-License-Identifier: Apache-2.0

#include <engine/dead_nodes.h>

#include <utility>

#include <node/node_store.h>

namespace verge::detail {

void dead_nodes::bury_all() noexcept {
  runnable* r = first_.exchange(nullptr, std::memory_order_acquire);
  while (r != nullptr) {
    auto& t = static_cast<timer_node&>(*std::exchange(r, r->next));
    node_store::of(t).bury(t);
  }
}

}  // namespace verge::detail
