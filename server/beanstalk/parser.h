// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "../broker/command.h"

/// Bytes of beanstalk's protocol, and of our extensions, to commands. It knows no rules but those
/// of the syntax.
///
/// What the original does with input that is not well-formed is kept, because clients count
/// replies: the body of a put whose line is wrong is read as commands; a line of more than 224
/// bytes is dropped up to its end and answered once; only the first CR of a line can end it.
namespace verge::server::beanstalk {

inline constexpr std::size_t longest_line = 224;
inline constexpr std::uint32_t default_body_limit = 65'535;

class parser {
 public:
  explicit parser(std::uint32_t body_limit = default_body_limit) : body_limit_(body_limit) {}

  /// More bytes have come.
  void feed(std::string_view bytes) { input_.append(bytes); }

  /// The next command; nothing if it is not complete yet. Errors of syntax are commands as well:
  /// verb::say with the reply.
  std::optional<command> next();

  /// How many bytes it holds, with what is announced of a body that has not come yet.
  std::size_t weight() const noexcept;
  /// The put that is being read is not taken: the rest of it is read and dropped, and then it is
  /// answered OUT_OF_MEMORY. Nothing happens if it is none.
  void refuse();

  /// The client has said quit.
  bool has_quit() const noexcept { return quit_; }

 private:
  enum class mode : std::uint8_t {
    line,
    rest_of_line,
    body,
    skip,
    batch_line,
    batch_body,
    batch_skip,
  };

  std::string_view rest() const noexcept { return std::string_view(input_).substr(at_); }
  void consume(std::size_t n);
  std::optional<command> take_line(std::string_view line);
  std::optional<command> parse_put(std::string_view args, bool milliseconds);
  std::optional<command> take_body();
  std::optional<command> take_batch_line(std::string_view line);
  std::optional<command> end_of_batch_item();
  bool skip();

  std::uint32_t body_limit_;
  std::string input_;
  std::size_t at_{0};
  mode mode_{mode::line};
  command pending_;
  std::uint64_t body_size_{0};
  std::uint64_t skip_left_{0};
  answer skip_answer_{};
  std::uint64_t batch_left_{0};
  std::size_t batch_bytes_{0};  ///< of its bodies so far
  bool batch_is_refused_{false};
  bool quit_{false};
};

}  // namespace verge::server::beanstalk
