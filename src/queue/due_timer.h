// due_timer: what a queue gives when it is asked for a timer whose time has come.
#pragma once

#include <cstdint>

namespace verge::detail {

template <class Hook>
struct due_timer {
  Hook* timer{nullptr};  ///< nullptr if there is none
  std::int64_t when{0};  ///< when it was due
  bool periodic{false};  ///< whether it was put in with a period
};

}  // namespace verge::detail
