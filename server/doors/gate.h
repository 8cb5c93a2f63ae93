// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include <verge/clock.h>

#include "../broker/command.h"
#include "token.h"

/// The gate: which caller a token names, and what it may do. Both protocols ask it; what a caller
/// may touch is enforced by the broker, which gets the caller's tubes with each command.
///
/// Ground rules: `callers_` is replaced as a whole, under `lock_`; a caller is never changed, apart
/// from its allowance, which has a lock of its own. A connection that has shown a token keeps its
/// caller until the file changes: then every command asks again, and a revoked token is refused.
namespace verge::server {

/// The holder of a token.
class caller {
 public:
  explicit caller(token_record r);

  const token_record& record() const noexcept { return record_; }
  bool may(scope s) const noexcept;
  bool may_touch(std::string_view tube) const noexcept;
  /// Nothing if it may touch all tubes.
  const std::shared_ptr<const tube_filter>& tubes() const noexcept { return tubes_; }
  bool has_expired(wall_time now) const noexcept;
  /// One request more: false if that is too many for now. A second's worth may come at once.
  bool take(clock::time_point now) const;

 private:
  const token_record record_;
  std::shared_ptr<const tube_filter> tubes_;
  mutable std::mutex lock_;
  mutable double allowance_{0};
  mutable clock::time_point counted_{};
};
using shared_caller = std::shared_ptr<const caller>;

class gate {
 public:
  /// Reads the file. Throws std::runtime_error if it cannot be used.
  explicit gate(std::string path);

  /// The holder of the token, or nothing: it is not known, revoked, or has expired.
  shared_caller admit(std::string_view token, wall_time now);
  /// The same caller by what the file says now; nothing if it is revoked or has expired.
  shared_caller again(const shared_caller& who, wall_time now);
  /// Reads the file again. What cannot be read changes nothing; false then, and `why` says so.
  bool reload(std::string& why);

 private:
  using table = std::unordered_map<std::string, shared_caller>;
  static std::shared_ptr<const table> read(const std::string& path);
  std::shared_ptr<const table> current();

  const std::string path_;
  std::mutex lock_;
  std::shared_ptr<const table> callers_;
  std::int64_t changed_{0};  ///< of the file, when it was read
  clock::time_point looked_{};
};

/// What a command needs, for the protocol that has no routes.
scope scope_of(verb v) noexcept;
/// Whether the caller may give this command. Sets what tubes it may touch.
bool may_give(const caller& who, command& c);

}  // namespace verge::server
