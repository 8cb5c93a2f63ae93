// SPDX-License-Identifier: Apache-2.0

// The operations on descriptors that transfer bytes, and the meaning of each system call's result.
// Those that make connections are in connecting.cc.

#include <verge/detail/io_operation.h>

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <stdexcept>

#include <base/system_call.h>
#include <net/descriptor.h>

namespace verge::detail {

namespace {

/// After a failed call: returns false if it would block; otherwise its error becomes the
/// operation's.
bool ends_by_errno(std::error_code& error) noexcept {
  if (would_block(errno)) return false;
  error = system_error_code(errno);
  return true;
}

/// The kernel accepts no more in one call.
constexpr std::size_t most_at_once = 1U << 30;

/// Writes to a pipe, for which there is no MSG_NOSIGNAL: a SIGPIPE raised by this call is consumed
/// before it is delivered, also on a thread that has blocked SIGPIPE itself.
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
          ? "verge: two concurrent reads on one stream; let one task read, and "
            "pass on what it reads through a channel"
          : "verge: two concurrent writes on one stream; let one task write, and "
            "send it the data through a channel");
}

}  // namespace

// ---- Common parts

bool io_action::start(waiter& w) noexcept {
  bool woken = false;
  if (entered_) {
    // Woken by a hint: available data is taken even if the deadline has passed by now.
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
      case io_descriptor::entry::entered:
        entered_ = true;
        break;
      case io_descriptor::entry::closed:
        error_ = net_errc::closed;
        return false;
      case io_descriptor::entry::expired:
        error_ = net_errc::deadline_exceeded;
        return false;
      case io_descriptor::entry::busy:
        misused_ = true;
        return false;
    }
  }

  io_descriptor& d = *descriptor_;
  const bool reads_stream = exclusive_ && direction_ == io_direction::read;
  for (;; woken = true) {
    if (woken || !reads_stream || !d.certainly_nothing()) {
      d.expect_events(direction_);
      if (attempt_(*this, d)) break;
    }
    switch (d.wait(direction_, waiting_, w)) {
      case io_descriptor::waits::try_again:
        continue;
      case io_descriptor::waits::waiting:
        d.rest();
        return true;
      case io_descriptor::waits::closed:
        error_ = net_errc::closed;
        break;
      case io_descriptor::waits::expired:
        error_ = net_errc::deadline_exceeded;
        break;
      case io_descriptor::waits::ended:
        error_ = net_errc::runtime_ended;
        break;
    }
    break;
  }
  d.leave(direction_, exclusive_, true);
  entered_ = false;
  return false;
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
    case io_descriptor::by_deadline:
      error_ = net_errc::deadline_exceeded;
      break;
    case io_descriptor::by_close:
      error_ = net_errc::closed;
      break;
    case io_descriptor::by_end:
      error_ = net_errc::runtime_ended;
      break;
    default:
      break;
  }
  if (entered_) leave();
}

// ---- Reading and writing

io_result transfer_action::finish(std::uint32_t winner) {
  conclude(winner);
  return {done_, error_};
}

io_result transfer_action::give_up(std::error_code why) noexcept {
  withdraw();
  return {done_, why};
}

// ---- Reading

read_action::read_action(io_operation<read_action>& op) noexcept
    : transfer_action(op.arguments_.from, io_direction::read, &attempt, op.arguments_.into.size(),
                      op.arguments_.full),
      data_(static_cast<std::byte*>(op.arguments_.into.data())) {}

bool read_action::attempt(io_action& a, io_descriptor& d) noexcept {
  auto& self = static_cast<read_action&>(a);
  while (self.done_ != self.size_) {  // the buffer may be empty
    const std::size_t room = std::min(self.size_ - self.done_, most_at_once);
    std::byte* const to = self.data_ + self.done_;
    const ssize_t n = uninterrupted(
        [&] { return d.kind().socket ? ::recv(d.fd(), to, room, 0) : ::read(d.fd(), to, room); });
    if (n < 0) return ends_by_errno(self.error_);
    if (n == 0) {
      if (d.kind().stream) self.error_ = net_errc::end_of_stream;
      break;
    }
    const auto got = static_cast<std::size_t>(n);
    self.done_ += got;
    const bool all = got < room && d.kind().tcp;
    d.set_drained(all);
    if (!self.all_) break;
    if (all && self.done_ != self.size_ && d.certainly_nothing()) return false;
  }
  return true;
}

// ---- Writing

write_action::write_action(io_operation<write_action>& op) noexcept
    : transfer_action(op.arguments_.to, io_direction::write, &attempt, op.arguments_.from.size(),
                      op.arguments_.all),
      data_(static_cast<const std::byte*>(op.arguments_.from.data())) {}

bool write_action::attempt(io_action& a, io_descriptor& d) noexcept {
  auto& self = static_cast<write_action&>(a);
  while (self.done_ != self.size_) {
    const std::size_t rest = std::min(self.size_ - self.done_, most_at_once);
    const std::byte* const from = self.data_ + self.done_;
    const ssize_t n = uninterrupted([&] {
      if (d.kind().socket) return ::send(d.fd(), from, rest, MSG_NOSIGNAL);
      if (d.kind().pipe) return write_without_signal(d.fd(), from, rest);
      return ::write(d.fd(), from, rest);
    });
    if (n < 0) return ends_by_errno(self.error_);
    self.done_ += static_cast<std::size_t>(n);
    if (!self.all_) break;
  }
  return true;
}

// ---- Readiness

readiness_action::readiness_action(io_operation<readiness_action>& op) noexcept
    : io_action(op.arguments_.of, op.arguments_.direction, true, &attempt),
      events_(static_cast<short>(
          op.arguments_.direction == io_direction::read ? POLLIN | POLLPRI | POLLRDHUP : POLLOUT)) {
}

bool readiness_action::attempt(io_action& a, io_descriptor& d) noexcept {
  auto& self = static_cast<readiness_action&>(a);
  pollfd p{.fd = d.fd(), .events = self.events_, .revents = 0};
  const int n = uninterrupted([&] { return ::poll(&p, 1, 0); });
  return n < 0 ? ends_by_errno(self.error_) : n > 0;
}

std::error_code readiness_action::finish(std::uint32_t winner) {
  conclude(winner);
  return error_;
}

std::error_code readiness_action::give_up(std::error_code why) noexcept {
  withdraw();
  return why;
}

// ---- Datagrams

receive_from_action::receive_from_action(io_operation<receive_from_action>& op) noexcept
    : io_action(op.arguments_.from, io_direction::read, false, &attempt),
      into_(op.arguments_.into) {}

bool receive_from_action::attempt(io_action& a, io_descriptor& d) noexcept {
  auto& self = static_cast<receive_from_action&>(a);
  sockaddr_storage from{};
  iovec part{.iov_base = self.into_.data(), .iov_len = self.into_.size()};
  msghdr message{};
  message.msg_name = &from;
  message.msg_namelen = sizeof from;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const ssize_t n = uninterrupted([&] { return ::recvmsg(d.fd(), &message, 0); });
  if (n < 0) return ends_by_errno(self.error_);
  self.got_.bytes = static_cast<std::size_t>(n);
  self.got_.from = endpoint::from(reinterpret_cast<const sockaddr*>(&from), message.msg_namelen);
  self.got_.truncated = (message.msg_flags & MSG_TRUNC) != 0;
  return true;
}

datagram receive_from_action::finish(std::uint32_t winner) {
  conclude(winner);
  got_.error = error_;
  return got_;
}

datagram receive_from_action::give_up(std::error_code why) noexcept {
  withdraw();
  return {.error = why};
}

send_to_action::send_to_action(io_operation<send_to_action>& op) noexcept
    : io_action(op.arguments_.from, io_direction::write, false, &attempt),
      what_(op.arguments_.what),
      to_(op.arguments_.to) {}

bool send_to_action::attempt(io_action& a, io_descriptor& d) noexcept {
  auto& self = static_cast<send_to_action&>(a);
  const sockaddr* const to = self.to_.size() != 0 ? self.to_.address() : nullptr;
  const ssize_t n = uninterrupted([&] {
    return ::sendto(d.fd(), self.what_.data(), self.what_.size(), MSG_NOSIGNAL, to,
                    self.to_.size());
  });
  if (n < 0) return ends_by_errno(self.error_);
  self.sent_ = static_cast<std::size_t>(n);
  return true;
}

io_result send_to_action::finish(std::uint32_t winner) {
  conclude(winner);
  return {sent_, error_};
}

io_result send_to_action::give_up(std::error_code why) noexcept {
  withdraw();
  return {0, why};
}

}  // namespace verge::detail
