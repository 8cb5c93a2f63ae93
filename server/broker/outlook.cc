// SPDX-License-Identifier: Apache-2.0

#include "outlook.h"

#include <algorithm>

namespace verge::server {

namespace {

/// A day can be asked for: when less than that and an hour is known, an hour or more is counted.
constexpr std::int64_t wanted = 25 * 60;
constexpr std::int64_t horizon = 26 * 60;

std::int64_t minute_of(wall_time t) noexcept { return t / minute - (t % minute < 0 ? 1 : 0); }

}  // namespace

void outlook::count(wall_time due, std::int64_t by) noexcept {
  const std::int64_t m = minute_of(due);
  known_.add(m, by);
  if (pending_) pending_->add(m, by);
}

std::optional<census_range> outlook::wants(wall_time now) const noexcept {
  if (pending_) return std::nullopt;
  const std::int64_t here = minute_of(now);
  const std::int64_t end = known_.first + static_cast<std::int64_t>(known_.counts.size());
  if (known_.covers(here) && end - here >= wanted) return std::nullopt;
  // A clock that was set back, or far ahead: from the beginning.
  const std::int64_t from = known_.covers(here) ? end : here;
  return census_range{.first = from * minute,
                      .step = minute,
                      .steps = static_cast<std::size_t>(here + horizon - from)};
}

void outlook::begin(const census_range& r) {
  pending_.emplace();
  pending_->first = r.first / minute;
  pending_->counts.resize(r.steps);
}

void outlook::end(const std::optional<std::vector<std::uint64_t>>& counted) {
  minute_counts made = std::move(*pending_);
  pending_.reset();
  if (!counted) return;
  for (std::size_t i = 0; i < made.counts.size() && i < counted->size(); ++i) {
    made.counts[i] += static_cast<std::int64_t>((*counted)[i]);
  }
  const std::int64_t end = known_.first + static_cast<std::int64_t>(known_.counts.size());
  if (known_.counts.empty() || made.first != end) {
    known_ = std::move(made);
    return;
  }
  known_.counts.insert(known_.counts.end(), made.counts.begin(), made.counts.end());
  // What has passed is not asked for again, but for a clock that is set back a little.
  while (known_.counts.size() > static_cast<std::size_t>(2 * horizon)) {
    known_.counts.pop_front();
    ++known_.first;
  }
}

std::vector<std::uint64_t> outlook::ahead(wall_time now, std::size_t minutes) const {
  std::vector<std::uint64_t> found;
  for (std::int64_t m = minute_of(now); known_.covers(m) && found.size() < minutes; ++m) {
    const std::int64_t n = known_.counts[static_cast<std::size_t>(m - known_.first)];
    found.push_back(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 0)));
  }
  return found;
}

}  // namespace verge::server
