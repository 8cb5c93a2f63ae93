// SPDX-License-Identifier: Apache-2.0

#include <sched/thread_probe.h>

#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

#include <base/this_thread.h>
#include <sched/processor.h>
#include <timer/callback.h>

/// Of glibc from 2.35 on: finds where a frame's code is described without a lock. The unwinder uses
/// it where it is. Under a name of ours, since headers of some versions declare it.
extern "C" [[gnu::weak]] int verge_dl_find_object(void*, void*) noexcept __asm__("_dl_find_object");

namespace verge::detail {

namespace {

constexpr int its_signal = SIGURG;

enum class probe_state : std::uint8_t { idle, claimed, asked, writing, abandoned, answered };

constinit std::atomic<probe_state> the_state{probe_state::idle};
constinit std::atomic<pid_t> asked_thread{0};
thread_probe::answer written_answer;
/// How many frames of it are there. Release: with what was written before.
constinit std::atomic<unsigned> written_frames{0};
constinit std::atomic<std::uint64_t> signals_sent{0};
struct sigaction handler_before;

/// Where the signal came in.
const void* interrupted_at([[maybe_unused]] const void* context) noexcept {
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(
      static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(static_cast<const ucontext_t*>(context)->uc_mcontext.pc);
#else
  return nullptr;
#endif
}

void add_frame(const void* address) noexcept {
  const unsigned n = written_frames.load(std::memory_order_relaxed);
  if (n == thread_probe::most_frames) return;
  written_answer.frames[n] = address;
  written_frames.store(n + 1, std::memory_order_release);
}

struct unwinding {
  const void* from;  ///< the first frame to take; those before it are the handler's
  unsigned left;     ///< how many frames to look at
  bool found;
};

_Unwind_Reason_Code see_frame(_Unwind_Context* context, void* arg) noexcept {
  auto& u = *static_cast<unwinding*>(arg);
  const auto address = reinterpret_cast<const void*>(_Unwind_GetIP(context));
  if (address == nullptr || u.left-- == 0) return _URC_END_OF_STACK;
  if (u.found) add_frame(address);
  u.found = u.found || address == u.from;  // that one is there already
  return _URC_NO_REASON;
}

[[gnu::noinline]] void unwind_from(const void* address) noexcept {
  unwinding u{.from = address, .left = thread_probe::most_frames + 8, .found = false};
  _Unwind_Backtrace(&see_frame, &u);
}

bool unwinder_takes_no_lock() noexcept { return &verge_dl_find_object != nullptr; }

void describe_this_thread(thread_probe::answer& to) noexcept {
  to.label = to.place = to.written = nullptr;
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
    if (const timer_behaviour* const does = t->does.load(std::memory_order_relaxed)) {
      to.label = does->label;
      to.place = does->place;
      to.written = does->written;
    }
  }
}

void write_answer(const void* context) noexcept {
  describe_this_thread(written_answer);
  const void* const at = interrupted_at(context);
  add_frame(at);
  if (auto* const pause = thread_probe::before_unwinding.load(std::memory_order_relaxed)) pause();
  if (unwinder_takes_no_lock()) unwind_from(at);
  auto expected = probe_state::writing;
  if (!the_state.compare_exchange_strong(expected, probe_state::answered,
                                         std::memory_order_acq_rel)) {
    // Abandoned: the asker has taken what was there.
    the_state.store(probe_state::idle, std::memory_order_release);
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
    write_answer(context);
  } else if (info->si_code != SI_TKILL) {
    if ((handler_before.sa_flags & SA_SIGINFO) != 0) {
      handler_before.sa_sigaction(number, info, context);
    } else if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN) {
      handler_before.sa_handler(number);
    }
  }
  errno = error;
}

/// By the asker, when the handler does not write any more, or what it writes is not looked at.
void copy_answer(thread_probe::answer& out) noexcept {
  const unsigned n = written_frames.load(std::memory_order_acquire);
  out = {.frames = {},
         .count = n,
         .turn = written_answer.turn,
         .is_task = written_answer.is_task,
         .label = written_answer.label,
         .place = written_answer.place,
         .written = written_answer.written,
         .code = written_answer.code};
  std::copy_n(written_answer.frames, n, out.frames);
}

}  // namespace

bool thread_probe::install() noexcept {
  static const bool installed = [] {
    unwind_from(nullptr);  // takes nothing, and loads what there is to load
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
  written_frames.store(0, std::memory_order_relaxed);
  the_state.store(probe_state::asked, std::memory_order_release);
  signals_sent.fetch_add(1, std::memory_order_relaxed);
  if (::syscall(SYS_tgkill, ::getpid(), thread, its_signal) == 0) return true;
  answer unused;
  give_up(unused);
  return false;
}

bool thread_probe::take(answer& out) noexcept {
  if (the_state.load(std::memory_order_acquire) != probe_state::answered) return false;
  copy_answer(out);
  the_state.store(probe_state::idle, std::memory_order_release);
  return true;
}

bool thread_probe::give_up(answer& out) noexcept {
  auto expected = probe_state::asked;
  if (the_state.compare_exchange_strong(expected, probe_state::idle, std::memory_order_relaxed))
    return false;
  // What it runs is written before the first frame is, and nothing of that is written again.
  const bool any = written_frames.load(std::memory_order_acquire) != 0;
  if (any) copy_answer(out);
  expected = probe_state::writing;
  if (the_state.compare_exchange_strong(expected, probe_state::abandoned,
                                        std::memory_order_acq_rel))
    return any;
  return take(out);  // it has ended meanwhile
}

void thread_probe::lost_in_fork() noexcept {
  the_state.store(probe_state::idle, std::memory_order_relaxed);
}

constinit std::atomic<void (*)() noexcept> thread_probe::before_unwinding{nullptr};

std::uint64_t thread_probe::sent() noexcept { return signals_sent.load(std::memory_order_relaxed); }

}  // namespace verge::detail
