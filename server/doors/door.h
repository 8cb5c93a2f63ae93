#pragma once

#include "gate.h"

namespace verge::server {

/// Holds a command of beanstalk's protocol to what the caller may do: one that it may not give is
/// replaced by a refusal. `auth` is answered here, and `who` is the caller from then on.
void pass(gate& g, shared_caller& who, command& c);

}  // namespace verge::server
