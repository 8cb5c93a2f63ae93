// A descriptor that tasks and threads wait for: its number, who uses it, who waits for it, and
// until when. All sockets, and verge::fd, are handles to one of these.
//
// == Ground rules ==
//
// Three things can be true of a descriptor at the same time: system calls are made on its number,
// parties wait for its directions, and somebody closes it. Two words keep them apart.
//
//  state_     one 64-bit word, changed by atomic read-modify-writes from any thread:
//
//             63 ........ 32  31 ........ 8  4        3        2      1      0
//             references      users          write    read     write  read   closed
//                                            expired  expired  busy   busy
//
//     users       those who are making a system call on the number, and the one who closes. Nobody
//                 becomes one once `closed` is set. Whoever leaves last after that closes the
//                 number: so it cannot be given to somebody else while it is still used here, and
//                 a close waits for nobody. An operation that waits is no user: it does not keep
//                 the number open.
//     references  those who may touch this object: the handle, every operation from its beginning
//                 to its end, every arming of a deadline's timer until it is stopped or has fired.
//                 Whoever drops the last one deletes it.
//     busy        one operation at a time per direction of a stream, from its beginning to its end.
//                 Who finds it set has misused the stream (std::logic_error): bytes of two writers
//                 would mix. Datagrams and connections are whole things, so any number of
//                 operations may share a datagram socket or a listener; they leave it alone.
//     expired     the deadline of that direction has passed. Changed under lock_ only; read by who
//                 begins an operation, in the same step in which it becomes a user.
//
//  lock_      guards the lists of who waits, the deadlines and what is armed for them. Nobody is
//             woken under it. The engine's locks are taken under it and never the other way round:
//             timers fire with no lock held (Go #35532). The poller's lock comes before it.
//  ready      of a direction: an event has come since the last system call was begun. Set by
//             on_events() under lock_; cleared, by exchange, by who is about to make the system
//             call, and by nobody else: so whatever had come by then is seen by that call.
//  drained    of the reading direction of a TCP stream, and its reader's alone: the last read got
//             less than it had room for, so there is nothing to be read before the next event.
//  hung_up_   an event has said that the other side is through, or that there is an error. From
//             then on `drained` means nothing, for no further event need come.
//
// == Waiting ==
//
// An operation makes its system call. If that would block, it takes lock_, looks at ready, closed
// and expired, and if none is set puts its waiter into the list. on_events() sets ready and takes
// every waiter off the list, under the same lock. So either the waiter is on the list when the
// event comes, or the event was there before, and the call is made again: no event is lost. Events
// are hints: a waiter is claimed `by_hint` and its operation tries once more on the worker that
// would have resumed it (operation.h).
//
//  ready against deadline    both take the waiter off the list under lock_ and claim it: the first
//                            one ends the wait. If that was `ready`, the operation makes its system
//                            call, and only if that would block again does it look at the deadline:
//                            what has come in time is delivered.
//  ready against cancel      cancel claims without lock_; whoever is second finds the waiter
//                            claimed. The one who was cancelled takes itself off the list. `ready`
//                            stays set, so the next one to come tries before it waits.
//  deadline against change   a timer that fires takes lock_ and looks at the deadlines as they are:
//                            only what is due at the time of the firing expires. The deadline
//                            itself is the sequence number by which a stale firing is known: moved,
//                            it is not due; removed, it is not there.
//  close against anything    `closed` is set first. Who takes lock_ to wait before the closer does
//                            is woken by it; who comes after sees `closed`.
//
// == Deadlines ==
//
// Each direction has a deadline and a timer of its own, made with the first deadline and from then
// on modified. A deadline is *covered* if its own timer, or the other direction's, is armed for
// that time or an earlier one. To move a deadline to later, which is what servers do with every
// request, changes nothing but the deadline: it stays covered, and the timer that fires too soon
// for it is armed anew then, for what the deadline is by then. Deadlines that are equal share one
// timer in the same way. Only to move one before what is armed touches the timer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <system_error>

#include <clock/arithmetic.h>
#include <net/poller.h>
#include <verge/detail/io_operation.h>
#include <verge/detail/lock.h>
#include <verge/detail/timer_node.h>

namespace verge::detail {

class clear_up_after;

/// The runtime whose poller and timers see to a descriptor.
struct [[gnu::visibility("hidden")]] net_home {
  detail::scheduler* scheduler;
  std::shared_ptr<detail::poller> poller;  ///< nullptr in simulated time

  /// That of the calling thread, or of the default runtime.
  static net_home here();
};

class io_descriptor : private poller::source {
 public:
  /// What is done differently for what kind of descriptor.
  struct traits {
    bool socket{false};  ///< send() and recv() work on it
    bool tcp{false};     ///< a short read has taken all there was
    bool stream{true};   ///< a read of nothing is the end
    bool pipe{false};    ///< writing may raise SIGPIPE, and no flag says not to
  };
  enum class entry : std::uint8_t { entered, closed, expired, busy };
  enum class waits : std::uint8_t { waiting, try_again, closed, expired, ended };

  /// Why a wait has ended, as the waiter's winner says it.
  enum why_not : std::uint32_t { by_deadline = waiter::by_event, by_close, by_end };

  /// Owns fd from now on, unless it throws std::bad_alloc. One reference, the caller's.
  static descriptor_handle make(int fd, traits t, const net_home& home);
  io_descriptor(const io_descriptor&) = delete;
  io_descriptor& operator=(const io_descriptor&) = delete;

  /// Registers with the poller. Once, before anybody waits.
  std::error_code attach() noexcept;
  /// The number is not closed with it. Before anybody else knows it.
  void disown() noexcept { owned_ = false; }

  int fd() const noexcept { return fd_; }
  const traits& kind() const noexcept { return kind_; }
  const net_home& home() const noexcept { return home_; }

  // ---- by an operation

  /// Becomes a user with a reference of its own, and if exclusive the only one of that direction.
  entry enter(io_direction d, bool exclusive) noexcept;
  /// Becomes a user again. False if it has been closed.
  bool enter_again() noexcept;
  /// Is no user any more, and keeps the rest.
  void rest() noexcept { leave(one_user); }
  /// Ends what enter() began.
  void leave(io_direction d, bool exclusive, bool is_user) noexcept {
    leave(one_reference + (exclusive ? busy(d) : 0) + (is_user ? one_user : 0));
  }

  /// Before each system call.
  void expect_events(io_direction d) noexcept {
    auto& ready = of(d).ready;
    // Acquire: the call sees what the event told of.
    if (ready.load(std::memory_order_relaxed)) ready.exchange(false, std::memory_order_acquire);
  }
  /// Whether a read would certainly find nothing. By the reader.
  bool certainly_nothing() const noexcept {
    return drained_ && !directions_[0].ready.load(std::memory_order_acquire) &&
           !hung_up_.load(std::memory_order_relaxed);
  }
  void set_drained(bool yes) noexcept { drained_ = yes; }

  waits wait(io_direction d, io_waiting& node, waiter& w) noexcept;
  void stop_waiting(io_direction d, io_waiting& node) noexcept;
  /// Whether somebody waits, at this moment. For tests.
  bool awaited(io_direction d) noexcept {
    const std::lock_guard hold(lock_);
    return of(d).first != nullptr;
  }

  // ---- by the handle

  std::error_code close() noexcept;
  void drop() noexcept { leave(one_reference); }
  /// A deadline in nanoseconds; `never` is none.
  std::error_code set_deadline(bool for_read, bool for_write, std::int64_t when) noexcept;
  /// Calls f(number) as a user.
  template <class F>
  std::error_code use(F&& f) noexcept;

 private:
  static constexpr std::uint64_t is_closed = 1;
  static constexpr std::uint64_t one_user = 1U << 8;
  static constexpr std::uint64_t users_mask = 0xff'ffff00;
  static constexpr std::uint64_t one_reference = std::uint64_t{1} << 32;
  static constexpr std::uint64_t busy(io_direction d) noexcept {
    return std::uint64_t{2} << static_cast<unsigned>(d);
  }
  static constexpr std::uint64_t expired(io_direction d) noexcept {
    return std::uint64_t{8} << static_cast<unsigned>(d);
  }

  struct direction {
    std::atomic<bool> ready{false};
    io_waiting* first{nullptr};
    /// When it expires; 0 for never. Under lock_, as all that follows.
    std::int64_t deadline{0};
    /// What the timer is armed for; 0 if it is not, or has fired.
    std::int64_t armed{0};
    timer_node* timer{nullptr};
    bool started{false};
  };

  io_descriptor(int fd, traits t, const net_home& home) noexcept;
  ~io_descriptor();

  direction& of(io_direction d) noexcept { return directions_[static_cast<unsigned>(d)]; }
  void leave(std::uint64_t what) noexcept;

  static void on_events(source& s, std::uint32_t events, ready_list& ready) noexcept;
  static void on_end(source& s) noexcept;
  io_waiting* take_waiting_locked(io_direction d, std::uint32_t why) noexcept;
  static void unlink(direction& from, io_waiting& node) noexcept;
  static void wake(io_waiting* first) noexcept;

  // deadlines.cc
  struct deadline_of;
  static void fire(timer_node& t, std::int64_t now) noexcept;
  void deadline_fired(std::int64_t now) noexcept;
  io_waiting* expire_locked(io_direction d) noexcept;
  bool covered_locked(std::int64_t when) const noexcept;
  std::error_code arm_locked(direction& d, std::int64_t when,
                             const clear_up_after& unlocked) noexcept;
  std::error_code arm_for_locked(direction& d, std::int64_t when, const clear_up_after& unlocked);
  void stop_timers_locked(const clear_up_after& unlocked) noexcept;

  std::atomic<std::uint64_t> state_{one_reference};
  const int fd_;
  const traits kind_;
  bool drained_{false};
  bool attached_{false};
  bool owned_{true};
  bool ended_{false};  ///< the runtime has; under lock_
  std::atomic<bool> hung_up_{false};
  short_lock lock_;
  direction directions_[2];
  const net_home home_;
};

template <class F>
std::error_code io_descriptor::use(F&& f) noexcept {
  if (!enter_again()) return net_errc::closed;
  const std::error_code e = f(fd_);
  rest();
  return e;
}

/// An errno.
inline std::error_code system_error_code(int code) noexcept {
  return {code, std::system_category()};
}

}  // namespace verge::detail
