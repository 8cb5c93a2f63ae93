// SPDX-License-Identifier: Apache-2.0
// The systems that are linked into the tool, one function for each, in the file of its name.
#pragma once

#include <verge/runtime.h>

#include "peer.h"

namespace verge::bench {

linked_peer verge_peer(engine which);
/// The engine hybrid with timer_options{.precise = true}.
linked_peer precise_peer();
linked_peer timer_queue_peer();
linked_peer boost_asio_peer();
linked_peer libuv_peer();
linked_peer libevent_peer();
linked_peer libev_peer();
linked_peer bare_loop_peer();

}  // namespace verge::bench
