// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace verge::server {

/// The tubes that a caller may touch: names, and beginnings of names, which end in a star.
struct tube_filter {
  std::vector<std::string> patterns;

  bool covers(std::string_view tube) const noexcept {
    return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) {
      if (!p.ends_with('*')) return p == tube;
      return tube.starts_with(std::string_view(p).substr(0, p.size() - 1));
    });
  }
};

}  // namespace verge::server
