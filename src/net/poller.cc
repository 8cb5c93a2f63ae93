// SPDX-License-Identifier: Apache-2.0

#include <net/poller.h>

#include <linux/time_types.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <string>

#include <base/log.h>

namespace verge::detail {
namespace {

constexpr std::int64_t ns_per_ms = 1'000'000;
constexpr std::int64_t ns_per_s = 1'000'000'000;
constexpr std::size_t events_per_poll = 128;

// The identity of an event: a descriptor's number in the low half and its generation in the high
// half, or one of the poller's own two, whose low halves would be negative descriptor numbers.
constexpr std::uint64_t break_tag = UINT32_MAX;
constexpr std::uint64_t timer_tag = UINT32_MAX - 1;

// The parts of break_.
constexpr std::uint64_t break_phase = 3;
constexpr std::uint64_t break_announced = 1;
constexpr std::uint64_t break_written = 2;
constexpr std::uint64_t one_break = 4;

std::uint64_t tag_of(int fd, std::uint32_t generation) {
  return (std::uint64_t{generation} << 32) | static_cast<std::uint32_t>(fd);
}

std::error_code error(int code) { return {code, std::system_category()}; }

/// Throws the reason why a descriptor could not be created, and what to do about it.
[[noreturn]] void cannot(const char* what) {
  const int code = errno;
  std::string text = std::string("verge: the network poller cannot ") + what;
  if (code == EMFILE) text += "; raise the limit on open files (ulimit -n) or close some";
  if (code == ENFILE) text += "; raise the system's limit on open files (sysctl fs.file-max)";
  if (code == ENOSYS || code == EPERM) text += "; it needs Linux, and a sandbox that allows this";
  throw std::system_error(error(code), text);
}

/// For what cannot happen unless other code has closed a descriptor of the poller.
[[noreturn]] void broken(const char* call) {
  log(log_level::fatal,
      "%s failed in the network poller with error %d (%s): a descriptor of the poller was closed "
      "or replaced by other code",
      call, errno, std::generic_category().message(errno).c_str());
  std::abort();
}

/// The kernel's type, as the system call bypasses the C library, which may be older.
int epoll_pwait2(int epoll, std::span<epoll_event> events, const __kernel_timespec* timeout) {
  return static_cast<int>(syscall(SYS_epoll_pwait2, epoll, events.data(),
                                  static_cast<int>(events.size()), timeout, nullptr, 0));
}

int epoll_wait_ms(int epoll, std::span<epoll_event> events, int timeout_ms) {
  return epoll_wait(epoll, events.data(), static_cast<int>(events.size()), timeout_ms);
}

int round_up_to_ms(std::int64_t ns) {
  if (ns < 0) return -1;
  const std::int64_t whole = ns / ns_per_ms + (ns % ns_per_ms != 0 ? 1 : 0);
  return static_cast<int>(
      std::min<std::int64_t>(whole, INT_MAX));  // 24 days: then it returns early
}

bool pwait2_works(int epoll) {
  std::array<epoll_event, 1> event{};
  const __kernel_timespec at_once{};
  return epoll_pwait2(epoll, event, &at_once) >= 0 || errno == EINTR;
}

void count(std::atomic<std::uint64_t>& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

// ---- Start -------------------------------------------------------------------------------------

poller::poller(wait_method method)
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), break_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_) cannot("create an epoll set");
  if (!break_event_) cannot("create an eventfd");
  add_wake_up(break_event_.get(), break_tag);
  choose(method);
}

void poller::choose(wait_method wanted) {
  const bool any = wanted == wait_method::automatic;
  method_ = wait_method::milliseconds;
  if (any || wanted == wait_method::pwait2) {
    if (pwait2_works(epoll_.get())) {
      method_ = wait_method::pwait2;
    } else if (!any) {
      cannot("wait with epoll_pwait2 (Linux 5.11 and later); choose wait_method::automatic");
    }
  }
  if (method_ != wait_method::pwait2 && (any || wanted == wait_method::timerfd)) {
    timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (timer_) {
      add_wake_up(timer_.get(), timer_tag);
      method_ = wait_method::timerfd;
    } else if (!any) {
      cannot("create a timerfd");
    }
  }
}

/// Level-triggered, so that a non-waiting poll leaves it for the waiting one.
void poller::add_wake_up(int fd, std::uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = tag;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) cannot("add to its epoll set");
}

// ---- Descriptors -------------------------------------------------------------------------------

std::error_code poller::open(int fd, source& s) noexcept {
  if (fd < 0) return error(EBADF);
  if (forked()) return error(ECANCELED);
  table::entry* e = table_.find_or_make(fd);
  if (e == nullptr) return error(ENOMEM);

  const std::lock_guard hold(e->lock);  // an immediate event waits until the source is set
  if (e->source != nullptr) return error(EEXIST);
  if (ended_.load(std::memory_order_relaxed)) return error(ECANCELED);
  ++e->generation;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = tag_of(fd, e->generation);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return error(errno);
  e->source = &s;
  sources_.fetch_add(1, std::memory_order_relaxed);
  return {};
}

std::error_code poller::close(int fd) noexcept {
  if (forked()) return {};
  table::entry* e = table_.find(fd);
  if (e == nullptr) return error(ENOENT);

  const std::lock_guard hold(e->lock);  // waits for a running call of the source
  if (e->source == nullptr) return error(ENOENT);
  e->source = nullptr;
  sources_.fetch_sub(1, std::memory_order_relaxed);
  epoll_event ignored{};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, &ignored) != 0) return error(errno);
  return {};
}

void poller::end() noexcept {
  ended_.store(true, std::memory_order_relaxed);
  table_.for_each([](table::entry& e) {
    const std::lock_guard hold(e.lock);
    if (e.source != nullptr && e.source->on_end != nullptr) e.source->on_end(*e.source);
  });
}

void poller::deliver(const epoll_event& event, ready_list& ready) noexcept {
  const std::uint64_t tag = event.data.u64;
  table::entry* e = table_.find(static_cast<int>(tag & UINT32_MAX));
  if (e == nullptr) return;
  const std::lock_guard hold(e->lock);
  if (e->source == nullptr || e->generation != tag >> 32) return;  // closed since: a stale event
  count(source_events_);
  e->source->on_events(*e->source, event.events, ready);
}

// ---- Waiting -----------------------------------------------------------------------------------

ready_list poller::poll(std::int64_t timeout_ns) noexcept {
  const bool waits = timeout_ns != 0;
  std::array<epoll_event, events_per_poll> buffer;  // NOLINT: the kernel fills what is read
  if (waits) count(blocking_polls_);
  const int n = wait(buffer, timeout_ns);
  if (waits) count(wake_ups_);

  ready_list ready;
  bool timed_out = n == 0;
  for (const epoll_event& event :
       std::span(buffer).first(static_cast<std::size_t>(std::max(n, 0)))) {
    if (event.data.u64 == break_tag) {
      if (waits) take_break();
    } else if (event.data.u64 == timer_tag) {
      timed_out = true;
    } else {
      deliver(event, ready);
    }
  }
  if (waits && timed_out) count(time_outs_);
  return ready;
}

/// Returns the number of events, 0 on time-out, -1 after a signal.
int poller::wait(std::span<epoll_event> events, std::int64_t timeout_ns) noexcept {
  int n = 0;
  if (timeout_ns == 0) {
    n = epoll_wait_ms(epoll_.get(), events, 0);
  } else if (method_ == wait_method::pwait2) {
    const __kernel_timespec timeout{timeout_ns / ns_per_s, timeout_ns % ns_per_s};
    n = epoll_pwait2(epoll_.get(), events, timeout_ns < 0 ? nullptr : &timeout);
  } else if (method_ == wait_method::timerfd) {
    set_timer(timeout_ns);
    n = epoll_wait_ms(epoll_.get(), events, -1);
  } else {
    n = epoll_wait_ms(epoll_.get(), events, round_up_to_ms(timeout_ns));
  }
  if (n < 0 && errno != EINTR) broken("waiting");
  return n;
}

/// Setting a timerfd also clears an unread expiry, so none is ever read. A setting from an earlier
/// poll is disarmed before a wait without limit.
void poller::set_timer(std::int64_t timeout_ns) noexcept {
  const bool wanted = timeout_ns > 0;
  if (!wanted && !timer_set_) return;
  itimerspec spec{};
  if (wanted) spec.it_value = {timeout_ns / ns_per_s, timeout_ns % ns_per_s};
  if (timerfd_settime(timer_.get(), 0, &spec, nullptr) != 0) broken("timerfd_settime");
  timer_set_ = wanted;
}

// ---- Breaking ----------------------------------------------------------------------------------

/// Returns whether it had to write.
bool poller::break_unless_pending() noexcept {
  std::uint64_t seen = break_.load(std::memory_order_relaxed);
  std::uint64_t mine = 0;
  // Release: the poll that takes the break sees what the caller wrote, also if the break is merged
  // with an earlier one, as take_break() reads the last of these.
  do {
    mine = (seen & break_phase) == 0 ? seen + one_break + break_announced : seen;
  } while (!break_.compare_exchange_weak(seen, mine, std::memory_order_acq_rel,
                                         std::memory_order_relaxed));
  if ((mine & break_phase) == break_written) return false;
  count(breaks_written_);
  const std::uint64_t one = 1;
  while (write(break_event_.get(), &one, sizeof one) < 0) {
    if (errno != EINTR) broken("writing an eventfd");
  }
  // Fails if the poll has taken the break, or another thread has come first. A second write that
  // the poll did not see ends the next poll for nothing.
  break_.compare_exchange_strong(mine, mine - break_announced + break_written,
                                 std::memory_order_release, std::memory_order_relaxed);
  return true;
}

bool poller::rescue_poll() noexcept {
  // Acquire: if the last break has been taken, the wake-up that it caused has been counted.
  if ((break_.load(std::memory_order_acquire) & break_phase) == break_written) return false;
  const bool waits =
      blocking_polls_.load(std::memory_order_relaxed) != wake_ups_.load(std::memory_order_relaxed);
  return waits && break_unless_pending();
}

/// The eventfd is cleared first, then the word: a break between the two writes nothing, and need
/// not, as the poll that takes this one is about to return.
void poller::take_break() noexcept {
  std::uint64_t value = 0;
  while (read(break_event_.get(), &value, sizeof value) < 0) {
    if (errno == EAGAIN) break;
    if (errno != EINTR) broken("reading an eventfd");
  }
  break_.fetch_and(~break_phase, std::memory_order_acq_rel);
}

poller_statistics poller::statistics() const noexcept {
  constexpr auto relaxed = std::memory_order_relaxed;
  return {blocking_polls_.load(relaxed), wake_ups_.load(relaxed), time_outs_.load(relaxed),
          breaks_written_.load(relaxed), source_events_.load(relaxed)};
}

}  // namespace verge::detail
