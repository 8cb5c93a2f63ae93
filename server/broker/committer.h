#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <verge/chan.h>
#include <verge/runtime.h>
#include <verge/time.h>

#include "../store/store.h"
#include "broker.h"

/// The committer: one queue of commands, one batch at a time, one sync for all of it.
///
///   connections ---submit()---> queue ---> broker ---> one batch, synced ---> replies
///
/// The thread in run() takes everything that is in the queue, lets the broker execute it, writes
/// the one batch that comes of it, and only then lets replies out. While it syncs the queue fills
/// again: the more clients, the larger the batches; no command is delayed on purpose.
///
/// Ground rules: the queue is under `lock_`; broker and store belong to the thread in run(); a
/// submit that finds the queue empty wakes that thread, others need not, since it takes all.
namespace verge::server {

struct request {
  std::shared_ptr<client> from;
  command what;
};

/// The wall clock, in nanoseconds since 1970.
wall_time wall_now() noexcept;

class committer {
 public:
  /// With another clock than the system's, for tests in simulated time.
  committer(store& s, broker_options options, std::function<wall_time()> wall = wall_now);
  committer(const committer&) = delete;
  committer& operator=(const committer&) = delete;

  /// From any thread. The requests of one client are executed in their order.
  void submit(std::vector<request> requests);
  void submit(request r);

  /// Serves until stop(). On a plain thread, with the runtime that its timer runs on; or as part of
  /// a simulation, without one.
  void run(runtime* timers = nullptr);
  /// What is in the queue is still done. From any thread.
  void stop() noexcept;
  /// The wall clock was set: times are looked at again.
  void clock_stepped() noexcept { wake(); }

  /// Why the store has failed; empty if it has not. Called on the committer's thread when it does.
  std::function<void(const std::string&)> on_failure;

 private:
  void wake() noexcept;
  void commit(std::size_t commands);
  void sleep_until_needed();

  store& store_;
  broker broker_;
  std::function<wall_time()> wall_;
  std::mutex lock_;
  std::vector<request> queue_;
  std::atomic<bool> stopping_{false};
  chan<bool> woken_{1};
  timer alarm_;
};

}  // namespace verge::server
