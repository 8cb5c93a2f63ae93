// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

/// The threads that wait for an operation of verge's, for reports: plain ones, and workers whose
/// callback waits. What a task waits for is in its job.
///
/// Ground rules
///  - A record lives on the stack of the thread that waits, and is on one of the lists, under the
///    list's lock, until the wait has ended. The thread sleeps in between: the locks cost little
///    beside that.
///  - In the child of a fork the lists are emptied: their threads do not exist, and a lock may be
///    held.
namespace verge::detail {

struct waiting_thread_view {
  pid_t thread;
  const char* waiting_for;
  std::int64_t since;  ///< on the true clock, to within some 10 ms; 0: not known
  const void* code;    ///< what has called
};

/// The calling thread waits, as long as this lives. `code` is its caller.
class waiting_thread_record {
 public:
  waiting_thread_record(const char* waiting_for, const void* code) noexcept;
  ~waiting_thread_record();
  waiting_thread_record(const waiting_thread_record&) = delete;
  waiting_thread_record& operator=(const waiting_thread_record&) = delete;

 private:
  friend std::vector<waiting_thread_view> waiting_threads(std::size_t most);
  waiting_thread_view view_;
  waiting_thread_record* previous_{nullptr};
  waiting_thread_record* next_{nullptr};
};

/// At most so many, those first that have waited longest. Throws std::bad_alloc.
std::vector<waiting_thread_view> waiting_threads(std::size_t most);
void forget_waiting_threads_in_child() noexcept;

}  // namespace verge::detail
