// How much of a long test to run.
//
// A test that counts steps, schedules or seconds asks here for the number:
//
//   const int steps = verge::test::scale(10'000'000, 200'000);
//
// It gets the first, full number unless VERGE_TEST_SCALE=quick is in the environment, as it is for
// the sanitizers, under which everything takes ten times as long. A test must be able to fail at
// either scale: the quick number buys time, never a weaker check.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace verge::test {

/// True where VERGE_TEST_SCALE=quick. A word that is neither quick nor full ends the test program.
inline bool is_quick() {
  const char* set = std::getenv("VERGE_TEST_SCALE");  // NOLINT(concurrency-mt-unsafe)
  const std::string_view word = set == nullptr ? "full" : set;
  if (word == "quick") return true;
  if (word == "full" || word.empty()) return false;
  std::fprintf(stderr, "VERGE_TEST_SCALE is '%s'; set it to quick or full, or leave it unset\n",
               set);
  std::exit(2);  // NOLINT(concurrency-mt-unsafe)
}

/// `full`, or `quick` where time is short.
template <typename T>
T scale(T full, T quick) {
  return is_quick() ? quick : full;
}

}  // namespace verge::test
