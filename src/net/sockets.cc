// SPDX-License-Identifier: Apache-2.0

// The non-waiting functions of sockets and verge::fd.

#include <net/sockets.h>
#include <verge/net.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <new>
#include <utility>

#include <base/file_descriptor.h>

namespace verge {

namespace detail {

namespace {

std::error_code last_error() noexcept { return system_error_code(errno); }

std::error_code set_option(int fd, int level, int name, int value) noexcept {
  return ::setsockopt(fd, level, name, &value, sizeof value) == 0 ? std::error_code()
                                                                  : last_error();
}

bool is_ip(const endpoint& e) noexcept {
  return e.kind() == endpoint::family::ipv4 || e.kind() == endpoint::family::ipv6;
}

io_descriptor::traits traits_of(const endpoint& address, int type) noexcept {
  const bool stream = type == SOCK_STREAM;
  return {.socket = true, .tcp = stream && is_ip(address), .stream = stream, .pipe = false};
}

using name_fn = int (*)(int, sockaddr*, socklen_t*);

/// getsockname or getpeername of a handle.
result<endpoint> socket_name(io_descriptor* d, name_fn ask) noexcept {
  if (d == nullptr) return {{}, net_errc::closed};
  sockaddr_storage a{};
  socklen_t size = sizeof a;
  const std::error_code e = d->use([&](int fd) {
    return ask(fd, reinterpret_cast<sockaddr*>(&a), &size) == 0 ? std::error_code() : last_error();
  });
  if (e) return {{}, e};
  return {endpoint::from(reinterpret_cast<const sockaddr*>(&a), size), {}};
}

template <class F>
std::error_code use(io_descriptor* d, F&& f) noexcept {
  return d == nullptr ? make_error_code(net_errc::closed) : d->use(std::forward<F>(f));
}

/// Binds, performs the further set-up, and registers.
template <class F>
made_descriptor bound(const endpoint& at, int type, F&& prepare) {
  auto [made, error] = make_socket(at, type, net_home::here());
  if (error) return {{}, error};
  io_descriptor& d = *made.get();
  error = prepare(d.fd());
  if (!error) error = d.attach();
  if (error) return {{}, error};
  return {std::move(made), {}};
}

std::error_code bind_to(int fd, const endpoint& at) noexcept {
  return ::bind(fd, at.address(), at.size()) == 0 ? std::error_code() : last_error();
}

std::error_code listen_at(int fd, const endpoint& at, const listen_options& options) noexcept {
  if (is_ip(at)) {
    if (auto e = set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1)) return e;
    // Accepted connections inherit it.
    if (auto e = set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1)) return e;
  }
  if (options.reuse_port) {
    if (auto e = set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1)) return e;
  }
  if (at.kind() == endpoint::family::ipv6) {
    if (auto e = set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, options.only_v6 ? 1 : 0)) return e;
  }
  if (auto e = bind_to(fd, at)) return e;
  return ::listen(fd, options.backlog) == 0 ? std::error_code() : last_error();
}

/// The file that a Unix socket creates at this address; none for abstract names.
std::string file_of(const endpoint& at) {
  std::string path = at.path();
  return path.starts_with('@') ? std::string() : path;
}

void remove_file(std::string& path) noexcept {
  if (!path.empty()) ::unlink(path.c_str());
  path.clear();
}

struct made_pair {
  descriptor_handle first;
  descriptor_handle second;
  std::error_code error;
};

made_pair socket_pair(int type) {
  const net_home home = net_home::here();
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return {{}, {}, last_error()};
  }
  const io_descriptor::traits t{
      .socket = true, .tcp = false, .stream = type == SOCK_STREAM, .pipe = false};
  auto [first, error] = adopt_socket(ends[0], t, home);
  auto [second, second_error] = adopt_socket(ends[1], t, home);
  if (!error) error = second_error;
  if (error) return {{}, {}, error};
  return {std::move(first), std::move(second), {}};
}

}  // namespace

made_descriptor adopt_socket(int fd, io_descriptor::traits t, const net_home& home) noexcept {
  try {
    descriptor_handle made = io_descriptor::make(fd, t, home);
    if (const std::error_code e = made.get()->attach()) return {{}, e};
    return {std::move(made), {}};
  } catch (const std::bad_alloc&) {
    ::close(fd);
    return {{}, std::make_error_code(std::errc::not_enough_memory)};
  }
}

made_descriptor make_socket(const endpoint& address, int type, const net_home& home) noexcept {
  if (home.poller == nullptr) return {{}, net_errc::simulated_time};
  if (address.kind() == endpoint::family::none) return {{}, net_errc::bad_address};
  const int fd = ::socket(address.address()->sa_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return {{}, last_error()};
  try {
    const io_descriptor::traits t = traits_of(address, type);
    descriptor_handle made = io_descriptor::make(fd, t, home);
    if (t.tcp) {
      if (auto e = set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1)) return {{}, e};
    }
    return {std::move(made), {}};
  } catch (const std::bad_alloc&) {
    ::close(fd);
    return {{}, std::make_error_code(std::errc::not_enough_memory)};
  }
}

/// An address of the wrong kind becomes `none`, which connecting rejects.
connect_action::target tcp_target(const endpoint& to, std::int64_t limit) {
  return {is_ip(to) ? to : endpoint(), SOCK_STREAM, limit};
}
connect_action::target unix_target(const endpoint& to, std::int64_t limit) {
  const bool fits = to.kind() == endpoint::family::unix_path;
  return {fits ? to : endpoint(), SOCK_STREAM, limit};
}

}  // namespace detail

using detail::last_error;
using detail::set_option;

// ---- Any descriptor

std::error_code descriptor::close() noexcept {
  return get() == nullptr ? make_error_code(net_errc::closed) : get()->close();
}

int descriptor::native_handle() const noexcept { return get() == nullptr ? -1 : get()->fd(); }

std::error_code descriptor::set_deadline(bool read, bool write, std::int64_t when,
                                         std::int64_t slack) noexcept {
  if (get() == nullptr) return net_errc::closed;
  const std::int64_t due = detail::with_slack(detail::as_time(when), slack);
  return get()->set_deadline(read, write, due, slack == detail::precise_slack);
}

namespace {

/// Whether each read returns one message, which may be empty: zero bytes are not the end then.
bool has_datagrams(int number) noexcept {
  int type = 0;
  socklen_t size = sizeof type;
  return ::getsockopt(number, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_DGRAM;
}

}  // namespace

result<fd> fd::adopt(int number) {
  struct stat about {};
  if (::fstat(number, &about) != 0) return {{}, last_error()};
  const int flags = ::fcntl(number, F_GETFL);
  if (flags < 0) return {{}, last_error()};
  if (S_ISREG(about.st_mode) || S_ISDIR(about.st_mode)) return {{}, net_errc::not_pollable};
  const detail::io_descriptor::traits t{.socket = S_ISSOCK(about.st_mode),
                                        .tcp = false,
                                        .stream = !has_datagrams(number),
                                        .pipe = S_ISFIFO(about.st_mode)};
  auto made = detail::io_descriptor::make(number, t, detail::net_home::here());
  std::error_code e = made.get()->attach();
  if (!e && (flags & O_NONBLOCK) == 0 && ::fcntl(number, F_SETFL, flags | O_NONBLOCK) != 0) {
    e = last_error();
  }
  if (e) {
    made.get()->disown();
    return {{}, e};
  }
  return {fd(std::move(made)), {}};
}

result<pipe_ends> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_NONBLOCK | O_CLOEXEC) != 0) return {{}, last_error()};
  detail::file_descriptor first(ends[0]);
  detail::file_descriptor second(ends[1]);
  result<fd> from = fd::adopt(first.get());
  if (from.error) return {{}, from.error};
  first.release();
  result<fd> to = fd::adopt(second.get());
  if (to.error) return {{}, to.error};
  second.release();
  return {{std::move(*from), std::move(*to)}, {}};
}

// ---- Streams

std::error_code stream_socket::shutdown_write() noexcept {
  return detail::use(
      get(), [](int n) { return ::shutdown(n, SHUT_WR) == 0 ? std::error_code() : last_error(); });
}

std::error_code stream_socket::shutdown_read() noexcept {
  return detail::use(
      get(), [](int n) { return ::shutdown(n, SHUT_RD) == 0 ? std::error_code() : last_error(); });
}

result<endpoint> stream_socket::local() const noexcept {
  return detail::socket_name(get(), &::getsockname);
}
result<endpoint> stream_socket::peer() const noexcept {
  return detail::socket_name(get(), &::getpeername);
}

detail::io_operation<detail::connect_into<tcp_conn>> tcp_conn::connect(const endpoint& to) {
  return connect(to, std::chrono::nanoseconds::max());
}

std::error_code tcp_conn::set_no_delay(bool at_once) noexcept {
  return detail::use(
      get(), [&](int n) { return set_option(n, IPPROTO_TCP, TCP_NODELAY, at_once ? 1 : 0); });
}

std::error_code tcp_conn::set_keep_alive(bool yes) noexcept {
  return detail::use(get(),
                     [&](int n) { return set_option(n, SOL_SOCKET, SO_KEEPALIVE, yes ? 1 : 0); });
}

std::error_code tcp_conn::set_linger(std::chrono::seconds limit) noexcept {
  const ::linger value{.l_onoff = 1, .l_linger = static_cast<int>(limit.count())};
  return detail::use(get(), [&](int n) {
    return ::setsockopt(n, SOL_SOCKET, SO_LINGER, &value, sizeof value) == 0 ? std::error_code()
                                                                             : last_error();
  });
}

result<tcp_listener> tcp_listener::listen(const endpoint& at, listen_options options) {
  if (!detail::is_ip(at)) return {{}, net_errc::bad_address};
  auto [made, error] =
      detail::bound(at, SOCK_STREAM, [&](int n) { return detail::listen_at(n, at, options); });
  return {tcp_listener(std::move(made)), error};
}

result<tcp_listener> tcp_listener::adopt(int number) {
  int listens = 0;
  socklen_t size = sizeof listens;
  if (::getsockopt(number, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0) {
    return {{}, last_error()};
  }
  sockaddr_storage at{};
  size = sizeof at;
  if (::getsockname(number, reinterpret_cast<sockaddr*>(&at), &size) != 0) {
    return {{}, last_error()};
  }
  if (listens == 0 || !detail::is_ip(endpoint::from(reinterpret_cast<sockaddr*>(&at), size))) {
    return {{}, std::make_error_code(std::errc::invalid_argument)};
  }
  const int flags = ::fcntl(number, F_GETFL);
  if (flags < 0 || ::fcntl(number, F_SETFL, flags | O_NONBLOCK) != 0) return {{}, last_error()};
  // Accepted connections inherit it.
  if (auto e = detail::set_option(number, IPPROTO_TCP, TCP_NODELAY, 1)) return {{}, e};
  const detail::io_descriptor::traits t{.socket = true, .tcp = true, .stream = true, .pipe = false};
  auto made = detail::io_descriptor::make(number, t, detail::net_home::here());
  if (const std::error_code e = made.get()->attach()) {
    made.get()->disown();
    return {{}, e};
  }
  return {tcp_listener(std::move(made)), {}};
}

result<endpoint> tcp_listener::local() const noexcept {
  return detail::socket_name(get(), &::getsockname);
}

// ---- Unix sockets

detail::io_operation<detail::connect_into<unix_conn>> unix_conn::connect(const endpoint& to) {
  return connect(to, std::chrono::nanoseconds::max());
}

result<std::pair<unix_conn, unix_conn>> unix_conn::pair() {
  auto [first, second, error] = detail::socket_pair(SOCK_STREAM);
  return {{unix_conn(std::move(first)), unix_conn(std::move(second))}, error};
}

result<unix_listener> unix_listener::listen(const endpoint& at, listen_options options) {
  if (at.kind() != endpoint::family::unix_path) return {{}, net_errc::bad_address};
  auto [made, error] =
      detail::bound(at, SOCK_STREAM, [&](int n) { return detail::listen_at(n, at, options); });
  if (error) return {{}, error};
  return {unix_listener(std::move(made), detail::file_of(at)), {}};
}

unix_listener& unix_listener::operator=(unix_listener&& other) noexcept {
  detail::remove_file(path_);
  path_ = std::exchange(other.path_, {});
  descriptor::operator=(std::move(other));
  return *this;
}

unix_listener::~unix_listener() { detail::remove_file(path_); }

/// The file is removed first, so that no client finds a socket without a listener.
std::error_code unix_listener::close() noexcept {
  detail::remove_file(path_);
  return descriptor::close();
}

result<endpoint> unix_listener::local() const noexcept {
  return detail::socket_name(get(), &::getsockname);
}

// ---- Datagrams

std::error_code datagram_socket::connect(const endpoint& to) noexcept {
  return detail::use(get(), [&](int n) {
    return ::connect(n, to.address(), to.size()) == 0 ? std::error_code() : last_error();
  });
}

result<endpoint> datagram_socket::local() const noexcept {
  return detail::socket_name(get(), &::getsockname);
}
result<endpoint> datagram_socket::peer() const noexcept {
  return detail::socket_name(get(), &::getpeername);
}

result<udp_socket> udp_socket::bind(const endpoint& at) {
  if (!detail::is_ip(at)) return {{}, net_errc::bad_address};
  auto [made, error] = detail::bound(at, SOCK_DGRAM, [&](int n) { return detail::bind_to(n, at); });
  return {udp_socket(std::move(made)), error};
}

result<unix_datagram> unix_datagram::bind(const endpoint& at) {
  if (at.kind() != endpoint::family::unix_path) return {{}, net_errc::bad_address};
  auto [made, error] = detail::bound(at, SOCK_DGRAM, [&](int n) { return detail::bind_to(n, at); });
  if (error) return {{}, error};
  return {unix_datagram(std::move(made), detail::file_of(at)), {}};
}

result<std::pair<unix_datagram, unix_datagram>> unix_datagram::pair() {
  auto [first, second, error] = detail::socket_pair(SOCK_DGRAM);
  return {{unix_datagram(std::move(first), {}), unix_datagram(std::move(second), {})}, error};
}

unix_datagram& unix_datagram::operator=(unix_datagram&& other) noexcept {
  detail::remove_file(path_);
  path_ = std::exchange(other.path_, {});
  descriptor::operator=(std::move(other));
  return *this;
}

unix_datagram::~unix_datagram() { detail::remove_file(path_); }

std::error_code unix_datagram::close() noexcept {
  detail::remove_file(path_);
  return descriptor::close();
}

}  // namespace verge
