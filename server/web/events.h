// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <verge/chan.h>
#include <verge/runtime.h>
#include <verge/task.h>

#include "../broker/committer.h"
#include "api.h"
#include "metrics.h"
#include "signs.h"

/// The state of the server as a stream of events: every second, for all that listen, from one
/// question to the broker.
///
/// Ground rules: `subscribers_` is under `lock_`. `replies_` is a channel that the committer sends
/// to and the task of run() receives from. A listener that is slow misses events, and the next one
/// tells it everything again: each event is the whole state.
namespace verge::server::web {

/// A text that is written to all listeners as it is.
using event_text = std::shared_ptr<const std::string>;

class event_source final : public client, public std::enable_shared_from_this<event_source> {
 public:
  event_source(command_sink& to, const api_settings& settings);

  /// Asks and tells until stop(). A task of the server's runtime.
  static verge::task<> run(std::shared_ptr<event_source> self);
  /// All listeners hear the end.
  void stop();

  /// A new listener. Its channel is closed when the source stops; forget() when it leaves.
  chan<event_text> subscribe();
  void forget(const chan<event_text>& c);

  void deliver(reply r) override;
  void flush() noexcept override {}
  void left() noexcept override;

 private:
  verge::task<> tell_once(std::size_t round);
  void broadcast(const event_text& text);
  bool has_listeners();
  std::string state_event(const survey_view& v) const;

  command_sink& to_;
  const api_settings& settings_;
  std::mutex lock_;
  std::vector<chan<event_text>> subscribers_;
  bool stopped_{false};
  bool newcomer_{false};  ///< under lock_: one has come that knows no forecast yet
  chan<reply> replies_{4};
  chan<bool> wake_{1};
};

/// What an operator should know: "write-stopped", "disk", "lag", "clock", "draining".
struct alert {
  const char* kind;
  std::string text;
};
std::vector<alert> alerts_of(const survey_view& v, const machine_view& m, const signs* s);

}  // namespace verge::server::web
