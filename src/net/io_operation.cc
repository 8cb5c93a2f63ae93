// The operations on descriptors: what each system call's answer means.

#include <verge/detail/io_operation.h>

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <ctime>
#include <stdexcept>

#include <net/descriptor.h>
#include <net/sockets.h>

namespace verge::detail {

namespace {

constexpr bool would_block(int code) noexcept { return code == EAGAIN || code == EWOULDBLOCK; }

/// The kernel takes no more in one call.
constexpr std::size_t most_at_once = 1U << 30;

/// Writes to a pipe, for which there is no MSG_NOSIGNAL: a SIGPIPE that this call raises is taken
/// back before anybody sees it. A thread that has blocked SIGPIPE itself does not see it either.
ssize_t write_without_signal(int fd, const void* data, std::size_t size) noexcept {
  sigset_t pipe_only;
  sigset_t before;
  sigemptyset(&pipe_only);
  sigaddset(&pipe_only, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
  const ssize_t n = ::write(fd, data, size);
  if (sigismember(&before, SIGPIPE) == 1) return n;
  const int code = errno;
  if (n < 0 && code == EPIPE) {
    const timespec at_once{};
    sigtimedwait(&pipe_only, nullptr, &at_once);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = code;
  return n;
}

[[noreturn]] void throw_busy(io_direction d) {
  throw std::logic_error(
      d == io_direction::read
          ? "verge: two operations read from one stream at the same time; let one task read, and "
            "hand on what it gets through a channel"
          : "verge: two operations write to one stream at the same time; let one task write, and "
            "send it what to write through a channel");
}

}  // namespace

// ---- What all have in common

bool io_action::start(waiter& w) noexcept {
  bool woken = false;
  if (entered_) {
    // Woken by a hint: what has come is taken, whatever the deadline says by now.
    woken = true;
    if (!descriptor_->enter_again()) {
      error_ = net_errc::closed;
      return false;
    }
  } else {
    if (descriptor_ == nullptr) {
      error_ = net_errc::closed;
      return false;
    }
    switch (descriptor_->enter(direction_, exclusive_)) {
      case descriptor::entry::entered:
        entered_ = true;
        break;
      case descriptor::entry::closed:
        error_ = net_errc::closed;
        return false;
      case descriptor::entry::expired:
        error_ = net_errc::deadline_exceeded;
        return false;
      case descriptor::entry::busy:
        misused_ = true;
        return false;
    }
  }

  descriptor& d = *descriptor_;
  const bool reads_stream = exclusive_ && direction_ == io_direction::read;
  for (;; woken = true) {
    if (woken || !reads_stream || !d.certainly_nothing()) {
      d.expect_events(direction_);
      if (attempt_(*this, d)) {
        d.leave(direction_, exclusive_, true);
        entered_ = false;
        return false;
      }
    }
    switch (d.wait(direction_, waiting_, w)) {
      case descriptor::waits::try_again:
        continue;
      case descriptor::waits::waiting:
        d.rest();
        return true;
      case descriptor::waits::closed:
        error_ = net_errc::closed;
        break;
      case descriptor::waits::expired:
        error_ = net_errc::deadline_exceeded;
        break;
      case descriptor::waits::ended:
        error_ = net_errc::runtime_ended;
        break;
    }
    d.leave(direction_, exclusive_, true);
    entered_ = false;
    return false;
  }
}

void io_action::withdraw() noexcept {
  if (!entered_) return;
  unlist();
  leave();
}

void io_action::unlist() noexcept { descriptor_->stop_waiting(direction_, waiting_); }

void io_action::leave() noexcept {
  descriptor_->leave(direction_, exclusive_, false);
  entered_ = false;
}

void io_action::conclude(std::uint32_t winner) {
  if (misused_) throw_busy(direction_);
  switch (winner) {
    case descriptor::by_deadline:
      error_ = net_errc::deadline_exceeded;
      break;
    case descriptor::by_close:
      error_ = net_errc::closed;
      break;
    case descriptor::by_end:
      error_ = net_errc::runtime_ended;
      break;
    default:
      break;
  }
  if (entered_) leave();
}

// ---- Reading

read_action::read_action(io_operation<read_action>& op) noexcept
    : io_action(op.arguments_.from, io_direction::read, true, &attempt),
      data_(static_cast<std::byte*>(op.arguments_.into.data())),
      size_(op.arguments_.into.size()),
      full_(op.arguments_.full) {}

bool read_action::attempt(io_action& a, descriptor& d) noexcept {
  auto& self = static_cast<read_action&>(a);
  for (;;) {
    if (self.done_ == self.size_) return true;  // also if nothing was wanted
    const std::size_t room = std::min(self.size_ - self.done_, most_at_once);
    std::byte* const to = self.data_ + self.done_;
    const ssize_t n = d.kind().socket ? ::recv(d.fd(), to, room, 0) : ::read(d.fd(), to, room);
    if (n > 0) {
      const auto got = static_cast<std::size_t>(n);
      self.done_ += got;
      const bool all = got < room && d.kind().tcp;
      d.set_drained(all);
      if (!self.full_) return true;
      if (all && self.done_ != self.size_ && d.certainly_nothing()) return false;
      continue;
    }
    if (n == 0) {
      if (d.kind().stream) self.error_ = net_errc::end_of_stream;
      return true;
    }
    if (would_block(errno)) return false;
    if (errno == EINTR) continue;
    self.error_ = system_error_code(errno);
    return true;
  }
}

io_result read_action::finish(std::uint32_t winner) {
  conclude(winner);
  return {done_, error_};
}

// ---- Writing

write_action::write_action(io_operation<write_action>& op) noexcept
    : io_action(op.arguments_.to, io_direction::write, true, &attempt),
      data_(static_cast<const std::byte*>(op.arguments_.from.data())),
      size_(op.arguments_.from.size()),
      all_(op.arguments_.all) {}

bool write_action::attempt(io_action& a, descriptor& d) noexcept {
  auto& self = static_cast<write_action&>(a);
  while (self.done_ != self.size_) {
    const std::size_t rest = std::min(self.size_ - self.done_, most_at_once);
    const std::byte* const from = self.data_ + self.done_;
    ssize_t n = 0;
    if (d.kind().socket) {
      n = ::send(d.fd(), from, rest, MSG_NOSIGNAL);
    } else if (d.kind().pipe) {
      n = write_without_signal(d.fd(), from, rest);
    } else {
      n = ::write(d.fd(), from, rest);
    }
    if (n >= 0) {
      self.done_ += static_cast<std::size_t>(n);
      if (!self.all_) return true;
      continue;
    }
    if (would_block(errno)) return false;
    if (errno == EINTR) continue;
    self.error_ = system_error_code(errno);
    return true;
  }
  return true;
}

io_result write_action::finish(std::uint32_t winner) {
  conclude(winner);
  return {done_, error_};
}

// ---- Readiness

readiness_action::readiness_action(io_operation<readiness_action>& op) noexcept
    : io_action(op.arguments_.of, op.arguments_.direction, true, &attempt),
      events_(static_cast<short>(
          op.arguments_.direction == io_direction::read ? POLLIN | POLLPRI | POLLRDHUP : POLLOUT)) {
}

bool readiness_action::attempt(io_action& a, descriptor& d) noexcept {
  auto& self = static_cast<readiness_action&>(a);
  pollfd p{.fd = d.fd(), .events = self.events_, .revents = 0};
  for (;;) {
    const int n = ::poll(&p, 1, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) self.error_ = system_error_code(errno);
    return n != 0;
  }
}

std::error_code readiness_action::finish(std::uint32_t winner) {
  conclude(winner);
  return error_;
}

// ---- Accepting

namespace {

constexpr std::int64_t ms = 1'000'000;
constexpr std::int64_t first_back_off = 2 * ms;
constexpr std::int64_t longest_back_off = 200 * ms;

bool is_exhaustion(int code) noexcept {
  return code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM;
}

/// The connection has ended before it was accepted, or the network had an error to report on it
/// (accept(2)): the next one may be well.
bool is_of_one_connection(int code) noexcept {
  switch (code) {
    case ECONNABORTED:
    case EINTR:
    case ENETDOWN:
    case EPROTO:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
      return true;
    default:
      return false;
  }
}

}  // namespace

accept_action::accept_action(descriptor* listener) noexcept
    : io_action(listener, io_direction::read, false, &attempt) {}

bool accept_action::attempt(io_action& a, descriptor& d) noexcept {
  auto& self = static_cast<accept_action&>(a);
  self.exhausted_ = false;
  for (;;) {
    const int fd = ::accept4(d.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      auto [accepted, error] = adopt_socket(fd, d.kind(), d.home());
      self.accepted_ = std::move(accepted);
      self.error_ = error;
      return true;
    }
    const int code = errno;
    if (would_block(code)) return false;
    if (is_exhaustion(code)) {
      self.exhausted_ = true;
      return false;
    }
    // A listener that is not one says EOPNOTSUPP too, and is not made here.
    if (is_of_one_connection(code)) continue;
    self.error_ = system_error_code(code);
    return true;
  }
}

/// While descriptors are short no event tells when to try again: the connection that waits has had
/// its event. So a timer does. The waiter stays on the listener's list as well, for a close or a
/// deadline, and for events of further connections, which are as good a moment.
bool accept_action::start(waiter& w) noexcept {
  back_off_.reset();
  if (!io_action::start(w)) return false;
  if (!exhausted_) {
    delay_ = 0;
    return true;
  }
  delay_ = std::clamp(2 * delay_, first_back_off, longest_back_off);
  try {
    back_off_.emplace(sleep_operation::for_delay(delay_));
    if (back_off_->start(w, waiter::by_hint)) return true;
  } catch (...) {
    // No memory for a timer: handled below.
  }
  // The time is up already, or cannot be told: that is for the caller to know.
  back_off_.reset();
  if (!w.claim(waiter::by_owner)) return true;  // something has come meanwhile
  io_action::withdraw();
  error_ = std::make_error_code(std::errc::too_many_files_open);
  return false;
}

void accept_action::again() noexcept {
  if (back_off_) back_off_->withdraw();
  unlist();  // for it may have been the timer
}

void accept_action::withdraw() noexcept {
  if (back_off_) back_off_->withdraw();
  io_action::withdraw();
}

descriptor_handle accept_action::conclude_accept(std::uint32_t winner) {
  if (back_off_) back_off_->withdraw();
  back_off_.reset();
  conclude(winner);
  return std::move(accepted_);
}

// ---- Connecting

connect_action::connect_action(const target& t)
    : io_action(nullptr, io_direction::write, false, &attempt), target_(t) {
  auto [made, error] = make_socket(t.to, t.type, net_home::here());
  socket_ = std::move(made);
  descriptor_ = socket_.get();
  error_ = error;
}

bool connect_action::start(waiter& w) noexcept {
  if (error_) return false;
  return io_action::start(w);
}

/// The first time it asks for the connection, after that whether it is there.
bool connect_action::attempt(io_action& a, descriptor& d) noexcept {
  auto& self = static_cast<connect_action&>(a);
  if (self.begun_) {
    const std::error_code e = self.connected(d);
    if (e == std::errc::operation_in_progress) return false;
    self.error_ = e;
    return true;
  }
  self.begun_ = true;
  int code = 0;
  while (::connect(d.fd(), self.target_.to.address(), self.target_.to.size()) != 0) {
    code = errno;
    if (code != EINTR) break;
    code = 0;
  }
  if (code == EISCONN) code = 0;
  const bool waits = code == EINPROGRESS || code == EALREADY;
  if (code != 0 && !waits) {
    self.error_ = system_error_code(code);
    return true;
  }
  // Only now: a socket that is not being connected has an event to tell of that.
  self.error_ = d.attach();
  if (self.error_) return true;
  if (waits && self.target_.limit != never) {
    self.error_ =
        d.set_deadline(false, true, when_after(d.home().scheduler->now(), self.target_.limit));
    if (self.error_) return true;
  }
  return !waits;
}

/// Nothing if it is connected, operation_in_progress if that is still to be seen.
std::error_code connect_action::connected(descriptor& d) noexcept {
  int code = 0;
  socklen_t size = sizeof code;
  if (::getsockopt(d.fd(), SOL_SOCKET, SO_ERROR, &code, &size) != 0) code = errno;
  if (code == EINPROGRESS || code == EALREADY || code == EINTR) {
    return system_error_code(EINPROGRESS);
  }
  if (code != 0 && code != EISCONN) return system_error_code(code);
  // An event may come before there is anything to tell.
  sockaddr_storage peer{};
  size = sizeof peer;
  if (::getpeername(d.fd(), reinterpret_cast<sockaddr*>(&peer), &size) == 0) return {};
  return system_error_code(errno == ENOTCONN ? EINPROGRESS : errno);
}

void connect_action::withdraw() noexcept {
  io_action::withdraw();
  descriptor_handle().swap(socket_);
}

descriptor_handle connect_action::conclude_connect(std::uint32_t winner) {
  conclude(winner);
  if (!error_ && target_.limit != never) {
    error_ = socket_.get()->set_deadline(false, true, never);
  }
  if (error_) descriptor_handle().swap(socket_);
  return std::move(socket_);
}

// ---- Datagrams

receive_from_action::receive_from_action(io_operation<receive_from_action>& op) noexcept
    : io_action(op.arguments_.from, io_direction::read, false, &attempt),
      into_(op.arguments_.into) {}

bool receive_from_action::attempt(io_action& a, descriptor& d) noexcept {
  auto& self = static_cast<receive_from_action&>(a);
  sockaddr_storage from{};
  iovec part{.iov_base = self.into_.data(), .iov_len = self.into_.size()};
  for (;;) {
    msghdr message{};
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const ssize_t n = ::recvmsg(d.fd(), &message, 0);
    if (n >= 0) {
      self.got_.bytes = static_cast<std::size_t>(n);
      self.got_.from =
          endpoint::from(reinterpret_cast<const sockaddr*>(&from), message.msg_namelen);
      self.got_.truncated = (message.msg_flags & MSG_TRUNC) != 0;
      return true;
    }
    if (would_block(errno)) return false;
    if (errno == EINTR) continue;
    self.error_ = system_error_code(errno);
    return true;
  }
}

datagram receive_from_action::finish(std::uint32_t winner) {
  conclude(winner);
  got_.error = error_;
  return got_;
}

send_to_action::send_to_action(io_operation<send_to_action>& op) noexcept
    : io_action(op.arguments_.from, io_direction::write, false, &attempt),
      what_(op.arguments_.what),
      to_(op.arguments_.to) {}

bool send_to_action::attempt(io_action& a, descriptor& d) noexcept {
  auto& self = static_cast<send_to_action&>(a);
  const bool addressed = self.to_.size() != 0;
  for (;;) {
    const ssize_t n = ::sendto(d.fd(), self.what_.data(), self.what_.size(), MSG_NOSIGNAL,
                               addressed ? self.to_.address() : nullptr, self.to_.size());
    if (n >= 0) {
      self.sent_ = static_cast<std::size_t>(n);
      return true;
    }
    if (would_block(errno)) return false;
    if (errno == EINTR) continue;
    self.error_ = system_error_code(errno);
    return true;
  }
}

io_result send_to_action::finish(std::uint32_t winner) {
  conclude(winner);
  return {sent_, error_};
}

}  // namespace verge::detail
