// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <verge/net.h>

/// The connections of one listener, from accept on: how many there may be, and how many there are.
///
/// A newcomer is one that has not come through its TLS handshake yet. It has a place as any other;
/// but when there is none left, the newcomer that has waited longest is closed and its place given
/// on. So connections that never begin to speak do not keep out those that do.
///
/// Ground rules: everything is under `lock_`. A place holds one of the crowd's until it is
/// destroyed, and the crowd outlives it.
namespace verge::server {

class crowd {
 public:
  class place {
   public:
    place() noexcept = default;
    place(place&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    place& operator=(place&& other) noexcept {
      std::swap(of_, other.of_);
      return *this;
    }
    place(const place&) = delete;
    place& operator=(const place&) = delete;
    ~place() {
      if (of_ != nullptr) of_->leave();
    }
    explicit operator bool() const noexcept { return of_ != nullptr; }

   private:
    friend class crowd;
    explicit place(crowd* of) noexcept : of_(of) {}
    crowd* of_{nullptr};
  };

  explicit crowd(std::size_t most) noexcept : most_(most) {}
  crowd(const crowd&) = delete;
  crowd& operator=(const crowd&) = delete;

  /// A place for a connection that was accepted; none if there is none left.
  place enter();
  /// The connection is a newcomer, until admit() with the number that is returned.
  std::uint64_t wait(std::shared_ptr<tcp_conn> conn, place p);
  /// Its place; none if it was closed in favour of another.
  place admit(std::uint64_t newcomer);
  /// Closes all newcomers.
  void dismiss();

  std::size_t count() const;

 private:
  struct newcomer {
    std::shared_ptr<tcp_conn> conn;
    place held;
  };
  void leave() noexcept;

  const std::size_t most_;
  mutable std::mutex lock_;
  std::size_t count_{0};
  std::uint64_t next_{0};
  std::map<std::uint64_t, newcomer> newcomers_;  ///< the first has waited longest
};

}  // namespace verge::server
