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
#include "../doors/door.h"

/// A connection that speaks beanstalk's protocol: a task that reads and submits, and one that
/// writes replies as they come.
///
/// Ground rules: the socket and the parser belong to the reading task, apart from writing and
/// close(). `out_` is under `lock_`: the committer appends, the writing task takes. The reading
/// task stops while too much is under way, so a client that does not read its replies stops only
/// itself.
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
  committer& to;
  connection_limits limits;
  beanstalk::server_identity me;
  gate* door{nullptr};  ///< nothing: every client may do everything
  std::atomic<std::size_t> open{0};
  std::atomic<std::size_t> bytes{0};
};

class connection final : public client, public std::enable_shared_from_this<connection> {
 public:
  connection(connection_house& house, stream_socket conn);
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
  verge::task<> wait_for_room();

  connection_house& house_;
  stream_socket conn_;
  shared_caller caller_;
  beanstalk::parser parser_;
  std::mutex lock_;
  std::string out_;
  std::size_t counted_{0};  ///< of out_, in the house's bytes
  bool left_{false};
  std::atomic<std::size_t> under_way_{0};
  std::atomic<std::size_t> out_bytes_{0};
  chan<bool> to_write_{1};
  chan<bool> room_{1};
};

}  // namespace verge::server
