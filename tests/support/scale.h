// SPDX-License-Identifier: Apache-2.0
// How much of a long test to run.
//
// A test that counts steps, schedules or seconds asks here for the number:
//
//   const int steps = verge::test::scale(10'000'000, 200'000);
//
// It gets the first number, the full one, unless the test must be quick. It is quick in a build
// with a sanitizer, where everything takes ten times as long and faults show sooner;
// VERGE_TEST_SCALE=quick or =full in the environment overrides that. A test must be able to fail at
// either scale: the quick number saves time and does not weaken the check.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace verge::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool is_sanitized = true;
#else
inline constexpr bool is_sanitized = false;
#endif

/// Returns whether the test must be quick. A setting that is neither quick nor full ends the
/// program.
inline bool is_quick() {
  const char* set = std::getenv("VERGE_TEST_SCALE");
  if (set == nullptr) return is_sanitized;
  const std::string_view word = set;
  if (word == "quick") return true;
  if (word == "full") return false;
  std::fprintf(stderr, "VERGE_TEST_SCALE is '%s'; set it to quick or full, or unset it\n", set);
  std::exit(2);
}

/// Returns `full`, or `quick` if the test must be quick.
template <typename T>
T scale(T full, T quick) {
  return is_quick() ? quick : full;
}

}  // namespace verge::test
