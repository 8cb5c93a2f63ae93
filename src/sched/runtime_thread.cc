#include <sched/runtime_thread.h>

#include <pthread.h>

#include <csignal>
#include <utility>

#include <net/poller.h>

namespace verge::detail {

std::thread start_runtime_thread(std::function<void()> f) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread t([f = std::move(f)] {
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
