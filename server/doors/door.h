// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gate.h"

namespace verge::server {

/// Holds a command of beanstalk's protocol to what the caller may do: one that it may not give is
/// replaced by a refusal. After an `auth` that is accepted the holder of its token is the caller.
void pass(gate& g, shared_caller& from, command& c);

}  // namespace verge::server
