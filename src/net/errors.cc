// SPDX-License-Identifier: Apache-2.0

#include <verge/context.h>
#include <verge/detail/errors.h>
#include <verge/io.h>

#include <string>

namespace verge {

namespace {

class net_error_category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "verge.net"; }

  std::string message(int code) const override {
    switch (static_cast<net_errc>(code)) {
      case net_errc::closed:
        return "the descriptor has been closed on this side";
      case net_errc::deadline_exceeded:
        return "the deadline has passed; set a later one, or no_deadline, to continue";
      case net_errc::end_of_stream:
        return "the peer will send no more";
      case net_errc::not_pollable:
        return "a regular file or directory is always ready, so epoll does not accept it (EPERM) "
               "and there is nothing to wait for; read and write it inside verge::blocking()";
      case net_errc::runtime_ended:
        return "the runtime that this descriptor belongs to has ended";
      case net_errc::simulated_time:
        return "there are no descriptors in simulated time; use a verge::runtime, or channels";
      case net_errc::bad_address:
        return "not an address; write 127.0.0.1:80, [::1]:80, or the path of a Unix socket of "
               "at most 107 bytes";
      case net_errc::timed_out:
        return "timed out: the limit of verge::timeout() has passed";
      case net_errc::cancelled:
        return "the task was cancelled after a part was read or written";
    }
    return "unknown error";
  }

  std::error_condition default_error_condition(int code) const noexcept override {
    switch (static_cast<net_errc>(code)) {
      case net_errc::closed:
        return std::errc::bad_file_descriptor;
      case net_errc::deadline_exceeded:
      case net_errc::timed_out:
        return std::errc::timed_out;
      case net_errc::not_pollable:
        return std::errc::operation_not_permitted;
      case net_errc::runtime_ended:
      case net_errc::cancelled:
        return std::errc::operation_canceled;
      case net_errc::simulated_time:
        return std::errc::operation_not_supported;
      case net_errc::bad_address:
        return std::errc::invalid_argument;
      case net_errc::end_of_stream:
        break;
    }
    return {code, *this};
  }
};

}  // namespace

const std::error_category& net_category() noexcept {
  static const net_error_category category;
  return category;
}

std::error_code make_error_code(net_errc e) noexcept {
  return {static_cast<int>(e), net_category()};
}

std::error_code detail::cancelled_error() noexcept { return net_errc::cancelled; }

void detail::throw_io_error(const std::error_code& e) {
  if (e == net_errc::cancelled || e == context_errc::cancelled) throw_cancelled();
  throw std::system_error(e);
}

}  // namespace verge
