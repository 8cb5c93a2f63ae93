// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include <verge/detail/io_operation.h>
#include <verge/duration.h>
#include <verge/endpoint.h>
#include <verge/fd.h>
#include <verge/io.h>

#pragma GCC visibility push(default)

/// Sockets with deadlines.
///
///   verge::task<> echo(verge::tcp_conn conn) {
///     std::array<char, 4096> bytes;
///     for (;;) {
///       conn.set_deadline(verge::clock::now() + 30s);             // reset by every message
///       auto [n, error] = co_await conn.read_some(bytes);
///       if (error) co_return;                                     // end of stream, deadline, ...
///       if (!co_await conn.write_all({bytes.data(), n})) co_return;
///     }
///   }
///
///   verge::task<> serve() {
///     auto listener = verge::tcp_listener::listen(verge::endpoint::any(7)).or_throw();
///     for (;;) {
///       auto [conn, error] = co_await listener.accept();
///       if (error == verge::net_errc::closed) co_return;
///       if (error)
///         co_await verge::sleep(100ms);                           // do not spin
///       else
///         verge::go(echo, std::move(conn)).detach();
///     }
///   }
///
/// On plain threads use `.wait()` in place of `co_await`. Errors are std::error_code (io.h);
/// nothing raises SIGPIPE. docs/net.md explains the design.
namespace verge {

/// How a listener is made.
struct listen_options {
  /// How many connections the kernel queues until they are accepted. The kernel has its own limit.
  int backlog{4096};
  /// Several listeners on one address share the incoming connections (SO_REUSEPORT).
  bool reuse_port{false};
  /// Accept IPv6 only. Otherwise any_v6() accepts IPv4 connections as well.
  bool only_v6{false};
};

class tcp_listener;
class unix_listener;

/// The operations common to all stream sockets.
class stream_socket : public stream {
 public:
  /// Closes the sending half: the peer reads what was written and then the end of the stream, and
  /// may continue to write.
  std::error_code shutdown_write() noexcept;
  /// Closes the receiving half: further data is discarded.
  std::error_code shutdown_read() noexcept;

  /// The address of this end.
  result<endpoint> local() const noexcept;
  /// The address of the other end.
  result<endpoint> peer() const noexcept;

 protected:
  using stream::stream;
};

/// A TCP connection. Small writes are sent at once (TCP_NODELAY) by default.
class tcp_conn : public stream_socket {
 public:
  /// A connection that is closed.
  tcp_conn() noexcept = default;

  /// Connects. There are two ways to limit it: verge::timeout(connect(to), 2s) ends with
  /// net_errc::timed_out, connect(to, 2s) with net_errc::deadline_exceeded. If it is given up, the
  /// socket is closed; the peer may already have accepted the connection.
  static detail::io_operation<detail::connect_into<tcp_conn>> connect(const endpoint& to);
  template <class Rep, class Period>
  static detail::io_operation<detail::connect_into<tcp_conn>> connect(
      const endpoint& to, std::chrono::duration<Rep, Period> limit);

  /// Sets TCP_NODELAY. True, the initial setting: small writes are sent at once. False: a small
  /// write waits until earlier data is acknowledged (Nagle's algorithm), which saves packets.
  std::error_code set_no_delay(bool at_once) noexcept;
  /// Lets the kernel probe a silent peer (SO_KEEPALIVE). Off at first.
  std::error_code set_keep_alive(bool yes) noexcept;
  /// What close() does with unsent data: with 0 s it is discarded and the peer sees a connection
  /// reset.
  std::error_code set_linger(std::chrono::seconds limit) noexcept;

 private:
  friend detail::accept_into<tcp_conn>;
  friend detail::connect_into<tcp_conn>;
  using stream_socket::stream_socket;
};

/// Accepts TCP connections. Any number of tasks may accept at once.
class tcp_listener : public descriptor {
 public:
  /// A listener that is closed.
  tcp_listener() noexcept = default;

  /// Listens at an address of this machine; with port 0 the kernel chooses one, see local().
  static result<tcp_listener> listen(const endpoint& at, listen_options options = {});

  /// Takes ownership of a TCP socket that listens already, as a supervisor passes it on
  /// (socket activation). On failure the caller keeps the number.
  static result<tcp_listener> adopt(int number);

  /// The next connection, which belongs to the listener's runtime. When the process is out of
  /// descriptors, accept waits and retries with increasing delays; the connection stays queued in
  /// the kernel. Any error other than net_errc::closed may be transient or may recur with every
  /// call: a server logs it, waits, and retries. If it is given up, no connection was accepted.
  detail::io_operation<detail::accept_into<tcp_conn>> accept() noexcept {
    return detail::io_operation<detail::accept_into<tcp_conn>>({get()});
  }
  /// The address it listens on, with the port that the kernel chose if port 0 was given.
  result<endpoint> local() const noexcept;

 private:
  using descriptor::descriptor;
};

/// A connection over a Unix socket.
class unix_conn : public stream_socket {
 public:
  /// A connection that is closed.
  unix_conn() noexcept = default;

  /// If the listener's queue is full, ends with resource_unavailable_try_again at once.
  static detail::io_operation<detail::connect_into<unix_conn>> connect(const endpoint& to);
  template <class Rep, class Period>
  static detail::io_operation<detail::connect_into<unix_conn>> connect(
      const endpoint& to, std::chrono::duration<Rep, Period> limit);

  /// Two sockets that are connected to each other.
  static result<std::pair<unix_conn, unix_conn>> pair();

 private:
  friend detail::accept_into<unix_conn>;
  friend detail::connect_into<unix_conn>;
  using stream_socket::stream_socket;
};

/// Accepts connections at a path. The file is removed by close() or by the destructor.
class unix_listener : public descriptor {
 public:
  /// A listener that is closed.
  unix_listener() noexcept = default;
  unix_listener(unix_listener&&) noexcept = default;
  unix_listener& operator=(unix_listener&& other) noexcept;
  ~unix_listener();

  /// Listens at a path, which must not exist, or at an abstract name.
  static result<unix_listener> listen(const endpoint& at, listen_options options = {});

  /// The next connection, as tcp_listener::accept.
  detail::io_operation<detail::accept_into<unix_conn>> accept() noexcept {
    return detail::io_operation<detail::accept_into<unix_conn>>({get()});
  }
  /// The path it listens at.
  result<endpoint> local() const noexcept;
  /// As descriptor::close; removes the file.
  std::error_code close() noexcept;

 private:
  unix_listener(detail::descriptor_handle h, std::string path) noexcept
      : descriptor(std::move(h)), path_(std::move(path)) {}

  std::string path_;
};

/// The operations of datagram sockets. Each datagram is sent and received as a whole, so any number
/// of tasks may send and receive concurrently.
class datagram_socket : public descriptor {
 public:
  /// The next datagram, from any sender, or only from the peer if the socket is connected. A
  /// datagram that is longer than the buffer is truncated, and the result says so. If it is given
  /// up, nothing was received.
  detail::io_operation<detail::receive_from_action> receive(buffer into) noexcept {
    return detail::io_operation<detail::receive_from_action>({get(), into});
  }
  /// Sends to an address, or without one to the peer. If it is given up, nothing was sent.
  detail::io_operation<detail::send_to_action> send(const_buffer what,
                                                    const endpoint& to = {}) noexcept {
    return detail::io_operation<detail::send_to_action>({get(), what, to});
  }

  /// From now on sends to, and receives from, only this peer. Does not wait.
  std::error_code connect(const endpoint& to) noexcept;
  /// The address it is bound to.
  result<endpoint> local() const noexcept;
  /// The peer, if it is connected.
  result<endpoint> peer() const noexcept;

 protected:
  using descriptor::descriptor;
};

/// A UDP socket.
class udp_socket : public datagram_socket {
 public:
  /// A socket that is closed.
  udp_socket() noexcept = default;

  /// Binds to an address of this machine; use endpoint::any(0) for a client.
  static result<udp_socket> bind(const endpoint& at);

 private:
  using datagram_socket::datagram_socket;
};

/// Datagrams over Unix sockets. The file of a path is removed by close() or by the destructor.
class unix_datagram : public datagram_socket {
 public:
  /// A socket that is closed.
  unix_datagram() noexcept = default;
  unix_datagram(unix_datagram&&) noexcept = default;
  unix_datagram& operator=(unix_datagram&& other) noexcept;
  ~unix_datagram();

  /// Binds to a path, which must not exist, or to an abstract name.
  static result<unix_datagram> bind(const endpoint& at);
  /// Two sockets that are connected to each other.
  static result<std::pair<unix_datagram, unix_datagram>> pair();
  /// As descriptor::close; removes the file.
  std::error_code close() noexcept;

 private:
  unix_datagram(detail::descriptor_handle h, std::string path) noexcept
      : datagram_socket(std::move(h)), path_(std::move(path)) {}

  std::string path_;
};

namespace detail {

connect_action::target tcp_target(const endpoint& to, std::int64_t limit);
connect_action::target unix_target(const endpoint& to, std::int64_t limit);

}  // namespace detail

template <class Rep, class Period>
detail::io_operation<detail::connect_into<tcp_conn>> tcp_conn::connect(
    const endpoint& to, std::chrono::duration<Rep, Period> limit) {
  return detail::io_operation<detail::connect_into<tcp_conn>>(
      detail::tcp_target(to, saturate(limit).count()));
}

template <class Rep, class Period>
detail::io_operation<detail::connect_into<unix_conn>> unix_conn::connect(
    const endpoint& to, std::chrono::duration<Rep, Period> limit) {
  return detail::io_operation<detail::connect_into<unix_conn>>(
      detail::unix_target(to, saturate(limit).count()));
}

}  // namespace verge

#pragma GCC visibility pop
