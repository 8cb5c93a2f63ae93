// SPDX-License-Identifier: Apache-2.0

#include <base/this_thread.h>

namespace verge::detail {

thread_local constinit thread_state this_thread{};

}  // namespace verge::detail
