// SPDX-License-Identifier: Apache-2.0
// The network poller, in which an idle worker waits for input, output and the next timer.
//
// It is epoll, and an eventfd in the epoll set to break a wait in progress. Descriptors are
// registered once, for both directions, edge-triggered: an event means "try again", and an
// operation that got EAGAIN waits for the next one. Nothing is re-armed per operation.
//
// Waits are in nanoseconds. epoll_pwait2 supports that. If the kernel lacks it (before Linux 5.11)
// or a sandbox forbids it, a timerfd in the epoll set gives the same precision for one more system
// call per wait; without a timerfd, the time is rounded up to milliseconds. A wait that times out
// is never shorter than requested, with any method.
//
// Ground rules
//  - Any number of threads may poll without waiting, at any time. At most one may be in a waiting
//    poll: a break is meant for that one, so non-waiting polls leave it in place.
//  - A source is called with its descriptor's entry locked. It must be quick and must not call
//    open() or close(); it adds what it makes ready to the list.
//  - close() waits for a running call of the source. After it has returned, the source is not
//    called again and may be destroyed, even if other threads still hold events (source_table.h
//    says how). So call close() without any lock that on_events() takes, and before ::close() of
//    the descriptor, after which its number may be reused.
//  - end() tells every source that no more events will come. After it, open() fails.
//  - An event is a hint: when a source receives it, the data may already have been read.
//  - After a fork the child must not use the parent's poller, as both share one epoll set, but it
//    may destroy it: the destructor only closes descriptors.
#pragma once

#include <base/file_descriptor.h>
#include <base/ready_list.h>
#include <net/source_table.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <system_error>

struct epoll_event;

namespace verge::detail {

struct poller_statistics {
  std::uint64_t blocking_polls;  ///< Polls that were allowed to wait.
  std::uint64_t wake_ups;        ///< Those of them that have ended.
  std::uint64_t time_outs;       ///< Those of them that timed out.
  std::uint64_t breaks_written;  ///< Breaks that wrote to the kernel; others found one pending.
  std::uint64_t source_events;   ///< Events that reached a source.
};

class poller {
 public:
  /// How a poll waits for a number of nanoseconds.
  enum class wait_method : std::uint8_t {
    automatic,    ///< The first of the following that works here.
    pwait2,       ///< epoll_pwait2.
    timerfd,      ///< A timerfd in the epoll set.
    milliseconds  ///< epoll_wait, rounded up.
  };

  /// A receiver of events; the owner derives from it.
  struct source {
    /// `epoll_events` are epoll's bits: EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLHUP, EPOLLERR.
    using event_fn = void (*)(source&, std::uint32_t epoll_events, ready_list&) noexcept;
    event_fn on_events;
    /// No thread polls any more. The rules of on_events apply; nullptr if there is nothing to make
    /// ready.
    void (*on_end)(source&) noexcept {nullptr};
  };

  /// Throws std::system_error if the descriptors it needs cannot be created, or if the requested
  /// method of waiting does not work here.
  explicit poller(wait_method method = wait_method::automatic);
  poller(const poller&) = delete;
  poller& operator=(const poller&) = delete;

  /// Registers fd: `s` receives its events until close(fd). The kernel rejects regular files and
  /// directories (EPERM: they are always ready). EEXIST if the number is already open here.
  std::error_code open(int fd, source& s) noexcept;
  /// Undoes open(); ENOENT if fd is not open here.
  std::error_code close(int fd) noexcept;

  /// Called after the last poll: tells all sources, and rejects new ones (ECANCELED).
  void end() noexcept;
  /// In the child of a fork: does not touch the epoll set, which is shared with the parent, nor any
  /// lock.
  void lost_in_fork() noexcept { forked_.store(true, std::memory_order_relaxed); }
  bool forked() const noexcept { return forked_.load(std::memory_order_relaxed); }

  /// Waits for events and returns what they made ready, in order. A negative time-out waits
  /// forever, 0 not at all. May return early, even with nothing, after a break, an event or a
  /// signal: the caller must check the clock.
  ready_list poll(std::int64_t timeout_ns) noexcept;

  /// Ends the waiting poll, or if there is none, the next one that would wait. From any thread. A
  /// break while another is pending costs one compare-and-swap. When this has returned the break
  /// has reached the kernel, whatever has become of other threads that break.
  void break_poll() noexcept { break_unless_pending(); }
  /// The same for a poll that still waits though it should have been broken. Returns false if none
  /// waits, or a break is already on its way.
  bool rescue_poll() noexcept;

  /// Returns whether anything is registered. If not, only time and breaks can end a poll.
  bool has_sources() const noexcept { return sources_.load(std::memory_order_relaxed) != 0; }
  /// The method of waiting in use: never `automatic`.
  wait_method method() const noexcept { return method_; }
  poller_statistics statistics() const noexcept;

 private:
  using table = source_table<source>;

  void choose(wait_method wanted);
  void add_wake_up(int fd, std::uint64_t tag);
  int wait(std::span<epoll_event> events, std::int64_t timeout_ns) noexcept;
  void set_timer(std::int64_t timeout_ns) noexcept;
  bool break_unless_pending() noexcept;
  void take_break() noexcept;
  void deliver(const epoll_event& event, ready_list& ready) noexcept;

  file_descriptor epoll_;
  file_descriptor break_event_;
  file_descriptor timer_;  ///< Only if method_ is timerfd.
  wait_method method_{wait_method::automatic};
  bool timer_set_{false};  ///< Used only by the waiting poll.
  table table_;
  std::atomic<std::size_t> sources_{0};
  /// Set before end() takes the first entry's lock: a thread that opens an entry after that sees
  /// it.
  std::atomic<bool> ended_{false};
  std::atomic<bool> forked_{false};

  /// The break that is on its way, if one is, and how far it has come. Lowest two bits: announced
  /// by the first thread that makes it, written by the first that has written the eventfd, and
  /// neither again after the poll that has read that. The others: which break it is, so that a
  /// thread that was preempted cannot take a later break for its own. A thread that finds a break
  /// only announced writes as well: the thread that announced it may have lost its core. Publishes
  /// what the breaking thread wrote before.
  alignas(64) std::atomic<std::uint64_t> break_{0};

  /// Counters only: they order nothing.
  std::atomic<std::uint64_t> breaks_written_{0};
  std::atomic<std::uint64_t> blocking_polls_{0};
  std::atomic<std::uint64_t> wake_ups_{0};
  std::atomic<std::uint64_t> time_outs_{0};
  std::atomic<std::uint64_t> source_events_{0};
};

}  // namespace verge::detail
