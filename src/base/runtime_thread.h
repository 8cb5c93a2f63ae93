// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <thread>

namespace verge::detail {

/// Starts a thread. Throws std::system_error, which says what to do, if that fails.
std::thread start_thread(std::function<void()> f);

/// The name of a thread of the runtime `of`: "verge/w0". What a runtime is called is cut off if
/// both do not fit into the 15 characters that a thread's name may have.
std::string name_of_thread(std::string_view of, std::string_view role);

/// Starts an internal thread of the runtime. It has that name in debuggers and in top, cut off
/// after 15 characters. It blocks all signals, which are left to the threads of the program, and
/// has no timer slack. Throws as start_thread does.
std::thread start_runtime_thread(std::string name, std::function<void()> f);

/// Returns whether a thread of this process, identified as by gettid(), is running or runnable.
/// False if it is blocked in the kernel, or if that cannot be determined.
bool is_computing(pid_t thread) noexcept;

/// Sets how late the kernel may end the calling thread's waits to save wake-ups: 50 us by default,
/// which would be most of a timer's lateness. Threads that poll set it to 1, the minimum.
void set_timer_slack(unsigned long nanoseconds) noexcept;

}  // namespace verge::detail
