// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

/// A load generator: one thread, any number of connections, each of which sends its next request
/// when the last one is answered.
namespace verge::server::bench {

/// What one connection says. One object for each.
class conversation {
 public:
  conversation() = default;
  conversation(const conversation&) = delete;
  conversation& operator=(const conversation&) = delete;
  virtual ~conversation() = default;

  /// The bytes to send next. They must last until the reply is complete. Empty: it has finished.
  virtual std::string_view request() = 0;
  /// More of the reply, all of it since the request. True if it is complete.
  virtual bool reply(std::string_view so_far) = 0;
  /// Whether the operation that is measured is complete with this reply. Throws
  /// std::runtime_error if the reply is an error.
  virtual bool operation_done(std::string_view whole) = 0;
};

using conversation_maker = std::function<std::unique_ptr<conversation>(int number)>;

struct load_figures {
  double per_second{0};
  double p50_us{0};
  double p99_us{0};
  std::uint64_t operations{0};
};
/// Of operations that took so long each, in microseconds.
load_figures figures_of(std::uint64_t operations, double seconds, std::vector<float> times_us);

/// Plays so many conversations with a port of this machine, for so long or until all have finished.
load_figures play(std::uint16_t port, int connections, double seconds,
                  const conversation_maker& make);
/// The same with several servers: connections go to one after the other.
load_figures play(const std::vector<std::uint16_t>& ports, int connections, double seconds,
                  const conversation_maker& make);

/// Of each task, in all that is measured.
inline constexpr std::size_t body_size = 200;

// beanstalk's protocol
std::unique_ptr<conversation> beanstalk_puts(std::size_t body, int delay_seconds);
std::unique_ptr<conversation> beanstalk_reserves();
/// Puts that end after so many, `at_once` of them on their way at a time.
std::unique_ptr<conversation> beanstalk_fill(std::uint64_t count, std::size_t body,
                                             int delay_seconds, int at_once);
/// put-key and cancel in turns.
std::unique_ptr<conversation> beanstalk_cancels(std::size_t body, int number);

/// The same in a tube: it uses and watches that one alone.
std::unique_ptr<conversation> in_tube(const std::string& tube, std::unique_ptr<conversation> what);
/// Puts, and deletes what was put, until so many were deleted; `at_once` are on their way at a
/// time.
std::unique_ptr<conversation> beanstalk_deletes(std::uint64_t count, std::size_t body, int at_once);

// Redis' protocol: a sorted set and a hash, moved by scripts.
std::vector<std::string> redis_scripts();
std::unique_ptr<conversation> redis_puts(std::size_t body, const std::string& sha, int number);
std::unique_ptr<conversation> redis_reserves(const std::string& reserve_sha,
                                             const std::string& delete_sha);

/// One request on a connection of its own.
std::string ask(std::uint16_t port, std::string_view request, std::string_view until);

}  // namespace verge::server::bench
