#pragma once

#include <functional>
#include <thread>

namespace verge::detail {

/// A thread of the runtime's own. It takes no signals, which are for the threads of the program,
/// and the kernel wakes it without slack. Throws std::system_error if it cannot be had.
std::thread start_runtime_thread(std::function<void()> f);

}  // namespace verge::detail
