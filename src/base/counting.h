// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verge::detail {

/// Whether the library counts what only reports need: resets, turns, histograms, names. It always
/// does; a build with VERGE_COUNTERS=OFF is for comparison, to see what that costs
/// (bench/observability_cost.sh). Its figures are then wrong, and it reports no stalls.
#if defined(VERGE_NO_COUNTERS)
inline constexpr bool counting = false;
#else
inline constexpr bool counting = true;
#endif

}  // namespace verge::detail
