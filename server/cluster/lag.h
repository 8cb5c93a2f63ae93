// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>

#include <verge/task.h>

#include "../postgres/link.h"

/// How far shards are behind: for how long the oldest delayed task of each has been due without
/// being known as ready. It is read from the database, so that it is known of a shard without an
/// owner as well, which is where it grows. An owner writes down what has fallen due with its next
/// batch, and a second later at the latest: so much is usual. Times are those of the database's
/// clock.
namespace verge::server::cluster {

/// By shard. One that is not there is not behind.
using lags = std::map<std::uint32_t, std::chrono::milliseconds>;

verge::task<lags> read_lags(postgres::link& at);
/// Blocks.
lags look_at_lags(postgres::link& at);

}  // namespace verge::server::cluster
