#pragma once

#include <cstddef>
#include <iosfwd>

#include <verge/runtime.h>

#pragma GCC visibility push(default)

/// What a live runtime does, in words: for a program that seems to hang.
namespace verge {

/// How much write_dump() writes.
struct dump_options {
  std::size_t tasks{1000};  ///< at most so many, those first that began first
  std::size_t timers{20};   ///< those that are due next
};

/// Writes what each processor does; every task that has not ended, what it waits for and since
/// when, to within some 10 ms; and the timers that are due next, with what they call:
///
///     processor 0: runs, since 412 ms
///     task serve: waits for accept, since 3.2 s
///     timer in 12.1 ms: shop::place_all()::<lambda()>
///
/// From any thread, also while all processors are stuck. It looks at every timer, without a lock,
/// which takes some 10 ns each. Timers that are started or stopped meanwhile may be missing. With
/// engines other than the default one, timers are counted and not listed.
void write_dump(std::ostream& out, runtime& rt, dump_options options = {});

/// The label of the calling task, in reports, traces and the inspector, in place of the function
/// that it runs. The text must outlive the task: a literal. Outside a task it does nothing.
void label_task(const char* label) noexcept;

}  // namespace verge

#pragma GCC visibility pop
