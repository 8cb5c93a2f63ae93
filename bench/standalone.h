// SPDX-License-Identifier: Apache-2.0
// Shared by the standalone benchmark programs: their options, and how rounds become one figure.
#pragma once

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

namespace verge::bench {

/// The number behind --name=, which must be positive; false if this is not that option.
template <class Number>
bool option(std::string_view argument, std::string_view name, Number& value) {
  if (!argument.starts_with(name)) return false;
  argument.remove_prefix(name.size());
  const auto [end, error] = std::from_chars(argument.begin(), argument.end(), value);
  return error == std::errc{} && end == argument.end() && value > 0;
}

/// Of an even number of rounds the mean of the two in the middle.
inline double median(std::vector<double> rounds) {
  std::sort(rounds.begin(), rounds.end());
  return (rounds[rounds.size() / 2] + rounds[(rounds.size() - 1) / 2]) / 2;
}

}  // namespace verge::bench
