#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include <verge/chan.h>
#include <verge/net.h>
#include <verge/task.h>

#include "../beanstalk/format.h"
#include "../beanstalk/parser.h"
#include "../broker/committer.h"
#include "../doors/crowd.h"
#include "../doors/door.h"

/// A connection that speaks beanstalk's protocol. A task reads and submits; the committer sends
/// replies itself, as long as the socket takes them; what it does not take, another task writes.
///
/// Ground rules: the parser and reading belong to the reading task. What is to be sent, `out_`, is
/// under `lock_`, and so is which side sends: the committer, or, while `slow_` is set, the writing
/// task. The writing task alone closes the socket, under the lock, so that the number that the
/// committer sends to is this socket's. The reading task stops while too much is under way, so a
/// client that does not read its replies stops only itself.
namespace verge::server {

struct connection_limits {
  std::uint32_t body{beanstalk::default_body_limit};
  std::size_t connections{10'000};
  /// Commands of one connection that are not answered yet, and bytes of answers not taken yet.
  std::size_t under_way{256};
  std::size_t output{256U << 10};
  /// Bytes of all connections that are on their way in or out.
  std::size_t memory{512U << 20};
};

/// What all connections share.
struct connection_house {
  command_sink& to;
  connection_limits limits;
  beanstalk::server_identity me;
  gate* door{nullptr};  ///< nothing: every client may do everything
  crowd clients{limits.connections};
  std::atomic<std::size_t> bytes{0};
};

class connection final : public client, public std::enable_shared_from_this<connection> {
 public:
  connection(connection_house& house, stream_socket conn, crowd::place place);
  ~connection() override;

  /// Starts both tasks. They keep the connection alive until both have ended.
  void start();
  /// No more commands are read: what was read is answered, then the connection is closed.
  void finish() noexcept;

  void deliver(reply r) override;
  void flush() noexcept override;
  void left() noexcept override;

 private:
  static verge::task<> read(std::shared_ptr<connection> self);
  static verge::task<> write(std::shared_ptr<connection> self);
  void submit(std::vector<request>& requests);
  bool has_room() const noexcept;
  verge::task<> wait_for_room();
  void send_now() noexcept;
  void sent(std::size_t bytes) noexcept;
  void close() noexcept;

  connection_house& house_;
  const crowd::place place_;
  stream_socket conn_;
  shared_caller caller_;
  beanstalk::parser parser_;
  std::mutex lock_;
  std::string out_;
  std::size_t pending_{0};  ///< bytes of replies that are not sent yet, in the house's too
  bool slow_{false};        ///< the socket is full, or has failed: the writing task sends
  bool left_{false};
  bool closed_{false};
  bool wants_room_{false};  ///< the reading task waits
  std::size_t under_way_{0};
  chan<bool> to_write_{1};
  chan<bool> room_{1};
};

}  // namespace verge::server
