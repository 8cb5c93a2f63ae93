// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "task.h"

/// Pushing: where the tasks of a tube are sent when they are due, and what becomes of one that
/// could not be delivered. Pure code, as the rest of the model.
///
/// A push is a lease: the task is reserved, its body is POSTed, and then the task is removed, or it
/// is delayed for another attempt, or it is dead, as any task whose attempts are used up. So it is
/// delivered at least once: a crash between the POST and the removal leaves it to be sent again.
namespace verge::server {

struct push_settings {
  std::string url;                   ///< of the receiver; empty: each task has its own
  std::vector<std::string> secrets;  ///< as bytes; each signs, so that one can be replaced
  nanoseconds timeout{15'000'000'000};
  std::uint32_t max_attempts{10};  ///< of a task that has no limit of its own; 0: no limit
  nanoseconds backoff{5'000'000'000};
  nanoseconds longest_backoff{3'600'000'000'000};
  std::uint32_t concurrency{100};  ///< deliveries at one time
  std::uint32_t rate{0};           ///< deliveries a second; 0: no limit
  std::string disabled;            ///< why nothing is sent; empty: it is
};

/// A receiver may ask for a later attempt, but not for one that is later than this.
inline constexpr nanoseconds longest_retry_after = 24 * 3'600'000'000'000;
/// Of an answer so many bytes are kept with the task.
inline constexpr std::size_t longest_answer = 500;

/// How many attempts the task has.
std::uint32_t attempts_of(const push_settings& s, const task& t) noexcept;

/// How long after a failed attempt the next one is: the back-off, doubled with each attempt up to
/// the longest, of which the second half is random, so that tasks that failed together do not come
/// back together; or what the receiver has asked for, if that is longer. `random` is any number.
nanoseconds retry_delay(const push_settings& s, const task& t, nanoseconds retry_after,
                        std::uint64_t random) noexcept;

}  // namespace verge::server
