// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <event2/event.h>
#include <event2/util.h>
#include <verge/loop.h>

#include <stdexcept>

#pragma GCC visibility push(default)

/// Timers for libevent: start, stop and reset from any thread, called by the loop.
///
///   verge::event_timers timers(base);
///   auto t = timers.start(30s, [&] { close(connection); });
///   event_base_dispatch(base);
///
/// The members are those of loop_timers (<verge/loop.h>), except that the loop calls run(). Other
/// threads need no evthread_use_pthreads(): they do not touch the event_base. As long as the object
/// exists, event_base_dispatch() has an event and does not return by itself. A callback that throws
/// ends the program, as the exception cannot pass through libevent.
///
/// Not part of <verge/verge.h>, as it needs libevent's headers.
namespace verge {

/// Timers in a loop of libevent: loop_timers whose descriptor that loop watches.
template <class Callback = std::function<void()>>
class basic_event_timers : public basic_loop_timers<Callback> {
 public:
  /// Must be called on the thread of the loop, or before it runs. Throws std::runtime_error if
  /// libevent cannot add an event.
  explicit basic_event_timers(event_base* base)
      : event_(
            ::event_new(base, this->fd(), EV_READ | EV_PERSIST, &basic_event_timers::due, this)) {
    if (event_ != nullptr && ::event_add(event_, nullptr) == 0) return;
    if (event_ != nullptr) ::event_free(event_);
    throw std::runtime_error("verge: libevent cannot watch the descriptor of event_timers");
  }
  /// Must be called on the thread of the loop, or when it does not run, and before
  /// event_base_free(). Pending timers are not called.
  ~basic_event_timers() { ::event_free(event_); }
  basic_event_timers(const basic_event_timers&) = delete;
  basic_event_timers& operator=(const basic_event_timers&) = delete;

 private:
  static void due(evutil_socket_t /*fd*/, short /*events*/, void* self) noexcept {
    static_cast<basic_event_timers*>(self)->run();
  }

  event* event_;
};

/// With callbacks of any type.
using event_timers = basic_event_timers<>;

}  // namespace verge

#pragma GCC visibility pop
