// SPDX-License-Identifier: Apache-2.0

#include "run_queues.h"

namespace verge::coherence {

run_queues::run_queues(unsigned n) {
  for (unsigned i = 0; i < n; ++i) all_.push_back(std::make_unique<one>());
}
run_queues::~run_queues() = default;

void run_queues::run_a_task(unsigned i) {
  all_[i]->queue.push(all_[i]->task);
  all_[i]->queue.take();
}

void run_queues::steal(unsigned i) {
  for (const auto& from : all_) {
    if (from != all_[i]) all_[i]->queue.steal_half(from->queue, false);
  }
}

}  // namespace verge::coherence
