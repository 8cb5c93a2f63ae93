// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <system_error>
#include <utility>

#include <verge/detail/io_operation.h>
#include <verge/detail/timer_functions.h>
#include <verge/io.h>
#include <verge/timer_options.h>

#pragma GCC visibility push(default)

/// Pollable descriptors: pipes, eventfds, timerfds, signalfds, terminals, devices.
///
///   auto [in, error] = verge::fd::adopt(::dup(STDIN_FILENO));
///   in.set_read_deadline(verge::clock::now() + 30s);
///   std::array<char, 256> line;
///   auto [n, why] = co_await in.read_some(line);        // or .wait() on a plain thread
namespace verge {

/// The operations common to all descriptor handles.
///
/// A handle owns its descriptor and closes it. It is not thread-safe, except for close(), the
/// deadlines and starting operations: any thread may call these during the handle's lifetime.
///
/// Operations are started with `co_await` in a task and with `.wait()` on a plain thread. They try
/// first and wait only if they must. They do not allocate.
///
/// verge::timeout() and verge::under() limit them: an operation that is given up returns its
/// partial result, with net_errc::timed_out or the context's err() as the error. If the task is
/// cancelled, an operation throws verge::cancelled, unless bytes have been read or written: then it
/// returns their number with net_errc::cancelled, and the next operation throws. So no byte is
/// lost.
class descriptor {
 public:
  /// Makes all waiting and all later operations end with net_errc::closed. The descriptor number is
  /// closed when no system call uses it any more: at once, unless another thread is inside one.
  /// Returns net_errc::closed if it was already closed.
  std::error_code close() noexcept;
  /// Returns whether the handle has a descriptor, which may be closed. A moved-from handle has
  /// none.
  explicit operator bool() const noexcept { return handle_.get() != nullptr; }
  /// The descriptor number, or -1. The handle owns it: do not close it; it is invalid after
  /// close().
  int native_handle() const noexcept;

  /// From `when` on, waiting and new operations of that direction end with
  /// net_errc::deadline_exceeded, even if they could make progress, until another deadline is set:
  /// a later one or no_deadline. May be called at any time, also while operations wait. Moving a
  /// deadline to later is almost free. `when` is of verge::clock or std::chrono::steady_clock. A
  /// deadline may have slack or be precise: each setting says so anew.
  template <class Clock, class Duration>
  std::error_code set_deadline(std::chrono::time_point<Clock, Duration> when,
                               timer_options options = {}) noexcept {
    return set_deadline(true, true, detail::count_of(when), detail::slack_of(options));
  }
  /// The same for reading only.
  template <class Clock, class Duration>
  std::error_code set_read_deadline(std::chrono::time_point<Clock, Duration> when,
                                    timer_options options = {}) noexcept {
    return set_deadline(true, false, detail::count_of(when), detail::slack_of(options));
  }
  /// The same for writing only.
  template <class Clock, class Duration>
  std::error_code set_write_deadline(std::chrono::time_point<Clock, Duration> when,
                                     timer_options options = {}) noexcept {
    return set_deadline(false, true, detail::count_of(when), detail::slack_of(options));
  }

 protected:
  descriptor() noexcept = default;
  explicit descriptor(detail::descriptor_handle h) noexcept : handle_(std::move(h)) {}
  descriptor(descriptor&&) noexcept = default;
  descriptor& operator=(descriptor&&) noexcept = default;
  ~descriptor() = default;

  detail::io_descriptor* get() const noexcept { return handle_.get(); }

 private:
  std::error_code set_deadline(bool read, bool write, std::int64_t when,
                               std::int64_t slack) noexcept;

  detail::descriptor_handle handle_;
};

/// A byte stream. At most one operation may read and one may write at a time; a second one throws
/// std::logic_error.
class stream : public descriptor {
 public:
  /// Reads what is available, waiting for at least one byte. Ends with net_errc::end_of_stream at
  /// the end of the stream. If it is given up, nothing was read.
  detail::io_operation<detail::read_action> read_some(buffer into) noexcept {
    return detail::io_operation<detail::read_action>({get(), into, false});
  }
  /// Reads until the buffer is full. If the stream ends earlier, or the operation is given up or
  /// reaches its deadline, the result has the error and the number of bytes in the buffer.
  detail::io_operation<detail::read_action> read_full(buffer into) noexcept {
    return detail::io_operation<detail::read_action>({get(), into, true});
  }
  /// Writes as much as fits, at least one byte. If it is given up, nothing was written.
  detail::io_operation<detail::write_action> write_some(const_buffer from) noexcept {
    return detail::io_operation<detail::write_action>({get(), from, false});
  }
  /// Writes everything. If it fails or is given up, the result has the number of bytes written.
  detail::io_operation<detail::write_action> write_all(const_buffer from) noexcept {
    return detail::io_operation<detail::write_action>({get(), from, true});
  }

 protected:
  using descriptor::descriptor;
};

/// Any descriptor that epoll accepts.
class fd : public stream {
 public:
  /// No descriptor.
  fd() noexcept = default;

  /// Takes ownership of a descriptor number and makes it non-blocking, which also affects
  /// duplicates from dup() or fork(). On failure the caller keeps the number; the error is
  /// net_errc::not_pollable for a regular file or a directory.
  static result<fd> adopt(int number);

  /// Waits until a read would not block, for code that makes the system call itself.
  detail::io_operation<detail::readiness_action> readable() noexcept {
    return detail::io_operation<detail::readiness_action>({get(), detail::io_direction::read});
  }
  /// Waits until a write would not block.
  detail::io_operation<detail::readiness_action> writable() noexcept {
    return detail::io_operation<detail::readiness_action>({get(), detail::io_direction::write});
  }

 private:
  using stream::stream;
};

/// A pipe: what is written to `to` is read from `from`.
struct pipe_ends {
  fd from;  ///< the end to read
  fd to;    ///< the end to write
};
/// Makes a pipe.
result<pipe_ends> make_pipe();

}  // namespace verge

#pragma GCC visibility pop
