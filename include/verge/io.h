// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include <verge/clock.h>

#pragma GCC visibility push(default)

/// What all reads and writes have in common: buffers, results, errors.
///
/// Errors on sockets are routine, not exceptional, so they are reported as std::error_code: one of
/// the system's (std::errc::connection_reset) or one of net_errc below. Misuse throws
/// std::logic_error.
namespace verge {

/// Errors without an errno value.
enum class net_errc : std::uint8_t {
  closed = 1,         ///< closed on this side, before the operation or while it waited
  deadline_exceeded,  ///< the deadline of this direction has passed
  end_of_stream,      ///< the peer will send no more
  not_pollable,       ///< a regular file or a directory, which epoll does not accept
  runtime_ended,      ///< the runtime that the descriptor belongs to has ended
  simulated_time,     ///< there are no sockets in a verge::simulation
  bad_address,        ///< the text is not an address
  timed_out,          ///< the limit set by verge::timeout() has passed
  cancelled,          ///< the task was cancelled after a part was read or written
};

/// `closed` compares equal to std::errc::bad_file_descriptor, `deadline_exceeded` and `timed_out`
/// to std::errc::timed_out, `not_pollable` to operation_not_permitted, `runtime_ended` and
/// `cancelled` to operation_canceled, `simulated_time` to operation_not_supported, `bad_address` to
/// invalid_argument.
const std::error_category& net_category() noexcept;
/// An error of this category; std::error_code converts by it.
std::error_code make_error_code(net_errc e) noexcept;

namespace detail {

/// Throws verge::cancelled if the error says that a task or a context was cancelled, so that it
/// ends the task as usual; otherwise std::system_error.
[[noreturn]] void throw_io_error(const std::error_code& e);

}  // namespace detail

/// The result of a read or a write. Without an error the operation is complete; with one, `bytes`
/// is the number transferred before it.
struct [[nodiscard]] io_result {
  std::size_t bytes{0};     ///< how many were transferred
  std::error_code error{};  ///< why it is not complete; empty if it is

  explicit operator bool() const noexcept { return !error; }
  /// Returns the number of bytes. Throws verge::cancelled if the task or the operation's context
  /// was cancelled, and std::system_error for every other error.
  std::size_t or_throw() const {
    if (error) detail::throw_io_error(error);
    return bytes;
  }
};

/// A value or an error: `auto [conn, error] = co_await listener.accept();`.
template <class T>
struct [[nodiscard]] result {
  T value{};                ///< default-constructed if there is an error
  std::error_code error{};  ///< why there is no value; empty if there is one

  explicit operator bool() const noexcept { return !error; }
  /// The value; default-constructed if there is an error.
  T& operator*() noexcept { return value; }
  const T& operator*() const noexcept { return value; }
  /// The same, for its members.
  T* operator->() noexcept { return &value; }
  const T* operator->() const noexcept { return &value; }
  /// Returns the value. Throws like io_result::or_throw().
  T or_throw() && {
    if (error) detail::throw_io_error(error);
    return std::move(value);
  }
};

/// "No deadline", for set_deadline() and similar functions.
inline constexpr clock::time_point no_deadline = clock::time_point::max();

namespace detail {

template <class R>
concept bytes_in_a_row = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
                             sizeof(std::ranges::range_value_t<R>) == 1 &&
                         std::is_trivially_copyable_v<std::ranges::range_value_t<R>>;

/// An array of constant characters: most likely a string literal.
template <class R>
inline constexpr bool is_literal = std::is_array_v<std::remove_reference_t<R>>&&
    std::is_same_v<std::remove_extent_t<std::remove_reference_t<R>>, const char>;

}  // namespace detail

/// The destination of a read: an array, vector, string or span of bytes or characters. It must
/// outlive the operation, and may be reused as soon as the operation has ended, however it ended.
class buffer {
 public:
  /// The bytes at `data`; or those of an array, vector, string or span.
  buffer(void* data, std::size_t size) noexcept : data_(data), size_(size) {}
  template <detail::bytes_in_a_row R>
  requires(!std::same_as<std::remove_cvref_t<R>, buffer> &&
           !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>)
      buffer(R&& bytes)  // NOLINT(bugprone-forwarding-reference-overload): it overlooks requires
  noexcept : buffer(std::ranges::data(bytes), std::ranges::size(bytes)) {}

  /// Where the bytes are.
  void* data() const noexcept { return data_; }
  /// How many there are.
  std::size_t size() const noexcept { return size_; }

 private:
  void* data_;
  std::size_t size_;
};

/// The source of a write. A string literal is written without its terminating zero.
class const_buffer {
 public:
  /// The bytes at `data`; or those of a text, array, vector or span.
  const_buffer(const void* data, std::size_t size) noexcept : data_(data), size_(size) {}
  const_buffer(const char* text) noexcept : const_buffer(std::string_view(text)) {}
  const_buffer(std::string_view text) noexcept : const_buffer(text.data(), text.size()) {}
  template <detail::bytes_in_a_row R>
  requires(!std::same_as<std::remove_cvref_t<R>, const_buffer> && !detail::is_literal<R>)
      const_buffer(R&& bytes)  // NOLINT(bugprone-forwarding-reference-overload): the same
  noexcept : const_buffer(std::ranges::data(bytes), std::ranges::size(bytes)) {}

  /// Where the bytes are.
  const void* data() const noexcept { return data_; }
  /// How many there are.
  std::size_t size() const noexcept { return size_; }

 private:
  const void* data_;
  std::size_t size_;
};

}  // namespace verge

template <>
struct std::is_error_code_enum<verge::net_errc> : std::true_type {};

#pragma GCC visibility pop
