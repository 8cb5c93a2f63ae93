// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

/// Asks a worker's thread, which may be stuck in user code, where it is: by a signal, whose handler
/// takes a backtrace.
///
/// Ground rules
///  - One question at a time in the process. `the_state` says whose the place for the answer is:
///    idle nobody's, claimed and asked the asker's, writing and abandoned the handler's, answered
///    the asker's again. A handler that comes late finds another state than asked, or another
///    thread in `asked_thread`, and does nothing.
///  - The handler runs on the thread that is asked, at any instruction of it, with any lock held:
///    an allocator's, the dynamic linker's, one of ours. It allocates nothing and takes no lock.
///    First it writes what the thread runs and the instruction it is at; then the frames, one by
///    one, each published by `written_frames`.
///  - The unwinder takes the dynamic linker's lock, unless the C library has _dl_find_object, as
///    glibc has from 2.35 on. Where it does not, there is no backtrace but that instruction. It was
///    used once when the handler was installed, so that it has loaded what it needs. (It has a lock
///    of its own in a program that registers frames by hand, as just-in-time compilers do.)
///  - The asker never waits for the handler. If that takes too long, the asker takes what is there:
///    from then on the place is the handler's until it ends, and there are no questions meanwhile.
namespace verge::detail {

class thread_probe {
 public:
  static constexpr unsigned most_frames = 48;

  struct answer {
    const void* frames[most_frames];  ///< innermost first
    unsigned count;
    std::uint32_t turn;   ///< of its worker
    bool is_task;         ///< else a callback
    const char* label;    ///< of what it runs, each null if there is none
    const char* place;    ///< of a timer: where it was made
    const char* written;  ///< the type of the callable
    const void* code;     ///< of a task
  };

  /// Installs the handler, once. False if the system refuses.
  static bool install() noexcept;
  /// The calling thread can be asked from now on: it was started with all signals blocked.
  static void listen() noexcept;

  /// False if another question is under way, or the thread has ended.
  static bool ask(pid_t thread) noexcept;
  /// By the asker. True if the answer is there: the place is idle then.
  static bool take(answer& out) noexcept;
  /// By the asker, which waits no longer: true if `out` is what the handler has written so far.
  static bool give_up(answer& out) noexcept;
  /// In the child of a fork.
  static void lost_in_fork() noexcept;

  /// For tests: how many signals were sent, and what the handler calls before it unwinds.
  static std::uint64_t sent() noexcept;
  static constinit std::atomic<void (*)() noexcept> before_unwinding;
};

}  // namespace verge::detail
