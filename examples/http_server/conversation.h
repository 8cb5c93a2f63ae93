// SPDX-License-Identifier: Apache-2.0
// One connection of a server, from its first request to its last.
#pragma once

#include <verge/context.h>
#include <verge/net.h>
#include <verge/task.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "server.h"

namespace http {

class conversation {
 public:
  conversation(const server_options& options, const handler& h, memory_budget& budget,
               verge::tcp_conn& conn);

  /// Returns when the connection must be closed. Throws context_error if `ctx` is done while it is
  /// idle.
  verge::task<> run(verge::context ctx);

 private:
  enum class deadline : std::uint8_t { none, idle, request };

  void set_read_deadline();
  bool take(std::string_view& received, bool may_stay);
  bool answer(response r, connection c, bool with_body);
  response ask_handler() const;
  bool refuse(int status, std::string_view reason = {});
  bool has_much_to_send() const noexcept { return out_.size() >= many_ || !body_.empty(); }
  void set_write_deadline();
  verge::task<bool> send();
  void free_what_was_sent() noexcept;
  verge::task<> say_goodbye();

  /// Pipelined answers are sent together, up to this number of bytes. A body of this size or more
  /// is sent without copying.
  static constexpr std::size_t many_ = 16 << 10;

  const server_options& options_;
  const handler& handler_;
  verge::tcp_conn& conn_;
  memory_share share_;
  request_parser parser_;
  deadline read_deadline_{deadline::none};
  std::string out_;   ///< to be sent
  std::string body_;  ///< and after it
  std::array<char, 4096> in_;
};

}  // namespace http
