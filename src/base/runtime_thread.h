#pragma once

#include <sys/types.h>

#include <functional>
#include <thread>

namespace verge::detail {

/// A thread. Throws std::system_error, which says what to do, if it cannot be had.
std::thread start_thread(std::function<void()> f);

/// A thread of the runtime's own. It takes no signals, which are for the threads of the program,
/// and the kernel wakes it without slack. Throws as start_thread does.
std::thread start_runtime_thread(std::function<void()> f);

/// Whether a thread of this process, as gettid() names it, runs or waits for a core to run on.
/// False if it is blocked in the kernel, or if that cannot be found out.
bool is_computing(pid_t thread) noexcept;

/// How late the kernel may end the calling thread's waits so as to save wake-ups: 50 us by default,
/// which would be most of a timer's lateness. Threads that poll set it to 1, the least there is.
void set_timer_slack(unsigned long nanoseconds) noexcept;

}  // namespace verge::detail
