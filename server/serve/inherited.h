// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace verge::server {

/// The sockets that a supervisor has passed on, as systemd does (sd_listen_fds): numbers from 3 on,
/// announced by LISTEN_PID and LISTEN_FDS. Empty if there are none, or if they are for another
/// process. Children do not inherit them.
std::vector<int> inherited_sockets();

}  // namespace verge::server
