// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <verge/chan.h>
#include <verge/net.h>
#include <verge/task.h>

#include "../broker/committer.h"
#include "../doors/crowd.h"
#include "../doors/gate.h"
#include "../text/event_log.h"
#include "api.h"
#include "events.h"
#include "http1/memory_budget.h"
#include "http1/request_parser.h"
#include "idempotency.h"

/// A connection that speaks HTTP/1.1: one task that reads a request, has it done, and writes the
/// response, then the next.
///
/// Ground rules: everything belongs to that task, with two exceptions. `replies_` and what stands
/// with it are under `lock_`: the committer appends, the task takes. While a reserve waits, a
/// second task watches the socket, so that a client that leaves does not get a task; the first task
/// touches neither socket nor buffer until the second has ended.
///
/// Leases belong to no connection here: they are known by their tokens (client::leases).
namespace verge::server::web {

struct web_limits {
  api_settings api;
  http::limits http{
      .header_bytes = 16U << 10, .headers = 100, .body_bytes = 16U << 20, .keep_bytes = 1U << 10};
  std::size_t connections{10'000};
  std::size_t memory{512U << 20};  ///< of all buffers of requests and responses
  std::chrono::milliseconds idle{75'000};
  std::chrono::milliseconds request{30'000};  ///< how long a request may take to arrive
  std::chrono::milliseconds write{60'000};    ///< how long a client may read nothing
  std::chrono::milliseconds probe{5'000};     ///< how long health waits for the committer
};

/// What all connections share.
struct web_house {
  web_house(command_sink& c, const web_limits& l)
      : to(c),
        limits(l),
        budget(l.memory),
        answers({}),
        events(std::make_shared<event_source>(c, limits.api)) {}

  command_sink& to;
  const web_limits limits;
  http::memory_budget budget;
  idempotency answers;
  const std::shared_ptr<event_source> events;
  gate* door{nullptr};      ///< nothing: no token is asked for
  event_log* log{nullptr};  ///< of requests, if they are logged
  bool check_host{true};    ///< only loopback is listened on, and there are no tokens
  std::vector<std::string> hosts;
  crowd clients{limits.connections};
  std::atomic<bool> stopping{false};
};

class web_connection final : public client, public std::enable_shared_from_this<web_connection> {
 public:
  web_connection(web_house& house, stream_socket conn, crowd::place place);

  /// Starts the task, which keeps the connection alive until it has ended.
  void start();
  /// No more requests are read. A reserve that waits is answered with what there is: nothing.
  void finish() noexcept;

  void deliver(reply r) override;
  void flush() noexcept override;
  void left() noexcept override;

 private:
  enum class deadline : std::uint8_t { none, idle, request };

  static verge::task<> run(std::shared_ptr<web_connection> self);
  static verge::task<> watch(std::shared_ptr<web_connection> self);
  verge::task<> converse();
  verge::task<bool> serve();
  bool prepare(operation& op, http::response& r, std::string& key);
  void submit(operation& op);
  http::response conclude(const operation& op, bool in_time);
  verge::task<> wait_and_watch();
  verge::task<> stream_events();
  void log(const http::response& r, clock::time_point begin);
  std::string_view send_now(http::response r, http::connection& after, bool with_body);
  verge::task<bool> send(http::response r, http::connection after, bool with_body);
  verge::task<bool> write(std::string_view bytes);
  void let_go_of_response() noexcept;
  verge::task<> say_goodbye();
  void set_read_deadline();
  std::string admit(operation& op);

  web_house& house_;
  const crowd::place place_;
  stream_socket conn_;
  http::memory_share share_;
  http::request_parser parser_;
  deadline read_deadline_{deadline::none};
  std::array<char, 8192> in_;
  std::string_view unread_;  ///< bytes of in_ that were received and not looked at yet
  std::string out_;          ///< the response that is sent
  bool has_left_{false};     ///< the watching task has seen the client's end
  shared_caller caller_;     ///< of the current request, if a token is asked for
  bool broken_{false};       ///< a reply is outstanding that no request waits for
  std::string_view route_;   ///< of the request that is served

  std::mutex lock_;
  std::vector<reply> replies_;
  std::vector<reply> taken_;  ///< of the task: replies_ of the request that is answered
  std::size_t expected_{0};
  bool left_{false};
  chan<bool> answered_{1};
};

}  // namespace verge::server::web
