// SPDX-License-Identifier: Apache-2.0

#include <base/fence.h>

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verge::detail {

namespace {

bool membarrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

bool fence_all_threads() noexcept {
  // Registering once per process would do; repeating it costs almost nothing.
  return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
         membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

}  // namespace verge::detail
