// SPDX-License-Identifier: Apache-2.0
// A descriptor that tasks and threads wait for: its number, its users, its waiters and their
// deadlines. All sockets, and verge::fd, are handles to one.
//
// == Ground rules ==
//
// Three things can happen to a descriptor at the same time: system calls on its number, waits for
// its directions, and a close. Two words coordinate them.
//
//  state_     one 64-bit word, changed by atomic read-modify-writes from any thread:
//
//             63 ........ 32  31 ........ 8  4        3        2      1      0
//             references      users          write    read     write  read   closed
//                                            expired  expired  busy   busy
//
//     users       threads that are making a system call on the number, and the one that closes.
//                 None is added once `closed` is set. The last one to leave after that closes the
//                 number: so the number is not reused while it is still in use here, and a close
//                 waits for no thread. A waiting operation is not a user: it does not keep the
//                 number open.
//     references  to this object: the handle, every operation from its beginning to its end, every
//                 arming of a deadline's timer until it is stopped or has fired. Dropping the last
//                 one deletes the object.
//     busy        one operation at a time per direction of a stream, from its beginning to its end.
//                 To find it set is misuse (std::logic_error): bytes of two writers would mix.
//                 Datagrams and connections are indivisible, so any number of operations may share
//                 a datagram socket or a listener; they do not use the bit.
//     expired     the deadline of that direction has passed. Changed only under lock_; read when an
//                 operation begins, in the same step in which it becomes a user.
//
//  lock_      guards the lists of waiters, the deadlines and what is armed for them. No waiter is
//             woken under it. The engine's locks are taken under it and never the other way round:
//             timers fire with no lock held (Go #35532). The poller's lock comes before it.
//  ready      of a direction: an event has come since the last system call was begun. Set by
//             on_events() under lock_; cleared, by exchange, only by a thread about to make the
//             system call: so that call sees everything that had come by then.
//  drained    of the reading direction of a TCP stream; accessed only by its reader: the last read
//             returned less than the buffer's size, so there is no data before the next event.
//  hung_up_   an event has reported that the peer is finished, or an error. From then on `drained`
//             means nothing, as no further event need come.
//
// == Waiting ==
//
// An operation makes its system call. If that would block, it takes lock_, checks ready, closed and
// expired, and if none is set adds its waiter to the list. on_events() sets ready and removes every
// waiter from the list, under the same lock. So either the waiter is on the list when the event
// comes, or the event came before, and the call is repeated: no event is lost. Events are hints: a
// waiter is claimed `by_hint`, and its operation is retried on the worker that would have resumed
// it (operation.h).
//
//  ready against deadline    both remove the waiter from the list under lock_ and claim it: the
//                            first one ends the wait. If that was `ready`, the operation makes its
//                            system call, and checks the deadline only if that would block again:
//                            what has come in time is delivered.
//  ready against cancel      cancel claims without lock_; the second one finds the waiter claimed.
//                            A cancelled waiter removes itself from the list. `ready` stays set, so
//                            the next operation tries before it waits.
//  deadline against change   a timer that fires takes lock_ and reads the current deadlines: only
//                            what is due at the time of the firing expires. The deadline itself is
//                            the sequence number that reveals a stale firing: a moved deadline is
//                            not due, and a removed one does not exist.
//  close against anything    `closed` is set first. A thread that takes lock_ to wait before the
//                            closing thread does is woken by it; a later one sees `closed`.
//
// == Deadlines ==
//
// Each direction has a deadline and a timer, created with the first deadline and modified
// afterwards. A deadline is *covered* if its own timer, or the other direction's, is armed for that
// time or an earlier one. Moving a deadline to later, which servers do with every request, changes
// only the deadline: it stays covered, and the timer that fires too early for it is rearmed then,
// for the deadline at that time. Equal deadlines share one timer in the same way. Only moving a
// deadline before the armed time modifies the timer.
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

/// The runtime whose poller and timers serve a descriptor.
struct [[gnu::visibility("hidden")]] net_home {
  detail::scheduler* scheduler;
  std::shared_ptr<detail::poller> poller;  ///< nullptr in simulated time

  /// That of the calling thread, or of the default runtime.
  static net_home here();
};

class io_descriptor : private poller::source {
 public:
  /// How the kinds of descriptors differ.
  struct traits {
    bool socket{false};  ///< send() and recv() work on it
    bool tcp{false};     ///< a short read has emptied the socket
    bool stream{true};   ///< a read of zero bytes is the end
    bool pipe{false};    ///< writing may raise SIGPIPE, and no flag prevents it
  };
  enum class entry : std::uint8_t { entered, closed, expired, busy };
  enum class waits : std::uint8_t { waiting, try_again, closed, expired, ended };

  /// Why a wait has ended: the waiter's winner.
  enum why_not : std::uint32_t { by_deadline = waiter::by_event, by_close, by_end };

  /// Takes ownership of fd, unless it throws std::bad_alloc. The caller has the only reference.
  static descriptor_handle make(int fd, traits t, const net_home& home);
  io_descriptor(const io_descriptor&) = delete;
  io_descriptor& operator=(const io_descriptor&) = delete;

  /// Registers with the poller. Called once, before any wait.
  std::error_code attach() noexcept;
  /// The number will not be closed with it. Called before any other thread knows it.
  void disown() noexcept { owned_ = false; }

  int fd() const noexcept { return fd_; }
  const traits& kind() const noexcept { return kind_; }
  const net_home& home() const noexcept { return home_; }

  // ---- by an operation

  /// Becomes a user with its own reference, and if exclusive the only one of that direction.
  entry enter(io_direction d, bool exclusive) noexcept;
  /// Becomes a user again. Returns false if it has been closed.
  bool enter_again() noexcept;
  /// Stops being a user, and keeps the rest.
  void rest() noexcept { leave(one_user); }
  /// Undoes enter().
  void leave(io_direction d, bool exclusive, bool is_user) noexcept {
    leave(one_reference + (exclusive ? busy(d) : 0) + (is_user ? one_user : 0));
  }

  /// Called before each system call.
  void expect_events(io_direction d) noexcept {
    auto& ready = of(d).ready;
    // Acquire: the call sees what the event reported.
    if (ready.load(std::memory_order_relaxed)) ready.exchange(false, std::memory_order_acquire);
  }
  /// Returns whether a read would certainly find nothing. Called by the reader.
  bool certainly_nothing() const noexcept {
    return drained_ && !directions_[0].ready.load(std::memory_order_acquire) &&
           !hung_up_.load(std::memory_order_relaxed);
  }
  void set_drained(bool yes) noexcept { drained_ = yes; }

  waits wait(io_direction d, io_waiting& node, waiter& w) noexcept;
  void stop_waiting(io_direction d, io_waiting& node) noexcept;
  /// Returns whether an operation is waiting. For tests.
  bool awaited(io_direction d) noexcept {
    const std::lock_guard hold(lock_);
    return of(d).first != nullptr;
  }

  // ---- by the handle

  std::error_code close() noexcept;
  void drop() noexcept { leave(one_reference); }
  /// Sets a deadline in nanoseconds; `never` means none.
  std::error_code set_deadline(bool for_read, bool for_write, std::int64_t when,
                               bool precise = false) noexcept;
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
    /// When it expires; 0 for never. Guarded by lock_, like all that follows.
    std::int64_t deadline{0};
    /// The time the timer is armed for; 0 if it is not armed or has fired.
    std::int64_t armed{0};
    timer_node* timer{nullptr};
    bool started{false};
    bool precise{false};  ///< the deadline is
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
  bool covered_locked(const direction& d, std::int64_t when) const noexcept;
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
  bool ended_{false};  ///< the runtime has ended; guarded by lock_
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

/// From an errno value.
inline std::error_code system_error_code(int code) noexcept {
  return {code, std::system_category()};
}

}  // namespace verge::detail
