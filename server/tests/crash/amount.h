// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace verge::crash {

/// Whether the thousands are wanted: VERGE_CRASH=long, as ./dev check crash has it.
inline bool is_long() {
  const char* set = std::getenv("VERGE_CRASH");
  return set != nullptr && std::string_view(set) == "long";
}

/// How many of something.
template <class T>
T amount(T usual, T long_form) {
  return is_long() ? long_form : usual;
}

/// VERGE_CRASH_SEED repeats what was found with it.
inline std::uint64_t seed_of(std::uint64_t usual) {
  const char* set = std::getenv("VERGE_CRASH_SEED");
  return set == nullptr ? usual : std::strtoull(set, nullptr, 10);
}

}  // namespace verge::crash
