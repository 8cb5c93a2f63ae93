// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string_view>

namespace verge::server::postgres {

/// Faults that a test puts in, to see that the checker of histories finds them: VERGE_FAULT names
/// one. In a program that is not built with VERGE_FAULTS there are none.
inline bool faulty([[maybe_unused]] std::string_view name) noexcept {
#ifdef VERGE_FAULTS
  static const char* const chosen = std::getenv("VERGE_FAULT");
  return chosen != nullptr && name == chosen;
#else
  return false;
#endif
}

}  // namespace verge::server::postgres
