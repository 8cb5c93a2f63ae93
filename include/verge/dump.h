// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iosfwd>

#include <verge/runtime.h>

#pragma GCC visibility push(default)

/// What a live runtime does, in words: for a program that seems to hang.
namespace verge {

/// How much write_dump() writes.
struct dump_options {
  std::size_t tasks{1000};  ///< at most so many, those first that began first; as many threads
  std::size_t timers{20};   ///< those that are due next
};

/// Writes what each processor does; every task that has not ended, what it waits for, since when,
/// to within some 10 ms, and in which function; every other thread of the process that waits for
/// an operation of verge's; and the timers that are due next, with their labels and where they were
/// made:
///
///     processor 0: runs, since 412 ms
///     task serve: waits for read, since 3.2 s, in shop::receive
///     thread 4711: waits for chan receive, since 12 s, in main
///     timer in 12.1 ms: idle time-out (shop.cc:42 shop::open)
///
/// From any thread, also while all processors are stuck. It looks at every timer, which takes some
/// 10 ns each: without a lock, so that timers that are started or stopped meanwhile may be missing;
/// with engines other than the default one under the lock of each queue.
void write_dump(std::ostream& out, runtime& rt, dump_options options = {});

/// The label of the calling task, in reports, traces and the inspector, in place of the function
/// that it runs. The text must outlive the task: a literal. Outside a task it does nothing.
void label_task(const char* label) noexcept;

}  // namespace verge

#pragma GCC visibility pop
