// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <verge/clock.h>

#pragma GCC visibility push(default)

/// Stalls: callbacks, and turns of tasks, that hold their processor for long.
///
///   verge::runtime rt({.on_stall = verge::log_stall});
///
/// A callback or a task that computes, or blocks without verge::blocking(), keeps everything
/// waiting that is queued behind it. The monitor sees that a turn takes longer than
/// runtime_options::stall_after, counts it (runtime_stats::stalls), and reports it once, while it
/// lasts, to runtime_options::on_stall.
///
/// A report has a backtrace of the thread, which the thread takes itself: it is sent SIGURG, as Go
/// does to preempt. The handler is installed when the first runtime with on_stall is made; it calls
/// the one that was there before for signals that are not the library's. A system call that cannot
/// be restarted, such as nanosleep, returns EINTR in the stalled code. Without on_stall, and
/// without an inspector (verge/inspect.h), no signal is sent.
namespace verge {

/// One that lasts.
struct stall {
  /// What it is called: the label, the place, or the type of the callable, the first of these that
  /// is known. "?" if the thread has not told.
  std::string what;
  std::string label;  ///< of the timer or task, if it has one
  /// Where the timer was made, "shop.cc:42 shop::remind"; of a task the function that it runs.
  std::string place;
  bool is_task{false};                 ///< a turn of a task; else a callback
  clock::time_point since;             ///< when it began, to within some 10 ms
  std::chrono::nanoseconds lasted{0};  ///< so far
  int thread{0};                       ///< as gettid() gives it
  std::vector<const void*> backtrace;  ///< innermost first; empty if the thread has not answered
  /// How many stalls have not been reported since the last report: there is one a second at most.
  std::uint64_t unreported{0};
};

/// A stall in one line: what it is and where it comes from, how long it has lasted, on which
/// thread, and the functions of its backtrace. A function has a name if it is exported, or if the
/// file that it is in was not stripped; else it is "program+0x1234", for addr2line.
std::string to_string(const stall& s);

/// Passes it to the log handler (verge/log.h) as a warning: for runtime_options::on_stall.
void log_stall(const stall& s);

}  // namespace verge

#pragma GCC visibility pop
