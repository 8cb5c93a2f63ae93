// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "../push/figures.h"

namespace verge::server::web {

/// What the server knows of its own condition, for health, metrics and the page. Each is a number
/// that publishes nothing else.
struct signs {
  std::atomic<bool> failed{false};  ///< the store has failed
  std::atomic<std::uint64_t> clock_steps{0};
  std::atomic<std::int64_t> last_clock_step{0};  ///< wall time
  const push::push_figures* push{nullptr};
};

}  // namespace verge::server::web
