// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <glib-unix.h>
#include <verge/loop.h>

#pragma GCC visibility push(default)

/// Timers for GLib's main loop, so also for GTK: start, stop and reset from any thread, called by
/// the loop.
///
///   verge::glib_timers timers(g_main_context_default());
///   auto t = timers.start(30s, [&] { close(connection); });
///   g_main_loop_run(loop);
///
/// The members are those of loop_timers (<verge/loop.h>), except that the loop calls run(). They
/// are exact, where g_timeout_add() counts in milliseconds. A callback that throws ends the
/// program, as the exception cannot pass through GLib.
///
/// Not part of <verge/verge.h>, as it needs GLib's headers.
namespace verge {

/// Timers in a loop of GLib: loop_timers whose descriptor that loop watches.
template <class Callback = std::function<void()>>
class basic_glib_timers : public basic_loop_timers<Callback> {
 public:
  /// nullptr is the default context. The priority is that of a GSource: G_PRIORITY_DEFAULT, ...
  explicit basic_glib_timers(GMainContext* context = nullptr, int priority = 0)
      : source_(::g_unix_fd_source_new(this->fd(), G_IO_IN)) {
    const GUnixFDSourceFunc f = &basic_glib_timers::due;
    ::g_source_set_callback(source_, reinterpret_cast<GSourceFunc>(reinterpret_cast<void (*)()>(f)),
                            this, nullptr);
    ::g_source_set_priority(source_, priority);
    ::g_source_attach(source_, context);
  }
  /// Must be called on the thread of the loop, or when it does not run. Pending timers are not
  /// called.
  ~basic_glib_timers() {
    ::g_source_destroy(source_);
    ::g_source_unref(source_);
  }
  basic_glib_timers(const basic_glib_timers&) = delete;
  basic_glib_timers& operator=(const basic_glib_timers&) = delete;

 private:
  static gboolean due(gint /*fd*/, GIOCondition /*condition*/, gpointer self) noexcept {
    static_cast<basic_glib_timers*>(self)->run();
    return 1;  // keep watching
  }

  GSource* source_;
};

/// With callbacks of any type.
using glib_timers = basic_glib_timers<>;

}  // namespace verge

#pragma GCC visibility pop
