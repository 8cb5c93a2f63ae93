// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <system_error>
#include <utility>

#include <verge/detail/operation.h>
#include <verge/detail/owned.h>
#include <verge/detail/sleep.h>
#include <verge/endpoint.h>
#include <verge/io.h>

#pragma GCC visibility push(default)

/// Operations on descriptors: reading, writing, accepting, connecting (operation.h).
///
/// All of them are one thing: try the system call; if it would block, wait for a hint that it would
/// not, and try again. What differs is the system call, which is `attempt`.
namespace verge::detail {

class [[gnu::visibility("hidden")]] io_descriptor;

enum class io_direction : std::uint8_t { read, write };

/// A waiter for a direction of a descriptor. See src/net/descriptor.h for the rules.
struct io_waiting {
  waiter* who{nullptr};
  io_waiting* next{nullptr};
  io_waiting* previous{nullptr};
  bool listed{false};
};

/// A counted reference to a descriptor, or to none: the inside of every handle. The one that was
/// made first, the owner's, closes it when it is destroyed.
struct close_and_drop {
  void operator()(io_descriptor* d) const noexcept;
};
using descriptor_handle = owned<io_descriptor*, close_and_drop>;

class io_action {
 public:
  static constexpr bool cancellable = true;
  static constexpr std::uint32_t share = operations_per_system_call;

  io_action(const io_action&) = delete;
  io_action& operator=(const io_action&) = delete;

  bool start(waiter& w) noexcept;
  void again() noexcept {}
  void withdraw() noexcept;
  /// Whether bytes have been read or written: not where the system call is all of it.
  bool has_moved() const noexcept { return false; }

 protected:
  /// Makes the system call. False if it would block; else the action knows how it ended.
  using attempt_fn = bool (*)(io_action&, io_descriptor&) noexcept;

  io_action(io_descriptor* d, io_direction direction, bool exclusive, attempt_fn attempt) noexcept
      : descriptor_(d), attempt_(attempt), direction_(direction), exclusive_(exclusive) {}
  ~io_action() = default;

  /// Takes the waiter off the descriptor's list, if it is still on.
  [[gnu::visibility("hidden")]] void unlist() noexcept;
  /// To be called by finish(), before it looks at error_. Throws on misuse.
  [[gnu::visibility("hidden")]] void conclude(std::uint32_t winner);

  io_descriptor* descriptor_;
  std::error_code error_;

 private:
  [[gnu::visibility("hidden")]] void leave() noexcept;

  attempt_fn attempt_;
  io_waiting waiting_;
  const io_direction direction_;
  const bool exclusive_;
  bool entered_{false};  ///< has its reference on the descriptor, and the direction if exclusive
  bool misused_{false};
};

/// What the user holds of an operation. Actions are made from it.
template <class Action>
class [[nodiscard("co_await it, or call wait()")]] io_operation
    : public awaitable<io_operation<Action>> {
 public:
  using action = Action;
  using arguments = typename Action::arguments;
  explicit io_operation(arguments a) noexcept : arguments_(std::move(a)) {}

 private:
  friend Action;
  arguments arguments_;
};

/// Bytes from a stream, or to it: the result is how many it were.
class transfer_action : public io_action {
 public:
  io_result finish(std::uint32_t winner);
  bool has_moved() const noexcept { return done_ != 0; }
  io_result give_up(std::error_code why) noexcept;

 protected:
  transfer_action(io_descriptor* d, io_direction direction, attempt_fn attempt, std::size_t size,
                  bool all) noexcept
      : io_action(d, direction, true, attempt), size_(size), all_(all) {}

  const std::size_t size_;
  std::size_t done_{0};
  const bool all_;  ///< not done before all bytes are
};

class read_action : public transfer_action {
 public:
  static constexpr const char* waiting_for = "read";
  struct arguments {
    io_descriptor* from;
    buffer into;
    bool full;
  };
  explicit read_action(io_operation<read_action>& op) noexcept;

 private:
  [[gnu::visibility("hidden")]] static bool attempt(io_action& a, io_descriptor& d) noexcept;

  std::byte* const data_;
};

class write_action : public transfer_action {
 public:
  static constexpr const char* waiting_for = "write";
  struct arguments {
    io_descriptor* to;
    const_buffer from;
    bool all;
  };
  explicit write_action(io_operation<write_action>& op) noexcept;

 private:
  [[gnu::visibility("hidden")]] static bool attempt(io_action& a, io_descriptor& d) noexcept;

  const std::byte* const data_;
};

/// Waits until a read, or a write, would not block.
class readiness_action : public io_action {
 public:
  static constexpr const char* waiting_for = "a descriptor to be ready";
  struct arguments {
    io_descriptor* of;
    io_direction direction;
  };
  explicit readiness_action(io_operation<readiness_action>& op) noexcept;
  std::error_code finish(std::uint32_t winner);
  std::error_code give_up(std::error_code why) noexcept;

 private:
  [[gnu::visibility("hidden")]] static bool attempt(io_action& a, io_descriptor& d) noexcept;

  const short events_;
};

/// Accepts a connection. Out of descriptors it waits a little and tries again: the connection stays
/// in the kernel's queue meanwhile.
class accept_action : public io_action {
 public:
  static constexpr const char* waiting_for = "accept";

  void again() noexcept;
  bool start(waiter& w) noexcept;
  void withdraw() noexcept;

 protected:
  explicit accept_action(io_descriptor* listener) noexcept;
  ~accept_action() = default;
  descriptor_handle conclude_accept(std::uint32_t winner);

 private:
  [[gnu::visibility("hidden")]] static bool attempt(io_action& a, io_descriptor& d) noexcept;

  descriptor_handle accepted_;
  std::optional<sleep_action> back_off_;
  std::int64_t delay_{0};  ///< of the next back-off; 0 if there can be none
  bool exhausted_{false};
};

template <class Conn>
class accept_into : public accept_action {
 public:
  struct arguments {
    io_descriptor* listener;
  };
  explicit accept_into(io_operation<accept_into>& op) noexcept
      : accept_action(op.arguments_.listener) {}
  result<Conn> finish(std::uint32_t winner) {
    descriptor_handle d = conclude_accept(winner);
    return {Conn(std::move(d)), error_};
  }
  result<Conn> give_up(std::error_code why) noexcept {
    this->withdraw();
    return {Conn(), why};
  }
};

/// Makes a socket and connects it.
class connect_action : public io_action {
 public:
  static constexpr const char* waiting_for = "connect";

  struct target {
    endpoint to;
    int type;            ///< SOCK_STREAM or SOCK_DGRAM
    std::int64_t limit;  ///< in nanoseconds; the largest is none
  };
  bool start(waiter& w) noexcept;
  void withdraw() noexcept;

 protected:
  explicit connect_action(const target& t);
  ~connect_action() = default;
  descriptor_handle conclude_connect(std::uint32_t winner);

 private:
  [[gnu::visibility("hidden")]] static bool attempt(io_action& a, io_descriptor& d) noexcept;
  [[gnu::visibility("hidden")]] std::error_code connected(io_descriptor& d) noexcept;

  target target_;
  descriptor_handle socket_;
  bool begun_{false};
};

template <class Conn>
class connect_into : public connect_action {
 public:
  using arguments = connect_action::target;
  explicit connect_into(io_operation<connect_into>& op) : connect_action(op.arguments_) {}
  result<Conn> finish(std::uint32_t winner) {
    descriptor_handle d = conclude_connect(winner);
    return {Conn(std::move(d)), error_};
  }
  result<Conn> give_up(std::error_code why) noexcept {
    this->withdraw();
    return {Conn(), why};
  }
};

}  // namespace verge::detail

namespace verge {

/// What was received, and from which address.
struct [[nodiscard]] datagram {
  std::size_t bytes{0};
  std::error_code error{};
  endpoint from{};
  bool truncated{false};  ///< it was longer than the buffer; the rest is lost

  explicit operator bool() const noexcept { return !error; }
};

}  // namespace verge

namespace verge::detail {

class receive_from_action : public io_action {
 public:
  static constexpr const char* waiting_for = "receive";
  struct arguments {
    io_descriptor* from;
    buffer into;
  };
  explicit receive_from_action(io_operation<receive_from_action>& op) noexcept;
  datagram finish(std::uint32_t winner);
  datagram give_up(std::error_code why) noexcept;

 private:
  [[gnu::visibility("hidden")]] static bool attempt(io_action& a, io_descriptor& d) noexcept;

  buffer into_;
  datagram got_;
};

class send_to_action : public io_action {
 public:
  static constexpr const char* waiting_for = "send";
  struct arguments {
    io_descriptor* from;
    const_buffer what;
    endpoint to;  ///< none: to the one it is connected to
  };
  explicit send_to_action(io_operation<send_to_action>& op) noexcept;
  io_result finish(std::uint32_t winner);
  io_result give_up(std::error_code why) noexcept;

 private:
  [[gnu::visibility("hidden")]] static bool attempt(io_action& a, io_descriptor& d) noexcept;

  const_buffer what_;
  endpoint to_;
  std::size_t sent_{0};
};

}  // namespace verge::detail

#pragma GCC visibility pop
