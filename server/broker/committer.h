// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <verge/chan.h>
#include <verge/task.h>
#include <verge/time.h>

#include "../store/store.h"
#include "broker.h"

/// The committer: one queue of commands, one batch at a time, one sync for all of it.
///
///   connections ---submit()---> queue ---> broker ---> one batch, synced ---> replies
///
/// The task in run() takes everything that is in the queue, lets the broker execute it, writes the
/// one batch that comes of it, and only then lets replies out. While it syncs the queue fills
/// again: the more clients, the larger the batches; no command is delayed on purpose. Woken, it
/// lets all other ready tasks run first, which are connections that found bytes in the same look at
/// the sockets. So one client's command takes one thread through all of it, and those of many
/// clients share a batch.
///
/// Ground rules: the queue is under `lock_`; broker and store belong to the task in run(); a
/// submit that finds the queue empty wakes that task, others need not, since it takes all. The task
/// blocks its processor while it syncs; the others serve the sockets meanwhile.
namespace verge::server {

struct request {
  std::shared_ptr<client> from;
  command what;
};

/// What takes the commands of clients: a committer, or a router to many of them.
class command_sink {
 public:
  command_sink() = default;
  command_sink(const command_sink&) = delete;
  command_sink& operator=(const command_sink&) = delete;
  virtual ~command_sink() = default;

  /// From any thread. The requests of one client are executed in their order. They are moved from.
  virtual void submit(std::span<request> requests) = 0;
  void submit(request r) { submit(std::span(&r, 1)); }
};

/// The wall clock, in nanoseconds since 1970.
wall_time wall_now() noexcept;

class committer final : public command_sink {
 public:
  /// With another clock than the system's, for tests in simulated time.
  committer(store& s, broker_options options, std::function<wall_time()> wall = wall_now);

  using command_sink::submit;
  void submit(std::span<request> requests) override;

  /// Serves until stop().
  verge::task<> run();
  /// What is in the queue is still done. From any thread.
  void stop() noexcept;
  /// The wall clock was set: times are looked at again.
  void clock_stepped() noexcept { wake(); }

  /// Called by the task in run() when the store has failed, with the reason.
  std::function<void(const std::string&)> on_failure;
  /// Whether this process still has what it serves; nothing: it always does. Asked before replies
  /// that rest on memory alone: a batch that was written has proved it.
  std::function<bool()> still_ours;
  /// After run() has ended: clients that still wait are told that the tasks have moved.
  void dismiss() { broker_.fail("the tasks are with another server now", answer::moved); }

 private:
  void wake() noexcept;
  bool take();
  verge::task<bool> round(bool last);
  verge::task<> look_keys_up();
  void take_census();
  verge::task<> commit(std::size_t commands);
  void set_alarm();

  store& store_;
  broker broker_;
  std::function<wall_time()> wall_;
  std::mutex lock_;
  std::vector<request> queue_;
  std::vector<request> taken_;
  std::atomic<bool> stopping_{false};
  chan<bool> woken_{1};
  timer alarm_;
  std::shared_ptr<census> census_;  ///< that is counted
  join_handle<> counting_;
};

}  // namespace verge::server
