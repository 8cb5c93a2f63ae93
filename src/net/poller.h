// The network poller: where a worker that has nothing to do waits for input, output and the next
// timer.
//
// It is epoll, and an eventfd in the epoll set to break a wait that is under way. Descriptors are
// registered once, for both directions, edge-triggered: an event says "try again", and a party that
// got EAGAIN waits for the next one. Nothing is re-armed per operation.
//
// Waits are in nanoseconds. epoll_pwait2 does that by itself. Where the kernel lacks it (before
// Linux 5.11) or a sandbox forbids it, a timerfd in the epoll set gives the same precision for one
// more system call per wait; where there is no timerfd either, the time is rounded up to
// milliseconds. A wait that times out was never shorter than asked for, whichever way.
//
// Ground rules
//  - Any number of threads may poll without waiting, at any time. At most one may be in a poll that
//    waits: a break is meant for that one, so polls that do not wait leave it in place.
//  - A source is called with its descriptor's entry locked. It must be quick and must not call
//  open()
//    or close(); what it makes ready, it adds to the list.
//  - close() waits for a call of the source that is running. Once it has returned the source is not
//    called again and may be destroyed, whatever events other threads still hold (source_table.h
//    says how). So call close() without any lock that on_events() takes, and before ::close() of
//    the descriptor, which makes its number free for others.
//  - end() tells every source that no event will come any more. After it, open() fails.
//  - An event is a hint: by the time a source hears of it somebody may have read all there was.
//  - After a fork the child must not use the parent's poller, as both share one epoll set, but it
//  may
//    destroy it: the destructor only closes descriptors.
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
  std::uint64_t blocking_polls;  ///< Polls that were ready to wait.
  std::uint64_t wake_ups;        ///< Those of them that have ended.
  std::uint64_t time_outs;       ///< Those of them that ended because their time was over.
  std::uint64_t breaks_written;  ///< Breaks that went to the kernel; others met one still pending.
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

  /// Something that wants to hear of events; the owner derives from it.
  struct source {
    /// `epoll_events` are epoll's bits: EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLHUP, EPOLLERR.
    using event_fn = void (*)(source&, std::uint32_t epoll_events, ready_list&) noexcept;
    event_fn on_events;
    /// Nobody polls any more. Under the same rules as on_events; null if it is all the same.
    void (*on_end)(source&) noexcept {nullptr};
  };

  /// Throws std::system_error if the descriptors it needs cannot be had, or if the way of waiting
  /// that is asked for does not work here.
  explicit poller(wait_method method = wait_method::automatic);
  poller(const poller&) = delete;
  poller& operator=(const poller&) = delete;

  /// Registers fd: `s` hears of its events until close(fd). The kernel refuses regular files and
  /// directories (EPERM: they are always ready). A number that is open here already is EEXIST.
  std::error_code open(int fd, source& s) noexcept;
  /// Ends what open() began; ENOENT if fd is not open here.
  std::error_code close(int fd) noexcept;

  /// The last poll has been: tells all sources, and takes no new ones (ECANCELED).
  void end() noexcept;
  /// In the child of a fork: leaves the epoll set, which is the parent's too, and all locks alone.
  void lost_in_fork() noexcept { forked_.store(true, std::memory_order_relaxed); }
  bool forked() const noexcept { return forked_.load(std::memory_order_relaxed); }

  /// Waits for events and returns what they made ready, in order. A negative time-out is for ever,
  /// 0 is not at all. Returns early, and maybe with nothing, after a break, an event or a signal:
  /// whoever waits for a time looks at the clock.
  ready_list poll(std::int64_t timeout_ns) noexcept;

  /// Ends the poll that waits, or if there is none, the next one that would. From any thread. A
  /// break while another is pending costs one atomic exchange.
  void break_poll() noexcept { break_unless_pending(); }
  /// The same for a poll that waits though it should have been broken. False if none waits, or a
  /// break is on its way to it.
  bool rescue_poll() noexcept;

  /// Is anything registered? If not, only time and breaks can end a poll.
  bool has_sources() const noexcept { return sources_.load(std::memory_order_relaxed) != 0; }
  /// The way of waiting in use: never `automatic`.
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
  bool timer_set_{false};  ///< Belongs to the one poll that waits.
  table table_;
  std::atomic<std::size_t> sources_{0};
  /// Set before end() takes the first entry's lock: who opens an entry after that sees it.
  std::atomic<bool> ended_{false};
  std::atomic<bool> forked_{false};

  /// A break is on its way: set by the one who writes the eventfd, cleared by the poll that read
  /// it. So at most one write is outstanding. Publishes what the breaker wrote before it called.
  alignas(64) std::atomic<bool> break_pending_{false};

  /// Counters only: they order nothing.
  std::atomic<std::uint64_t> breaks_written_{0};
  std::atomic<std::uint64_t> blocking_polls_{0};
  std::atomic<std::uint64_t> wake_ups_{0};
  std::atomic<std::uint64_t> time_outs_{0};
  std::atomic<std::uint64_t> source_events_{0};
};

}  // namespace verge::detail
