// SPDX-License-Identifier: Apache-2.0

// The operations that make connections: accept, including what it does when descriptors run out,
// and connect.

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include <base/system_call.h>
#include <net/sockets.h>
#include <verge/detail/io_operation.h>

namespace verge::detail {

// ---- Accepting

namespace {

/// Nanoseconds.
constexpr std::int64_t first_back_off = 2'000'000;
constexpr std::int64_t longest_back_off = 200'000'000;
/// After this many errors of single connections in a row, the cause is not a single connection.
constexpr int most_in_a_row = 16;

bool is_exhaustion(int code) noexcept {
  return code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM;
}

/// The connection ended before it was accepted, or had a network error (accept(2)): the next one
/// may be fine.
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

accept_action::accept_action(io_descriptor* listener) noexcept
    : io_action(listener, io_direction::read, false, &attempt) {}

bool accept_action::attempt(io_action& a, io_descriptor& d) noexcept {
  auto& self = static_cast<accept_action&>(a);
  self.exhausted_ = false;
  for (int failed = 0;; ++failed) {
    const int fd = ::accept4(d.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      auto [accepted, error] = adopt_socket(fd, d.kind(), d.home());
      self.accepted_ = std::move(accepted);
      self.error_ = error;
      return true;
    }
    const int code = errno;
    if (would_block(code)) return false;
    // A socket that does not listen gives EOPNOTSUPP too, but is never created here.
    const bool of_one = is_of_one_connection(code);
    if (of_one && failed + 1 < most_in_a_row) continue;
    if (of_one || is_exhaustion(code)) {
      self.exhausted_ = true;
      return false;
    }
    self.error_ = system_error_code(code);
    return true;
  }
}

/// When descriptors run out, no event says when to retry: the waiting connection has already had
/// its event. So a timer does. The waiter is also on the listener's list, for a close or a
/// deadline, and for events of further connections, on which it retries too.
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
    // No memory for a timer: see below.
  }
  // No timer could be started: the caller handles it.
  if (!w.claim(waiter::by_owner)) return true;  // an event has come meanwhile
  io_action::withdraw();
  error_ = std::make_error_code(std::errc::too_many_files_open);
  return false;
}

void accept_action::again() noexcept {
  if (back_off_) back_off_->withdraw();
  unlist();  // it may have been the timer
}

void accept_action::withdraw() noexcept {
  if (back_off_) back_off_->withdraw();
  io_action::withdraw();
}

descriptor_handle accept_action::conclude_accept(std::uint32_t winner) {
  if (back_off_) back_off_->withdraw();
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

/// The first call requests the connection; later calls check whether it is established.
bool connect_action::attempt(io_action& a, io_descriptor& d) noexcept {
  auto& self = static_cast<connect_action&>(a);
  if (self.begun_) {
    const std::error_code e = self.connected(d);
    if (e == std::errc::operation_in_progress) return false;
    self.error_ = e;
    return true;
  }
  self.begun_ = true;
  const endpoint& to = self.target_.to;
  int code = uninterrupted([&] { return ::connect(d.fd(), to.address(), to.size()); });
  if (code != 0) code = errno;
  if (code == EISCONN) code = 0;
  const bool waits = code == EINPROGRESS || code == EALREADY;
  if (code != 0 && !waits) {
    self.error_ = system_error_code(code);
    return true;
  }
  // Only now: a socket that is not connecting has an event that says so.
  self.error_ = d.attach();
  if (self.error_) return true;
  if (waits && self.target_.limit != never) {
    self.error_ =
        d.set_deadline(false, true, when_after(d.home().scheduler->now(), self.target_.limit));
    if (self.error_) return true;
  }
  return !waits;
}

/// No error if it is connected, operation_in_progress if that is not known yet.
std::error_code connect_action::connected(io_descriptor& d) noexcept {
  int code = 0;
  socklen_t size = sizeof code;
  if (::getsockopt(d.fd(), SOL_SOCKET, SO_ERROR, &code, &size) != 0) code = errno;
  if (code == EINPROGRESS || code == EALREADY || code == EINTR) {
    return system_error_code(EINPROGRESS);
  }
  if (code != 0 && code != EISCONN) return system_error_code(code);
  // An event may come before the result is known.
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

}  // namespace verge::detail
