// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ev.h>
#include <verge/loop.h>

#pragma GCC visibility push(default)

/// Timers for libev: start, stop and reset from any thread, called by the loop.
///
///   verge::ev_timers timers(EV_DEFAULT);
///   auto t = timers.start(30s, [&] { close(connection); });
///   ev_run(EV_DEFAULT, 0);
///
/// The members are those of loop_timers (<verge/loop.h>), except that the loop calls run(). As long
/// as the object exists it keeps ev_run() from returning; ev_unref() undoes that, with an ev_ref()
/// before the object is destroyed. A callback that throws ends the program, as the exception cannot
/// pass through libev.
///
/// Needs libev built with EV_MULTIPLICITY, as it is by default. Not part of <verge/verge.h>, as it
/// needs libev's header.
namespace verge {

/// Timers in a loop of libev: loop_timers whose descriptor that loop watches.
template <class Callback = std::function<void()>>
class basic_ev_timers : public basic_loop_timers<Callback> {
 public:
  /// Must be called on the thread of the loop, or before it runs.
  explicit basic_ev_timers(struct ev_loop* loop) : loop_(loop) {
    ev_init(&watcher_, &basic_ev_timers::due);
    ev_io_set(&watcher_, this->fd(), EV_READ);
    watcher_.data = this;
    ::ev_io_start(loop_, &watcher_);
  }
  /// Must be called on the thread of the loop, or when it does not run, and before
  /// ev_loop_destroy(). Pending timers are not called.
  ~basic_ev_timers() { ::ev_io_stop(loop_, &watcher_); }
  basic_ev_timers(const basic_ev_timers&) = delete;
  basic_ev_timers& operator=(const basic_ev_timers&) = delete;

 private:
  static void due(struct ev_loop* /*loop*/, ev_io* watcher, int /*events*/) noexcept {
    static_cast<basic_ev_timers*>(watcher->data)->run();
  }

  struct ev_loop* loop_;
  ev_io watcher_;
};

/// With callbacks of any type.
using ev_timers = basic_ev_timers<>;

}  // namespace verge

#pragma GCC visibility pop
