#pragma once

#include <functional>
#include <thread>

namespace verge::detail {

/// A thread. Throws std::system_error, which says what to do, if it cannot be had.
std::thread start_thread(std::function<void()> f);

/// A thread of the runtime's own. It takes no signals, which are for the threads of the program,
/// and the kernel wakes it without slack. Throws as start_thread does.
std::thread start_runtime_thread(std::function<void()> f);

}  // namespace verge::detail
