// SPDX-License-Identifier: Apache-2.0
// due_timer: what a queue returns when asked for a due timer.
#pragma once

#include <cstdint>

namespace verge::detail {

template <class Hook>
struct due_timer {
  Hook* timer{nullptr};  ///< nullptr if there is none
  std::int64_t when{0};  ///< when it was due
  bool periodic{false};  ///< whether it was added with a period
};

}  // namespace verge::detail
