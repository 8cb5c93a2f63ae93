// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tasks_bench.h"

namespace verge::server::bench {

/// HTTP beside beanstalk's protocol, on the same server: puts, and reserve with ack, one request at
/// a time on each connection, in turns. Prints medians and the ratio, and returns them.
nlohmann::json measure_http(const tasks_options& options);

}  // namespace verge::server::bench
