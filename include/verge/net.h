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
///       conn.set_deadline(verge::clock::now() + 30s);             // pushed back by every message
///       auto [n, error] = co_await conn.read_some(bytes);
///       if (error) co_return;                                     // the end, too late, reset, ...
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
///         co_await verge::sleep(100ms);                           // say so, and do not spin
///       else
///         verge::go(echo, std::move(conn)).detach();
///     }
///   }
///
/// All of it works on plain threads too, with `.wait()` in place of `co_await`. Errors are
/// std::error_code (io.h); nothing raises SIGPIPE. docs/net.md has the picture.
namespace verge {

struct listen_options {
  /// How many connections the kernel keeps until they are accepted. It has a limit of its own.
  int backlog{4096};
  /// Several listeners at one address share what comes in (SO_REUSEPORT).
  bool reuse_port{false};
  /// An IPv6 listener for IPv6 alone. Otherwise any_v6() takes IPv4 connections as well.
  bool only_v6{false};
};

class tcp_listener;
class unix_listener;

/// What all sockets through which bytes flow can do.
class stream_socket : public stream {
 public:
  /// Ends this side's half: the other side reads what was written and then the end of the stream,
  /// and may go on writing.
  std::error_code shutdown_write() noexcept;
  /// Reads nothing more: what comes is thrown away.
  std::error_code shutdown_read() noexcept;

  result<endpoint> local() const noexcept;
  result<endpoint> peer() const noexcept;

 protected:
  using stream::stream;
};

/// A TCP connection. Small writes go out at once (TCP_NODELAY), unless told otherwise.
class tcp_conn : public stream_socket {
 public:
  tcp_conn() noexcept = default;

  /// Connects. It can be limited in two ways: verge::timeout(connect(to), 2s) ends with
  /// net_errc::timed_out, and connect(to, 2s) with net_errc::deadline_exceeded. Given up, the
  /// socket is closed; the other side may have accepted it by then.
  static detail::io_operation<detail::connect_into<tcp_conn>> connect(const endpoint& to);
  template <class Rep, class Period>
  static detail::io_operation<detail::connect_into<tcp_conn>> connect(
      const endpoint& to, std::chrono::duration<Rep, Period> limit);

  /// TCP_NODELAY. True, as it is to begin with: small writes are sent at once. False: a small write
  /// waits until what was sent before it is acknowledged (Nagle's algorithm), which makes fewer
  /// packets.
  std::error_code set_no_delay(bool at_once) noexcept;
  std::error_code set_keep_alive(bool yes) noexcept;
  /// What close() does with what has not been sent: with 0 s it is thrown away, and the other side
  /// sees the connection reset.
  std::error_code set_linger(std::chrono::seconds limit) noexcept;

 private:
  friend detail::accept_into<tcp_conn>;
  friend detail::connect_into<tcp_conn>;
  using stream_socket::stream_socket;
};

/// Accepts TCP connections. Any number of tasks may accept at once.
class tcp_listener : public descriptor {
 public:
  tcp_listener() noexcept = default;

  static result<tcp_listener> listen(const endpoint& at, listen_options options = {});

  /// The next connection. It belongs to the runtime that the listener belongs to. When the process
  /// is out of descriptors it waits and tries again, a little less often each time; the connection
  /// waits in the kernel. Any other error than net_errc::closed may be over at the next call, or
  /// come back at once with every call: a server logs it, waits, and goes on. Given up, it has
  /// accepted none.
  detail::io_operation<detail::accept_into<tcp_conn>> accept() noexcept {
    return detail::io_operation<detail::accept_into<tcp_conn>>({get()});
  }
  /// Where it listens: with the port that the kernel chose, if it was asked to by port 0.
  result<endpoint> local() const noexcept;

 private:
  using descriptor::descriptor;
};

/// A connection over a unix socket.
class unix_conn : public stream_socket {
 public:
  unix_conn() noexcept = default;

  /// If the listener's queue is full the kernel says resource_unavailable_try_again at once.
  static detail::io_operation<detail::connect_into<unix_conn>> connect(const endpoint& to);
  template <class Rep, class Period>
  static detail::io_operation<detail::connect_into<unix_conn>> connect(
      const endpoint& to, std::chrono::duration<Rep, Period> limit);

  /// Two that are connected to each other.
  static result<std::pair<unix_conn, unix_conn>> pair();

 private:
  friend detail::accept_into<unix_conn>;
  friend detail::connect_into<unix_conn>;
  using stream_socket::stream_socket;
};

/// Accepts connections at a path. The file is removed by close() or when the listener goes.
class unix_listener : public descriptor {
 public:
  unix_listener() noexcept = default;
  unix_listener(unix_listener&&) noexcept = default;
  unix_listener& operator=(unix_listener&& other) noexcept;
  ~unix_listener();

  static result<unix_listener> listen(const endpoint& at, listen_options options = {});

  detail::io_operation<detail::accept_into<unix_conn>> accept() noexcept {
    return detail::io_operation<detail::accept_into<unix_conn>>({get()});
  }
  result<endpoint> local() const noexcept;
  std::error_code close() noexcept;

 private:
  unix_listener(detail::descriptor_handle h, std::string path) noexcept
      : descriptor(std::move(h)), path_(std::move(path)) {}

  std::string path_;
};

/// What sockets for datagrams can do. Each datagram is sent and received as a whole, so any number
/// of tasks may send and receive at once.
class datagram_socket : public descriptor {
 public:
  /// The next datagram, from whomever; only from the peer, if it is connected. One that is longer
  /// than the buffer is cut off, and says so. Given up, it has received none.
  detail::io_operation<detail::receive_from_action> receive(buffer into) noexcept {
    return detail::io_operation<detail::receive_from_action>({get(), into});
  }
  /// To an address, or without one to the peer. Given up, it has not sent it.
  detail::io_operation<detail::send_to_action> send(const_buffer what,
                                                    const endpoint& to = {}) noexcept {
    return detail::io_operation<detail::send_to_action>({get(), what, to});
  }

  /// From now on it sends to, and receives from, this peer alone. Does not wait.
  std::error_code connect(const endpoint& to) noexcept;
  result<endpoint> local() const noexcept;
  result<endpoint> peer() const noexcept;

 protected:
  using descriptor::descriptor;
};

class udp_socket : public datagram_socket {
 public:
  udp_socket() noexcept = default;

  /// At an address of this machine; endpoint::any(0) will do for a client.
  static result<udp_socket> bind(const endpoint& at);

 private:
  using datagram_socket::datagram_socket;
};

/// Datagrams over unix sockets. The file of a path is removed by close() or when the socket goes.
class unix_datagram : public datagram_socket {
 public:
  unix_datagram() noexcept = default;
  unix_datagram(unix_datagram&&) noexcept = default;
  unix_datagram& operator=(unix_datagram&& other) noexcept;
  ~unix_datagram();

  static result<unix_datagram> bind(const endpoint& at);
  /// Two that are connected to each other.
  static result<std::pair<unix_datagram, unix_datagram>> pair();
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
