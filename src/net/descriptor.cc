// SPDX-License-Identifier: Apache-2.0

#include <net/descriptor.h>

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>

#include <base/this_thread.h>
#include <engine/clockwork.h>

namespace verge::detail {

namespace {

constexpr std::uint32_t readable = EPOLLIN | EPOLLRDHUP | EPOLLPRI | EPOLLHUP | EPOLLERR;
constexpr std::uint32_t writable = EPOLLOUT | EPOLLHUP | EPOLLERR;
constexpr std::uint32_t through = EPOLLRDHUP | EPOLLHUP | EPOLLERR;

}  // namespace

net_home net_home::here() {
  detail::scheduler& s = scheduler_or_default();
  return {&s, s.net()};
}

// ---- Lifetime

descriptor_handle io_descriptor::make(int fd, traits t, const net_home& home) {
  return descriptor_handle(new io_descriptor(fd, t, home));
}

io_descriptor::io_descriptor(int fd, traits t, const net_home& home) noexcept
    : source{&on_events, &on_end}, fd_(fd), kind_(t), home_(home) {}

io_descriptor::~io_descriptor() {
  for (direction& d : directions_) {
    if (d.timer == nullptr) continue;
    clockwork& timers = clockwork::of(*d.timer);
    if (timers.forked()) continue;
    timers.release(*d.timer);
  }
}

std::error_code io_descriptor::attach() noexcept {
  if (home_.poller == nullptr) return net_errc::simulated_time;
  const std::error_code e = home_.poller->open(fd_, *this);
  if (e == std::errc::operation_not_permitted) return net_errc::not_pollable;
  if (e == std::errc::operation_canceled) return net_errc::runtime_ended;
  attached_ = !e;
  return e;
}

io_descriptor::entry io_descriptor::enter(io_direction d, bool exclusive) noexcept {
  const std::uint64_t mine = exclusive ? busy(d) : 0;
  std::uint64_t s = state_.load(std::memory_order_relaxed);
  do {
    if ((s & (is_closed | mine | expired(d))) != 0) [[unlikely]] {
      if ((s & is_closed) != 0) return entry::closed;
      return (s & mine) != 0 ? entry::busy : entry::expired;
    }
    // Acquire: the next reader of a stream sees what the last one stored in drained_.
  } while (!state_.compare_exchange_weak(s, (s | mine) + one_user + one_reference,
                                         std::memory_order_acquire, std::memory_order_relaxed));
  return entry::entered;
}

bool io_descriptor::enter_again() noexcept {
  std::uint64_t s = state_.load(std::memory_order_relaxed);
  do {
    if ((s & is_closed) != 0) return false;
  } while (!state_.compare_exchange_weak(s, s + one_user, std::memory_order_acquire,
                                         std::memory_order_relaxed));
  return true;
}

void io_descriptor::leave(std::uint64_t what) noexcept {
  const int number =
      owned_ ? fd_ : -1;  // once the reference is dropped another thread may delete this
  // Acquire and release: the last user, and the last reference, see what all others did.
  const std::uint64_t s = state_.fetch_sub(what, std::memory_order_acq_rel) - what;
  const std::uint64_t used = what & users_mask;
  if ((s & is_closed) != 0 && used != 0 && (s & users_mask) == 0) ::close(number);
  if (s < one_reference) delete this;
}

std::error_code io_descriptor::close() noexcept {
  std::uint64_t s = state_.load(std::memory_order_relaxed);
  do {
    if ((s & is_closed) != 0) return net_errc::closed;
  } while (!state_.compare_exchange_weak(s, (s | is_closed) + one_user, std::memory_order_acq_rel,
                                         std::memory_order_relaxed));
  // In the child of a fork nothing waits, and lock_ may be held forever.
  if (attached_ && home_.poller->forked()) {
    rest();
    return {};
  }
  // Without lock_, which a concurrent on_events() takes.
  if (attached_) home_.poller->close(fd_);
  io_waiting* reader = nullptr;
  io_waiting* writer = nullptr;
  {
    const clear_up_after unlocked;
    const std::lock_guard hold(lock_);
    reader = take_waiting_locked(io_direction::read, by_close);
    writer = take_waiting_locked(io_direction::write, by_close);
    stop_timers_locked(unlocked);
  }
  wake(reader);
  wake(writer);
  rest();
  return {};
}

void close_and_drop::operator()(io_descriptor* d) const noexcept {
  d->close();
  d->drop();  // NOLINT(clang-analyzer-cplusplus.NewDelete): until here it was ours to keep
}

// ---- Waiting

io_descriptor::waits io_descriptor::wait(io_direction d, io_waiting& node, waiter& w) noexcept {
  if (home_.poller->forked()) return waits::ended;
  const std::lock_guard hold(lock_);
  const std::uint64_t s = state_.load(std::memory_order_relaxed);
  if ((s & is_closed) != 0) return waits::closed;
  direction& it = of(d);
  if (it.ready.load(std::memory_order_relaxed)) return waits::try_again;
  if ((s & expired(d)) != 0) return waits::expired;
  if (ended_) return waits::ended;
  node = {.who = &w, .next = it.first, .previous = nullptr, .listed = true};
  if (it.first != nullptr) it.first->previous = &node;
  it.first = &node;
  return waits::waiting;
}

void io_descriptor::stop_waiting(io_direction d, io_waiting& node) noexcept {
  const std::lock_guard hold(lock_);
  if (node.listed) unlink(of(d), node);
}

void io_descriptor::unlink(direction& from, io_waiting& node) noexcept {
  (node.previous == nullptr ? from.first : node.previous->next) = node.next;
  if (node.next != nullptr) node.next->previous = node.previous;
  node.listed = false;
}

/// Removes from the list, for wake(), the waiters that could be claimed. The others are ending and
/// remove themselves.
io_waiting* io_descriptor::take_waiting_locked(io_direction d, std::uint32_t why) noexcept {
  direction& from = of(d);
  io_waiting* taken = nullptr;
  for (io_waiting* node = from.first; node != nullptr;) {
    io_waiting* const next = node->next;
    if (node->who->claim(why)) {
      unlink(from, *node);
      node->next = taken;
      taken = node;
    }
    node = next;
  }
  return taken;
}

void io_descriptor::wake(io_waiting* first) noexcept {
  while (first != nullptr) {
    io_waiting* const next = first->next;
    first->who->wake();  // and may be destroyed
    first = next;
  }
}

void io_descriptor::on_events(source& s, std::uint32_t events, ready_list& list) noexcept {
  auto& self = static_cast<io_descriptor&>(s);
  io_waiting* reader = nullptr;
  io_waiting* writer = nullptr;
  {
    const std::lock_guard hold(self.lock_);
    if ((events & through) != 0) self.hung_up_.store(true, std::memory_order_relaxed);
    if ((events & readable) != 0) {
      self.of(io_direction::read).ready.store(true, std::memory_order_release);
      reader = self.take_waiting_locked(io_direction::read, waiter::by_hint);
    }
    if ((events & writable) != 0) {
      self.of(io_direction::write).ready.store(true, std::memory_order_release);
      writer = self.take_waiting_locked(io_direction::write, waiter::by_hint);
    }
  }
  if (reader == nullptr && writer == nullptr) return;
  const onto_list here(self.home_.scheduler, list);
  wake(reader);
  wake(writer);
}

void io_descriptor::on_end(source& s) noexcept {
  auto& self = static_cast<io_descriptor&>(s);
  io_waiting* reader = nullptr;
  io_waiting* writer = nullptr;
  {
    const clear_up_after unlocked;
    const std::lock_guard hold(self.lock_);
    self.ended_ = true;
    reader = self.take_waiting_locked(io_direction::read, by_end);
    writer = self.take_waiting_locked(io_direction::write, by_end);
    self.stop_timers_locked(unlocked);
  }
  wake(reader);
  wake(writer);
}

}  // namespace verge::detail
