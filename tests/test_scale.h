// How long the long tests run. VERGE_TEST_SCALE=quick makes them short; builds with a sanitizer
// look for other faults than those that take long to show, and are short by themselves.
#pragma once

#include <cstdlib>
#include <string_view>

namespace verge::test {

inline bool quick() {
  const char* scale = std::getenv("VERGE_TEST_SCALE");
  if (scale != nullptr) return std::string_view(scale) == "quick";
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

}  // namespace verge::test
