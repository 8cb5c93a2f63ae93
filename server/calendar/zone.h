// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Time zones of IANA's database, as the system has it in files (RFC 8536): what offset from UTC a
/// zone has at any time. The standard library of GCC 12 has none.
///
/// A zone is a sequence of spans, in each of which the offset is the same. The file lists those of
/// the past, and has a rule for the time after them.
namespace verge::server::calendar {

/// From `begin` up to `end`, in seconds since 1970, local time is UTC plus `offset` seconds.
struct span {
  std::int64_t begin{std::numeric_limits<std::int64_t>::min()};
  std::int64_t end{std::numeric_limits<std::int64_t>::max()};
  std::int32_t offset{0};
};

/// The rule of a zone for times to come, in the form of POSIX: "CET-1CEST,M3.5.0,M10.5.0/3".
class zone_rule {
 public:
  /// Nothing if the text is none.
  static std::optional<zone_rule> parse(std::string_view text);
  span at(std::int64_t utc) const noexcept;

 private:
  /// A day of a year, and a time of that day in local seconds.
  struct moment {
    enum class kind : std::uint8_t { julian, day_of_year, month_week_day } what{};
    int month{0}, week{0}, day{0};
    std::int32_t time{7'200};
    std::int64_t in(std::int64_t year) const noexcept;
  };
  static bool parse_moment(std::string_view& in, moment& m);

  std::int32_t standard_{0};
  std::int32_t summer_{0};
  bool has_summer_{false};
  moment begins_;
  moment ends_;
};

class zone {
 public:
  /// The zone of this name, "Europe/Berlin", from the system's files. `why` says why there is none.
  static std::shared_ptr<const zone> load(const std::string& name, std::string& why);
  /// From the bytes of such a file; nothing if they are not right.
  static std::shared_ptr<const zone> parse(std::string_view bytes);
  static std::shared_ptr<const zone> utc();

  /// The span that this time is in.
  span at(std::int64_t utc) const noexcept;

 private:
  std::vector<std::int64_t> starts_;   ///< when each of the later spans begins
  std::vector<std::int32_t> offsets_;  ///< one more than starts
  std::optional<zone_rule> rule_;      ///< from the last start on
};

}  // namespace verge::server::calendar
