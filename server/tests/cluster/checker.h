// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

/// What clients did and what they were told, and whether it can be so.
///
/// All times are of one clock, in nanoseconds. What a command did happened between its begin and
/// its end; of one whose answer did not come it may have happened at any time from its begin on, or
/// never. Each task is checked alone:
///
///   lost       its put was acknowledged, no removal of it was tried, and it is missing at the end
///   again      it was handed out by a reserve that began after a removal had been acknowledged
///   two        of two leases neither can have been handed out after the end of the other
///   stale      a lease was accepted though a later one had been handed out before
///   early      it was handed out before its time
///   not found  a command by key did not find it though it was there
///   changed    it was handed out with another body
///   there      its removal was acknowledged, and the database has it
namespace verge::cluster_test {

enum class act : std::uint8_t { put, hand_out, ack, release, touch, cancel, reschedule };
enum class result : std::uint8_t {
  done,
  refused,  ///< a stale lease
  not_found,
  taken,
  unknown,  ///< no answer, or one that says that the outcome is not known
};

struct operation {
  act what{};
  result outcome{};
  std::int64_t begin{0};
  std::int64_t end{0};
  std::uint64_t id{0};     ///< 0: not known
  std::string key;         ///< each put has another one
  std::string lease;       ///< hand_out, ack, release, touch
  std::int64_t delay{0};   ///< put, release, reschedule
  std::int64_t ttr{0};     ///< put
  std::string body;        ///< put, hand_out
  bool at_the_end{false};  ///< hand_out: after all faults, when everything is taken
};

/// One line for each thing that cannot be.
std::vector<std::string> check(const std::vector<operation>& history);
/// The same when nothing was taken at the end: `there` has the ids of the tasks that the database
/// has.
std::vector<std::string> check(const std::vector<operation>& history,
                               const std::set<std::uint64_t>& there);

}  // namespace verge::cluster_test
