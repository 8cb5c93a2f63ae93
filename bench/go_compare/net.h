// SPDX-License-Identifier: Apache-2.0
// Sockets: the workloads of bench/go/net.go.
#pragma once

#include <verge/runtime.h>

#include "figures.h"

namespace verge::bench {

figures set_read_deadline(runtime& rt, const parameters& p);
figures echo(runtime& rt, const parameters& p);

}  // namespace verge::bench
