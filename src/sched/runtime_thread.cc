#include <sched/runtime_thread.h>

#include <pthread.h>

#include <csignal>
#include <system_error>
#include <utility>

#include <net/poller.h>

namespace verge::detail {

std::thread start_thread(std::function<void()> f) {
  try {
    return std::thread(std::move(f));
  } catch (const std::system_error& e) {
    throw std::system_error(e.code(),
                            "verge: a thread cannot be started; raise the limit on threads (ulimit "
                            "-u, or pids.max of the control group) or on memory (ulimit -v), or "
                            "have fewer threads and processors");
  }
}

std::thread start_runtime_thread(std::function<void()> f) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread t = start_thread([f = std::move(f)] {
      set_timer_slack(1);
      f();
    });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return t;
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
}

}  // namespace verge::detail
