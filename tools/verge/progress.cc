// SPDX-License-Identifier: Apache-2.0

#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>

namespace verge::tool {

progress::progress() : watched_(isatty(STDERR_FILENO) == 1) {}

void progress::show(const std::string& what, double share, double seconds_left) {
  if (!watched_) return;
  constexpr int width = 24;
  const int full = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * width));
  const auto left = std::max(0L, std::lround(seconds_left));
  fmt::print(stderr, "\r\033[K[{:#<{}}{:.<{}}] {:3.0f} %  {}:{:02} left  {}\r", "", full, "",
             width - full, share * 100, left / 60, left % 60, what);
  std::fflush(stderr);
}

void progress::note(const std::string& line) {
  wipe();
  fmt::print(stderr, "verge: {}\n", line);
}

void progress::wipe() {
  if (watched_) fmt::print(stderr, "\r\033[K");
}

}  // namespace verge::tool
