// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

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
/// task. The committer sends under `sending_`, and not under `lock_`, which the reading task needs
/// for the next command. The writing task alone closes the socket, under both, so that the number
/// that the committer sends to is this socket's. `sending_` is taken first.
///
/// Memory. All that is on its way is counted, for the connection and for all of them: bytes that
/// were read and are no command yet, with what is announced of a body; commands that are not
/// answered; replies that the socket has not taken. So:
///
///  - A connection with too many commands under way, or too large ones, is not read from until some
///    of them are answered.
///  - One that does not read its replies has no further command executed (client::admits): those
///    that were read wait. So it stops only itself.
///  - While all connections together have more than they may, each has one command at a time, and
///    is answered before the next is read. A command that is larger than an ordinary put is then
///    answered OUT_OF_MEMORY. No connection waits for another, so none can keep the others waiting;
///    and there is never more than the limit, a command and a reply of each connection.
///
/// While it is not read from, it is looked at from time to time whether the client has left.
namespace verge::server {

struct connection_limits {
  std::uint32_t body{beanstalk::default_body_limit};
  std::size_t connections{10'000};
  /// Commands of one connection that are not answered yet, and their bytes; bytes of answers not
  /// taken yet. Each may be exceeded by one command or answer.
  std::size_t under_way{256};
  std::size_t input{1U << 20};
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
  std::atomic<std::size_t> most_bytes{0};  ///< that there ever were

  bool is_short_of_memory() const noexcept {
    return bytes.load(std::memory_order_relaxed) >= limits.memory;
  }
  void add(std::size_t n) noexcept;
  void subtract(std::size_t n) noexcept { bytes.fetch_sub(n, std::memory_order_relaxed); }
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
  std::size_t admits(std::size_t said) noexcept override;
  void left() noexcept override;

 private:
  static verge::task<> read(std::shared_ptr<connection> self);
  static verge::task<> write(std::shared_ptr<connection> self);
  bool parse(std::vector<request>& requests);
  bool submit(std::vector<request>& requests);
  void count_parser() noexcept;
  bool has_room() const noexcept;
  std::size_t room_for_replies(std::size_t said) const noexcept;
  verge::task<> wait_for_room();
  bool has_peer_finished() noexcept;
  void notify(bool room, bool replies);
  void send_now() noexcept;
  void sent(std::size_t bytes) noexcept;
  void close() noexcept;

  connection_house& house_;
  const crowd::place place_;
  stream_socket conn_;
  shared_caller caller_;
  // The reading task's.
  beanstalk::parser parser_;
  std::size_t in_parser_{0};  ///< as the house has it
  bool half_closed_{false};   ///< the broker knows

  std::mutex sending_;
  std::string leaving_;  ///< what the committer sends; under `sending_`
  std::mutex lock_;
  std::string out_;
  std::size_t pending_{0};  ///< bytes of replies that are not sent yet
  bool slow_{false};        ///< the socket is full, or has failed: the writing task sends
  bool left_{false};
  bool closed_{false};                 ///< written under both locks
  bool wants_room_{false};             ///< the reading task waits
  bool wants_replies_{false};          ///< the broker waits, with commands that were submitted
  std::deque<std::size_t> under_way_;  ///< the weights of commands, in their order
  std::size_t input_{0};               ///< and their sum
  chan<bool> to_write_{1};
  chan<bool> room_{1};
};

}  // namespace verge::server
