#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

/// Asks a worker's thread, which may be stuck in user code, where it is: by a signal, whose handler
/// takes a backtrace.
///
/// Ground rules
///  - One question at a time in the process: the asker takes the only place from idle to taken, and
///    gives it back when it has the answer, or has given up.
///  - The handler runs on the thread that is asked, at any instruction of it, with any lock held.
///    It calls what is safe there: it allocates nothing and waits for nothing. The unwinder was
///    used once before, when the handler was installed, so that it has loaded what it needs.
///  - `state_` says whose the rest is: taken and answered the asker's, writing the handler's. A
///    handler that comes late finds another state, or another thread, and does nothing.
namespace verge::detail {

class thread_probe {
 public:
  static constexpr unsigned most_frames = 48;

  struct answer {
    const void* frames[most_frames];
    unsigned count;
    std::uint32_t turn;  ///< of its worker
    bool is_task;        ///< else a callback
    const char* label;   ///< of what it runs, each null if there is none
    const char* written;
    const void* code;
  };

  /// Installs the handler, once. False if the system refuses.
  static bool install() noexcept;
  /// The calling thread can be asked from now on: it was started with all signals blocked.
  static void listen() noexcept;

  /// False if another question is under way.
  static bool ask(pid_t thread) noexcept;
  /// By the asker. True if the answer is there: the place is idle then.
  static bool take(answer& out) noexcept;
  /// By the asker, which waits no longer. False if the answer is being written: try again.
  static bool give_up() noexcept;
  /// In the child of a fork.
  static void lost_in_fork() noexcept;
};

}  // namespace verge::detail
