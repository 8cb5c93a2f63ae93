#include <sched/thread_probe.h>

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#include <cerrno>
#include <mutex>

#include <base/this_thread.h>
#include <sched/processor.h>
#include <timer/callback.h>

namespace verge::detail {

namespace {

constexpr int its_signal = SIGURG;

enum class probe_state : std::uint8_t { idle, claimed, asked, writing, answered };

constinit std::atomic<probe_state> the_state{probe_state::idle};
constinit std::atomic<pid_t> asked_thread{0};
thread_probe::answer written_answer;
struct sigaction handler_before;

struct unwinding {
  thread_probe::answer* to;
  unsigned skip;
};

_Unwind_Reason_Code add_frame(_Unwind_Context* context, void* arg) noexcept {
  auto& u = *static_cast<unwinding*>(arg);
  if (u.skip != 0) {
    --u.skip;
    return _URC_NO_REASON;
  }
  const auto address = _Unwind_GetIP(context);
  if (address == 0 || u.to->count == thread_probe::most_frames) return _URC_END_OF_STACK;
  u.to->frames[u.to->count++] = reinterpret_cast<const void*>(address);
  return _URC_NO_REASON;
}

/// Without the handler's own frames: this function, the handler, and what the kernel returns to.
[[gnu::noinline]] void take_backtrace(thread_probe::answer& to) noexcept {
  to.count = 0;
  unwinding u{.to = &to, .skip = 3};
  _Unwind_Backtrace(&add_frame, &u);
}

void describe_this_thread(thread_probe::answer& to) noexcept {
  to.label = to.written = nullptr;
  to.code = nullptr;
  to.is_task = false;
  const worker* const w = this_thread.as_worker;
  to.turn = w != nullptr ? w->turn.load(std::memory_order_relaxed) : 0;
  if (const job* const j = this_thread.running) {
    to.is_task = true;
    to.label = j->label.load(std::memory_order_relaxed);
    to.written = j->written;
    to.code = j->code;
  } else if (const timer_node* const t = running_callback()) {
    to.written = written_of(*t);
    to.label = label_of(*t);
  }
}

void answer_question(int number, siginfo_t* info, void* context) noexcept {
  const int error = errno;
  auto expected = probe_state::asked;
  if (info->si_code == SI_TKILL && info->si_pid == ::getpid() &&
      the_state.load(std::memory_order_acquire) == probe_state::asked &&
      asked_thread.load(std::memory_order_relaxed) == ::gettid() &&
      the_state.compare_exchange_strong(expected, probe_state::writing,
                                        std::memory_order_acquire)) {
    describe_this_thread(written_answer);
    take_backtrace(written_answer);
    the_state.store(probe_state::answered, std::memory_order_release);
  } else if (info->si_code != SI_TKILL) {
    if ((handler_before.sa_flags & SA_SIGINFO) != 0) {
      handler_before.sa_sigaction(number, info, context);
    } else if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN) {
      handler_before.sa_handler(number);
    }
  }
  errno = error;
}

}  // namespace

bool thread_probe::install() noexcept {
  static const bool installed = [] {
    answer unused;
    take_backtrace(unused);
    struct sigaction action {};
    action.sa_sigaction = &answer_question;
    action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    return ::sigaction(its_signal, &action, &handler_before) == 0;
  }();
  return installed;
}

void thread_probe::listen() noexcept {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, its_signal);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

bool thread_probe::ask(pid_t thread) noexcept {
  auto expected = probe_state::idle;
  if (!the_state.compare_exchange_strong(expected, probe_state::claimed, std::memory_order_acquire))
    return false;
  asked_thread.store(thread, std::memory_order_relaxed);
  the_state.store(probe_state::asked, std::memory_order_release);
  if (::syscall(SYS_tgkill, ::getpid(), thread, its_signal) == 0) return true;
  give_up();
  return false;
}

bool thread_probe::take(answer& out) noexcept {
  if (the_state.load(std::memory_order_acquire) != probe_state::answered) return false;
  out = written_answer;
  the_state.store(probe_state::idle, std::memory_order_release);
  return true;
}

bool thread_probe::give_up() noexcept {
  auto expected = probe_state::asked;
  return the_state.compare_exchange_strong(expected, probe_state::idle, std::memory_order_relaxed);
}

void thread_probe::lost_in_fork() noexcept {
  the_state.store(probe_state::idle, std::memory_order_relaxed);
}

}  // namespace verge::detail
