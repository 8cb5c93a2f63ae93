#pragma once

#include <chrono>
#include <system_error>
#include <utility>

#include <verge/detail/io_operation.h>
#include <verge/detail/timer_functions.h>
#include <verge/io.h>

#pragma GCC visibility push(default)

/// Descriptors that can be waited for: pipes, eventfds, timerfds, signalfds, terminals, devices.
///
///   auto [in, error] = verge::fd::adopt(::dup(STDIN_FILENO));
///   in.set_read_deadline(verge::clock::now() + 30s);
///   std::array<char, 256> line;
///   auto [n, why] = co_await in.read_some(line);        // or .wait() on a plain thread
namespace verge {

/// What every handle to a descriptor can do.
///
/// A handle owns its descriptor and closes it. It is for one thread at a time, save for close(),
/// the deadlines and the beginning of operations: any thread may call these while the handle is
/// there.
///
/// Operations are begun with `co_await` in a task and with `.wait()` on a plain thread. They try
/// first and wait only if they must, and allocate nothing.
///
/// They can be limited with verge::timeout() and verge::under(): one that is given up gives its
/// result as it stands, with net_errc::timed_out or the context's err() as its error. When their
/// task is cancelled they throw verge::cancelled, unless bytes have been read or written: then the
/// result says how many, with net_errc::cancelled, and the next operation throws. So no byte is
/// ever lost.
class descriptor {
 public:
  /// Makes all operations that wait, and all that come later, end with net_errc::closed. The number
  /// itself is closed when no system call uses it any more, which is at once unless there is one on
  /// another thread at this very moment. net_errc::closed if it was closed before.
  std::error_code close() noexcept;
  /// Whether there is a descriptor: not in a handle that was moved from. It may be closed.
  explicit operator bool() const noexcept { return handle_.get() != nullptr; }
  /// The number, or -1. It is this handle's: do not close it, and know that close() does.
  int native_handle() const noexcept;

  /// From that time on operations of that direction end with net_errc::deadline_exceeded, those
  /// that wait and those that begin; even if they could do something. To go on, set another: a
  /// later one, or no_deadline. May be called at any time, also while somebody waits. A deadline
  /// that is put off costs next to nothing. (verge::clock or std::chrono::steady_clock.)
  template <class Clock, class Duration>
  std::error_code set_deadline(std::chrono::time_point<Clock, Duration> when) noexcept {
    return set_deadline(true, true, detail::count_of(when));
  }
  template <class Clock, class Duration>
  std::error_code set_read_deadline(std::chrono::time_point<Clock, Duration> when) noexcept {
    return set_deadline(true, false, detail::count_of(when));
  }
  template <class Clock, class Duration>
  std::error_code set_write_deadline(std::chrono::time_point<Clock, Duration> when) noexcept {
    return set_deadline(false, true, detail::count_of(when));
  }

 protected:
  descriptor() noexcept = default;
  explicit descriptor(detail::descriptor_handle h) noexcept : handle_(std::move(h)) {}
  descriptor(descriptor&&) noexcept = default;
  descriptor& operator=(descriptor&&) noexcept = default;
  ~descriptor() = default;

  detail::io_descriptor* get() const noexcept { return handle_.get(); }

 private:
  std::error_code set_deadline(bool read, bool write, std::int64_t when) noexcept;

  detail::descriptor_handle handle_;
};

/// A descriptor through which bytes flow. One operation at a time may read and one may write; a
/// second one throws std::logic_error.
class stream : public descriptor {
 public:
  /// Reads what there is, at least one byte, waiting for it if need be. At the end of the stream:
  /// net_errc::end_of_stream. Given up, it has read nothing.
  detail::io_operation<detail::read_action> read_some(buffer into) noexcept {
    return detail::io_operation<detail::read_action>({get(), into, false});
  }
  /// Reads until the buffer is full. If the stream ends before that: end_of_stream, and how much
  /// there was. Given up, or after a deadline, the result says how much is in the buffer.
  detail::io_operation<detail::read_action> read_full(buffer into) noexcept {
    return detail::io_operation<detail::read_action>({get(), into, true});
  }
  /// Writes what there is room for, at least one byte. Given up, it has written nothing.
  detail::io_operation<detail::write_action> write_some(const_buffer from) noexcept {
    return detail::io_operation<detail::write_action>({get(), from, false});
  }
  /// Writes all of it. If that fails, or is given up, the result says how much was written before.
  detail::io_operation<detail::write_action> write_all(const_buffer from) noexcept {
    return detail::io_operation<detail::write_action>({get(), from, true});
  }

 protected:
  using descriptor::descriptor;
};

/// Any descriptor that epoll takes.
class fd : public stream {
 public:
  fd() noexcept = default;

  /// Takes over a number and makes it non-blocking - which whoever else has it open through dup()
  /// or fork() sees as well. Where this fails the number stays the caller's: net_errc::not_pollable
  /// for a regular file or a directory.
  static result<fd> adopt(int number);

  /// Waits until a read (a write) would not block, for those who make the system call themselves.
  detail::io_operation<detail::readiness_action> readable() noexcept {
    return detail::io_operation<detail::readiness_action>({get(), detail::io_direction::read});
  }
  detail::io_operation<detail::readiness_action> writable() noexcept {
    return detail::io_operation<detail::readiness_action>({get(), detail::io_direction::write});
  }

 private:
  using stream::stream;
};

/// A pipe: what is written to `to` is read from `from`.
struct pipe_ends {
  fd from;
  fd to;
};
result<pipe_ends> make_pipe();

}  // namespace verge

#pragma GCC visibility pop
