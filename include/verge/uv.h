// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <uv.h>
#include <verge/loop.h>

#include <memory>
#include <stdexcept>
#include <string>

#pragma GCC visibility push(default)

/// Timers for libuv: start, stop and reset from any thread, called by the loop.
///
///   verge::uv_timers timers(uv_default_loop());
///   auto t = timers.start(30s, [&] { close(connection); });
///   uv_run(uv_default_loop(), UV_RUN_DEFAULT);
///
/// The members are those of loop_timers (<verge/loop.h>), except that the loop calls run(). One
/// object serves any number of timers. A callback that throws ends the program, as the exception
/// cannot pass through libuv.
///
/// Not part of <verge/verge.h>, as it needs libuv's headers.
namespace verge {

/// Timers in a loop of libuv: loop_timers whose descriptor that loop watches.
template <class Callback = std::function<void()>>
class basic_uv_timers : public basic_loop_timers<Callback> {
 public:
  /// Must be called on the thread of the loop, or before it runs. Throws std::system_error or
  /// std::runtime_error if the loop cannot watch another descriptor.
  explicit basic_uv_timers(uv_loop_t* loop) : poll_(std::make_unique<uv_poll_t>()) {
    check(uv_poll_init(loop, poll_.get(), this->fd()), "uv_poll_init");
    handle_ = poll_.release();
    handle_->data = this;
    check(uv_poll_start(handle_, UV_READABLE, &basic_uv_timers::due), "uv_poll_start");
  }
  /// Must be called on the thread of the loop, or when it does not run. libuv frees its handle in
  /// the next turn of the loop. Pending timers are not called.
  ~basic_uv_timers() { close(); }
  basic_uv_timers(const basic_uv_timers&) = delete;
  basic_uv_timers& operator=(const basic_uv_timers&) = delete;

  /// By default this object keeps uv_run() from returning, like a uv_async_t: another thread may
  /// start a timer at any time. After unref() it does not, whether timers are pending or not.
  void unref() noexcept { uv_unref(reinterpret_cast<uv_handle_t*>(handle_)); }
  /// Undoes unref().
  void ref() noexcept { uv_ref(reinterpret_cast<uv_handle_t*>(handle_)); }

 private:
  static void due(uv_poll_t* handle, int /*status*/, int /*events*/) noexcept {
    static_cast<basic_uv_timers*>(handle->data)->run();
  }
  void close() noexcept {
    if (handle_ == nullptr) return;
    uv_close(reinterpret_cast<uv_handle_t*>(handle_),
             [](uv_handle_t* h) { delete reinterpret_cast<uv_poll_t*>(h); });
  }
  void check(int result, const char* call) {
    if (result >= 0) return;
    close();
    throw std::runtime_error(std::string("verge: ") + call + " failed: " + uv_strerror(result));
  }

  std::unique_ptr<uv_poll_t> poll_;  ///< until libuv knows it
  uv_poll_t* handle_ = nullptr;      ///< freed by libuv's last call
};

/// With callbacks of any type.
using uv_timers = basic_uv_timers<>;

}  // namespace verge

#pragma GCC visibility pop
